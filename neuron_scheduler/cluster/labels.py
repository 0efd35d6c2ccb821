"""
Nodes by the value of a label: the index that selectors, domains and instance types are asked of.
"""

from functools import lru_cache

import attrs

from neuron_scheduler.cluster.postings import Values
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import parse_int64


@attrs.frozen(eq=False)
class Label:
    """Index definition: nodes by their value of one label."""

    key: str

    def __call__(self, node: Node) -> Values:
        """Return the node's value of the label."""
        value = node.labels.get(self.key)
        return () if value is None else (value,)


@attrs.frozen(eq=False)
class Number:
    """Index definition: nodes by their value of one label, where it is an integer."""

    key: str

    def __call__(self, node: Node) -> Values:
        """Return the node's integer, if it has one."""
        number = parse_int64(node.labels.get(self.key, ""))
        return () if number is None else (number,)


label = lru_cache(maxsize=1024)(Label)
integer_label = lru_cache(maxsize=1024)(Number)
"""The one definition for a key: an index is then looked up by identity."""
