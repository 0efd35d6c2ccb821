"""
How much of the random and of the exhaustive tests a run tries.

`make test` sets TESTS=fast: every test runs, with a share of its random examples and of the states that it enumerates.
`make test-all` tries all of them. What a test asserts is the same in both. A test whose promise was once broken and
shown by few of its examples does not ask here, and always tries all: the order of victims in `scheduling/preemption`.
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
    return every[::_STRIDE] if FAST and len(every) > _FEW else every
