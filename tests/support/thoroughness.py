"""
How much of the random and of the exhaustive tests a run tries.

`make test` tries all of it. `make fast` sets TESTS=fast: every test still runs, with a share of its random examples and
of the states that it enumerates. What a test asserts is the same in both.
"""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

FAST: Final = os.environ.get("TESTS") == "fast"

_SHARE: Final = 8 if FAST else 1
_FEW: Final = 100
"""States that are always tried."""
_STRIDE: Final = 17
"""Odd, so that the states that are left differ in their low bits too."""


def examples(count: int) -> int:
    """Return how many random examples, or seeds, this run tries out of `count`; at least one."""
    return max(1, count // _SHARE)


def states(every: Sequence[T]) -> Sequence[T]:
    """Return the states that this run tries."""
    return every[::_STRIDE] if FAST and len(every) > _FEW else every
