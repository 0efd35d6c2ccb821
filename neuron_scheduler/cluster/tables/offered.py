"""
Which label keys and resources the nodes have, so that a name that only pods use costs no index.

Pods can name any label or resource, and a question about a name needs an index of all nodes. Nodes have few names, and
users cannot add to them; a question about any other name is answered without an index.
"""

from collections.abc import Iterable
from typing import Self

import attrs

from neuron_scheduler.model.node import Node


@attrs.define(eq=False)
class Offered:
    """
    Counts the nodes that have each name.

    Attributes:
        labels: by the label's key.
        resources: by the name of the allocatable resource.
        novelties: how often a node was the first to have a name.
    """

    labels: dict[str, int] = attrs.field(factory=dict)
    resources: dict[str, int] = attrs.field(factory=dict)
    novelties: int = 0

    def replace(self, old: Node | None, new: Node | None) -> None:
        """Replace a node's state; None if there is none."""
        for names, before, after in (
            (self.labels, old and old.labels, new and new.labels),
            (self.resources, old and old.allocatable, new and new.allocatable),
        ):
            if before != after:
                known = len(names)
                _count(names, after or (), 1)
                self.novelties += len(names) > known
                _count(names, before or (), -1)

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(dict(self.labels), dict(self.resources), self.novelties)


def _count(names: dict[str, int], changed: Iterable[str], by: int) -> None:
    for name in changed:
        number = names.get(name, 0) + by
        if number:
            names[name] = number
        else:
            del names[name]
