"""
A set of nodes as one integer: bit *i* is the node in slot *i*.

Intersection and union are `&` and `|`, and `1 << slot` is the set of one node. A complement has meaning only once it is
ANDed with the live slots.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import compress, count
from typing import TYPE_CHECKING, Final, Literal, TypeVar

_Row = TypeVar("_Row")

if TYPE_CHECKING:
    from neuron_scheduler.model.bitset import BitSet

    class NodeSet(BitSet):
        """A set of nodes."""

        def __neg__(self) -> "NodeSet": ...
        def __lshift__(self, slots: int, /) -> "NodeSet": ...
        def __rshift__(self, slot: "Slot", /) -> int: ...

    class Slot:
        """The number of a node's slot."""

        def __init__(self, number: int, /) -> None: ...
        def __index__(self) -> int: ...
        def __eq__(self, other: object, /) -> bool: ...
        def __hash__(self) -> int: ...
        def __lt__(self, other: "Slot | int", /) -> bool: ...
        def __add__(self, count: int, /) -> int: ...
        def __invert__(self) -> int: ...
        def __and__(self, bits: int, /) -> int: ...
        def __rshift__(self, count: int, /) -> int: ...
        def __rlshift__(self, one: Literal[1], /) -> NodeSet: ...

else:
    NodeSet = int
    Slot = int

NO_NODES: Final = NodeSet(0)
_BITS: Final = bytes.maketrans(b"01", b"\0\1")
_ONE: Final = ord("1")
_FEW: Final = 8


def from_slots(slots: Iterable[Slot], size: int) -> NodeSet:
    """Return the set of the given slots, all below `size`; linear in `size`, unlike one OR per slot."""
    digits = bytearray(b"0") * (size or 1)
    for slot in slots:
        digits[~slot] = _ONE
    return NodeSet(int(digits, 2))


def selectors(nodes: NodeSet) -> bytes:
    """Return a byte for each slot, 1 if it is in the set: for many slots, `compress` is much faster than `slots_of`."""
    return f"{nodes:b}"[::-1].encode().translate(_BITS)


def membership(nodes: NodeSet, size: int) -> Callable[[Slot], bool]:
    """Return the function that tells whether a slot below `size` is in a set; quick for many slots."""
    bits = nodes.to_bytes(size + 7 >> 3, "little")
    return lambda slot: bool(bits[slot >> 3] >> (slot & 7) & 1)


def by_slot(rows: Iterable[_Row]) -> Iterator[tuple[Slot, _Row]]:
    return enumerate(rows)  # type: ignore[return-value]  # a row's position is its slot


def less(nodes: NodeSet, removed: NodeSet) -> NodeSet:
    """Return the nodes that are not in `removed`; `nodes & ~removed` takes three times as long (signs, copies)."""
    return nodes ^ (nodes & removed)


def lowest_slot(nodes: NodeSet) -> Slot:
    """Return the lowest slot of a set that is not empty."""
    return (nodes & -nodes).bit_length() - 1  # type: ignore[return-value]  # the position of a bit is a slot


def slots_of(nodes: NodeSet) -> Iterator[Slot]:
    """Yield the slots in ascending order; linear in the size, because only the first ones are taken out one by one."""
    for _ in range(_FEW):
        if not nodes:
            return
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1  # type: ignore[misc]  # likewise
        nodes ^= lowest
    yield from compress(count(), selectors(nodes))
