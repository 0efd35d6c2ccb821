"""
A non-negative number for each node, as bit planes: plane *j* is the set of nodes whose number has bit *j*.

So "free memory >= x" for all nodes takes a few ANDs and ORs for each bit of x. The caller clamps negative numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import ClassVar, Self

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, from_slots, less, slots_of


@attrs.define(eq=False)
class Column:
    """Numbers of all nodes; a node that was never set has 0."""

    NOTHING: ClassVar[int] = 0

    _planes: list[NodeSet] = attrs.field(factory=list)

    def extend(self, rows: Sequence[int], first: int) -> None:
        """
        Index the numbers of the slots from `first` on, which have none yet.

        All numbers are written in binary into one string, where a plane is every width-th digit: slicing and
        `int(s, 2)` do the work in C (15,000 numbers of 40 bits in a few milliseconds).
        """
        width = max(rows, default=0).bit_length()
        self._planes += [NO_NODES] * (width - len(self._planes))
        digits = "".join([format(number, f"0{width}b") for number in reversed(rows)]) if width else ""
        for j in range(width):
            self._planes[j] |= NodeSet(int(digits[width - 1 - j :: width], 2)) << first

    @classmethod
    def sparse(cls, numbers: Mapping[Slot, int]) -> Self:
        """Index the numbers above 0, by slot; for few nodes, or few different numbers."""
        size = max(numbers, default=0) + 1
        slots: dict[int, list[Slot]] = {}
        for slot, number in numbers.items():
            slots.setdefault(number, []).append(slot)
        column = cls()
        for number, slots_of_number in slots.items():
            column.flip(number, from_slots(slots_of_number, size))
        return column

    def fork(self) -> Self:
        return type(self)(planes=list(self._planes))

    def replace(self, slot: Slot, old: int, new: int) -> None:
        if old != new:
            self.flip(old ^ new, 1 << slot)

    def flip(self, bits: int, nodes: NodeSet) -> None:
        """Invert these bits of the nodes' numbers; all of them must have the same number."""
        planes = self._planes
        if bits.bit_length() > len(planes):
            planes += [NO_NODES] * (bits.bit_length() - len(planes))
        while bits:
            j = bits.bit_length() - 1
            planes[j] ^= nodes
            bits ^= 1 << j

    def add(self, weight: int, nodes: NodeSet) -> None:
        """Add `weight` to the number of each of the nodes: a ripple-carry addition for each bit of the weight."""
        planes = self._planes
        while weight:
            j, carry = weight.bit_length() - 1, nodes
            weight ^= 1 << j
            while carry:
                if j >= len(planes):
                    planes += [NO_NODES] * (j + 1 - len(planes))
                planes[j], carry = planes[j] ^ carry, planes[j] & carry
                j += 1

    def decrease(self, nodes: NodeSet, bit: int = 0) -> None:
        """Subtract 1, or another bit, from the number of each of the nodes, which is not less."""
        for j in range(bit, len(self._planes)):
            plane = self._planes[j]
            self._planes[j], nodes = plane ^ nodes, less(nodes, plane)

    def add_all(self, other: Self, factor: int, among: NodeSet) -> None:
        for j, plane in enumerate(other._planes):
            self.add(factor << j, plane & among)

    def less_all(self, other: Self, among: NodeSet) -> Self:
        """Return the numbers less those of another column on some nodes, which are not above them."""
        rest = self.fork()
        for j, plane in enumerate(other._planes):
            rest.decrease(plane & among, j)
        return rest

    def mask(self, among: NodeSet) -> Self:
        """Return the numbers of `among`, 0 elsewhere."""
        return type(self)(planes=[plane & among for plane in self._planes])

    def subtract_from(self, top: int, among: NodeSet) -> Self:
        """Return `top` less the number for each of `among`, none of which is above `top`; 0 elsewhere."""
        width = max(top.bit_length(), len(self._planes))
        planes = [*self._planes, *[NO_NODES] * (width - len(self._planes))]
        rest = Column([less(among, plane) for plane in planes])  # 2^width - 1 less the number
        rest.add(top + 1, among)
        return type(self)(rest._planes[:width])  # modulo 2^width

    def value(self, slot: Slot) -> int:
        return sum((plane >> slot & 1) << j for j, plane in enumerate(self._planes))

    def by_slot(self) -> dict[Slot, int]:
        """Return the numbers above 0; for many slots this is quicker than `value`."""
        numbers = dict[Slot, int]()
        for weight, nodes in self.weights():
            for slot in slots_of(nodes):
                numbers[slot] = numbers.get(slot, 0) + weight
        return numbers

    @property
    def positive(self) -> NodeSet:
        return reduce(or_, self._planes, NO_NODES)

    def at_least(self, bound: int, among: NodeSet) -> NodeSet:
        """
        Return those of `among` whose number is `bound` or more.

        Most nodes have a bit above the bound's highest. The planes below are read from the highest one, and only as
        long as the number of some node agrees with the bound so far.
        """
        if bound <= 0:
            return among
        planes, width = self._planes, bound.bit_length()
        if width > len(planes):
            return NO_NODES
        reached = reduce(or_, planes[width:], NO_NODES) & among
        equal = among ^ reached
        j = width - 1
        while equal and bound:
            higher = equal & planes[j]
            if bound >> j:
                bound ^= 1 << j
                equal = higher
            elif higher:
                reached |= higher
                equal ^= higher
            j -= 1
        return reached | equal

    def highest(self, among: NodeSet) -> NodeSet:
        for plane in reversed(self._planes):
            among = among & plane or among
        return among

    def lowest(self, among: NodeSet) -> NodeSet:
        for plane in reversed(self._planes):
            among = among ^ (among & plane) or among
        return among

    def maximum(self, among: NodeSet) -> int:
        """Return the highest number of `among`; 0 if there is none."""
        number = 0
        for plane in reversed(self._planes):
            higher = among & plane
            number = number << 1 | bool(higher)
            among = higher or among
        return number

    def minimum(self, among: NodeSet) -> int:
        """Return the lowest number of `among`; 0 if there is none."""
        if not among:
            return 0
        number = 0
        for plane in reversed(self._planes):
            rest = among ^ (among & plane)
            number = number << 1 | (not rest)
            among = rest or among
        return number

    def weights(self) -> Iterator[tuple[int, NodeSet]]:
        """Yield (weight, nodes) pairs whose sum at each node is its number."""
        return ((1 << j, plane) for j, plane in enumerate(self._planes) if plane)

    def total(self, among: NodeSet) -> int:
        return sum((plane & among).bit_count() << j for j, plane in enumerate(self._planes))
