"""
Nodes by the value of a label: definitions of the indexes for selectors and domains.

A domain is a value of a label, with one exception: AWS's device plugin labels nodes that are in no UltraServer with an
id of zeros. A selector can match that value, but these nodes have nothing in common and are in no domain.

There is only one definition for a key, since indexes are looked up by identity.
"""

from collections.abc import Callable
from typing import Final

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import parse_int64

_ULTRASERVER_ID: Final = "neuron.amazonaws.com/ultraserver-server-id-"
_NO_ULTRASERVER: Final = "0000000000000000"


def domain_of(node: Node, key: str) -> str | None:
    value = node.labels.get(key)
    return None if value == _NO_ULTRASERVER and key.startswith(_ULTRASERVER_ID) else value


@memoise(maxsize=1024)
def label(key: str) -> Callable[[Node], Values]:
    """Return the index definition: nodes by their value of one label."""

    def values_of(node: Node) -> Values:
        value = node.labels.get(key)
        return () if value is None else (value,)

    return values_of


@memoise(maxsize=1024)
def integer_label(key: str) -> Callable[[Node], Values]:
    """Return the index definition: nodes by their value of one label, where it is an integer."""

    def values_of(node: Node) -> Values:
        number = parse_int64(node.labels.get(key, ""))
        return () if number is None else (number,)

    return values_of


@memoise(maxsize=1024)
def domain(key: str) -> Callable[[Node], Values]:
    """Return the index definition: nodes by their domain of one label; for most, it is that of the label."""
    if not key.startswith(_ULTRASERVER_ID):
        return label(key)

    def values_of(node: Node) -> Values:
        value = domain_of(node, key)
        return () if value is None else (value,)

    return values_of
