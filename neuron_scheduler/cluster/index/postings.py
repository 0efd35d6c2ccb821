"""
Which nodes have which value: labels, taint lists, ports, block levels. Namespaces have slots, too.

A node may have several values or none. A value of few nodes is a tuple of slots: for a label that differs on every
node, one integer each would take 15 MB at 15,000 nodes, tuples take 1.3 MB.
"""

from collections.abc import Hashable, Iterable, Sequence, Set as AbstractSet
from typing import ClassVar, Self

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, by_slot, from_slots, less, slots_of

_RARE = 8

Values = tuple[Hashable, ...]


@attrs.define(eq=False)
class Postings:
    """The set of nodes of each value, updated row by row; `keyed` are the nodes that have any value at all."""

    NOTHING: ClassVar[Values] = ()

    keyed: NodeSet = NO_NODES
    _sets: dict[Hashable, NodeSet | tuple[Slot, ...]] = attrs.field(factory=dict)
    _shared: bool = False  # a fork may have the same dict

    def extend(self, rows: Sequence[Values], first: int) -> None:
        """Index the values of the slots from `first` on, which have none yet; `()` where a slot is empty."""
        slots: dict[Hashable, list[Slot]] = {}
        for slot, values in by_slot(rows):
            for value in values:
                slots.setdefault(value, []).append(slot)
        for value, posted in slots.items():
            known = self._sets.get(value, ())
            if isinstance(known, tuple) and len(known) + len(posted) <= _RARE:
                self._sets[value] = (*known, *[Slot(slot + first) for slot in posted])
            else:
                self._sets[value] = self.get(value) | from_slots(posted, len(rows)) << first
        self.keyed |= from_slots((slot for slot, values in by_slot(rows) if values), len(rows)) << first

    def fork(self) -> Self:
        """Return an independent copy; the sets are copied when one of the two changes them."""
        self._shared = True
        return type(self)(keyed=self.keyed, sets=self._sets, shared=True)

    @property
    def values(self) -> AbstractSet[Hashable]:
        return self._sets.keys()

    def get(self, value: Hashable) -> NodeSet:
        posted = self._sets.get(value, NO_NODES)
        if not isinstance(posted, tuple):
            return posted
        nodes = NO_NODES
        for slot in posted:
            nodes |= 1 << slot
        return nodes

    def slots(self, value: Hashable) -> Iterable[Slot]:
        """Return the slots of the nodes that have the value, a tuple if they are few."""
        posted = self._sets.get(value, ())
        return posted if isinstance(posted, tuple) else slots_of(posted)

    def any_of(self, values: Iterable[Hashable]) -> NodeSet:
        nodes = NO_NODES
        for value in values:
            nodes |= self.get(value)
        return nodes

    def count_among(self, nodes: NodeSet) -> int:
        if not self.keyed & ~nodes:
            return len(self._sets)
        bits = nodes.to_bytes(nodes.bit_length() + 7 >> 3, "little").ljust(self.keyed.bit_length() + 7 >> 3, b"\0")
        return sum(
            any(bits[slot >> 3] >> (slot & 7) & 1 for slot in posted)
            if isinstance(posted, tuple)
            else bool(nodes & posted)
            for posted in self._sets.values()
        )

    def sums(self, numbers: Column) -> Column:
        """Return at each node the sum of the numbers of the nodes with its value; each has one value at most."""
        sums, rare = Column(), self.keyed
        for posted in self._sets.values():
            if not isinstance(posted, tuple):
                sums.flip(numbers.total(posted), posted)
                rare = less(rare, posted)
        of_slots, slots = numbers.mask(rare).by_slot(), dict[int, list[Slot]]()
        for posted in self._sets.values() if of_slots else ():
            if isinstance(posted, tuple):
                slots.setdefault(sum([of_slots.get(slot, 0) for slot in posted]), []).extend(posted)
        for total, with_total in slots.items():
            sums.flip(total, from_slots(with_total, self.keyed.bit_length()))
        return sums

    def replace(self, slot: Slot, old: Values, new: Values) -> None:
        if old == new:
            return
        if self._shared:
            self._sets, self._shared = dict(self._sets), False
        for value in old:
            if value not in new:
                self._discard(value, slot)
        for value in new:
            if value not in old:
                self._insert(value, slot)
        if not (old and new):
            self.keyed ^= 1 << slot

    def _insert(self, value: Hashable, slot: Slot) -> None:
        posted = self._sets.get(value, ())
        if not isinstance(posted, tuple):
            self._sets[value] = posted | 1 << slot
        elif len(posted) < _RARE:
            self._sets[value] = tuple(sorted((*posted, slot)))
        else:
            self._sets[value] = from_slots((*posted, slot), max(*posted, slot) + 1)

    def _discard(self, value: Hashable, slot: Slot) -> None:
        posted = self._sets[value]
        rest = tuple(s for s in posted if s != slot) if isinstance(posted, tuple) else posted ^ (1 << slot)
        if rest:
            self._sets[value] = rest
        else:
            del self._sets[value]
