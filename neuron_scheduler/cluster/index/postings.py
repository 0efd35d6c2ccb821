"""
Which nodes have which value: labels, taint lists, ports, block levels.

A node may have several values or none. The set of a rare value is kept as a tuple of slots: a label that is
different on every node would otherwise cost one wide integer per node (15 MB at 15,000 nodes, against 1.3 MB).
"""

from collections.abc import Hashable, Iterable, Sequence, Set as AbstractSet
from typing import ClassVar, Self

import attrs

from neuron_scheduler.cluster.index.nodeset import NodeSet, from_slots, slots_of

_RARE = 8

Values = tuple[Hashable, ...]


@attrs.define(eq=False)
class Postings:
    """
    value -> set of nodes, kept up to date row by row.

    Attributes:
        keyed: the nodes that have any value at all.
    """

    NOTHING: ClassVar[Values] = ()

    keyed: NodeSet = 0
    _sets: dict[Hashable, NodeSet | tuple[int, ...]] = attrs.field(factory=dict)

    @classmethod
    def build(cls, rows: Sequence[Values]) -> Self:
        """Index the rows, one for each slot, `()` where the slot is empty."""
        slots: dict[Hashable, list[int]] = {}
        for slot, values in enumerate(rows):
            for value in values:
                slots.setdefault(value, []).append(slot)
        size = len(rows)
        sets = {
            value: tuple(among) if len(among) <= _RARE else from_slots(among, size) for value, among in slots.items()
        }
        return cls(keyed=from_slots((slot for slot, values in enumerate(rows) if values), size), sets=sets)

    def fork(self) -> Self:
        """Return an independent copy; integers and tuples are shared."""
        return type(self)(keyed=self.keyed, sets=dict(self._sets))

    @property
    def values(self) -> AbstractSet[Hashable]:
        """The values that some node has."""
        return self._sets.keys()

    def get(self, value: Hashable) -> NodeSet:
        """Return the nodes that have the value."""
        found = self._sets.get(value, 0)
        return found if isinstance(found, int) else sum(1 << slot for slot in found)

    def slots(self, value: Hashable) -> Iterable[int]:
        """Return the slots of the nodes that have the value."""
        found = self._sets.get(value, ())
        return slots_of(found) if isinstance(found, int) else found

    def any_of(self, values: Iterable[Hashable]) -> NodeSet:
        """Return the nodes that have at least one of the values."""
        nodes = 0
        for value in values:
            nodes |= self.get(value)
        return nodes

    def count_among(self, nodes: NodeSet) -> int:
        """Return how many values the nodes have between them."""
        if not self.keyed & ~nodes:
            return len(self._sets)
        found = nodes.to_bytes(nodes.bit_length() + 7 >> 3, "little").ljust(self.keyed.bit_length() + 7 >> 3, b"\0")
        return sum(
            bool(nodes & among) if isinstance(among, int) else any(found[slot >> 3] >> (slot & 7) & 1 for slot in among)
            for among in self._sets.values()
        )

    def replace(self, slot: int, old: Values, new: Values) -> None:
        """Take the slot from the old values' sets to the new values'."""
        if old == new:
            return
        for value in old:
            if value not in new:
                self._discard(value, slot)
        for value in new:
            if value not in old:
                self._insert(value, slot)
        if not (old and new):
            self.keyed ^= 1 << slot

    def _insert(self, value: Hashable, slot: int) -> None:
        found = self._sets.get(value, ())
        if isinstance(found, int):
            self._sets[value] = found | 1 << slot
        elif len(found) < _RARE:
            self._sets[value] = tuple(sorted((*found, slot)))
        else:
            self._sets[value] = from_slots((*found, slot), max(*found, slot) + 1)

    def _discard(self, value: Hashable, slot: int) -> None:
        found = self._sets[value]
        rest = found ^ (1 << slot) if isinstance(found, int) else tuple(other for other in found if other != slot)
        if rest:
            self._sets[value] = rest
        else:
            del self._sets[value]
