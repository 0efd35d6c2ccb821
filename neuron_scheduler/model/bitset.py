"""
What all sets that are stored as one integer have in common: bit *i* is element *i*.

At run time such a set is an `int`, so an operation on it costs what it costs on an integer. The type check knows it as
a type of its own, which offers the operations of sets only and takes no integer and no set of another type. Each
type of set is declared under `TYPE_CHECKING`, with `int` as the other branch.
"""

from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:

    class BitSet:
        """A set of numbers, as one integer."""

        def __init__(self, bits: int, /) -> None: ...
        def __eq__(self, other: object, /) -> bool: ...
        def __hash__(self) -> int: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __and__(self, other: Self, /) -> Self: ...
        def __or__(self, other: Self, /) -> Self: ...
        def __xor__(self, other: Self, /) -> Self: ...
        def __invert__(self) -> Self: ...
        def bit_count(self) -> int:
            """Return the number of elements."""

        def bit_length(self) -> int:
            """Return the highest element plus one; 0 for the empty set."""

        def to_bytes(self, length: int, byteorder: Literal["little"]) -> bytes:
            """Return the bits as bytes."""
