"""
Nodes by the value of a label: definitions of the indexes for selectors and domains.

A domain is a value of a label, with one exception: AWS's device plugin labels nodes that are in no UltraServer with an
id of zeros. A selector can match that value, but these nodes have nothing in common and are in no domain.
"""

from typing import Final

import attrs

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import parse_int64

_ULTRASERVER_ID: Final = "neuron.amazonaws.com/ultraserver-server-id-"
_NO_ULTRASERVER: Final = "0000000000000000"


@attrs.frozen(eq=False)
class Label:
    """Index definition: nodes by their value of one label."""

    key: str

    def __call__(self, node: Node) -> Values:
        value = node.labels.get(self.key)
        return () if value is None else (value,)


@attrs.frozen(eq=False)
class UltraServer:
    """Index definition: nodes by their UltraServer, of the size that the label is for."""

    key: str

    def __call__(self, node: Node) -> Values:
        value = domain_of(node, self.key)
        return () if value is None else (value,)


@attrs.frozen(eq=False)
class Number:
    """Index definition: nodes by their value of one label, where it is an integer."""

    key: str

    def __call__(self, node: Node) -> Values:
        number = parse_int64(node.labels.get(self.key, ""))
        return () if number is None else (number,)


def domain_of(node: Node, key: str) -> str | None:
    value = node.labels.get(key)
    return None if value == _NO_ULTRASERVER and key.startswith(_ULTRASERVER_ID) else value


def _domain(key: str) -> Label | UltraServer:
    return UltraServer(key) if key.startswith(_ULTRASERVER_ID) else label(key)


label = memoise(maxsize=1024)(Label)
integer_label = memoise(maxsize=1024)(Number)
domain = memoise(maxsize=1024)(_domain)
"""The only definition for a key, since indexes are looked up by identity; most domains use the label's definition."""
