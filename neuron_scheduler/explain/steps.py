"""
Run a computation of this room to its end, for callers that have no other task to let run.

Each is a generator that yields None at its pauses, and its answer last. Does not pause: that is for `questions.lane`.
"""

from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def finished(steps: Iterator[T | None]) -> T:
    """Return the answer of a generator that yields None at its pauses and the answer last, without pausing."""
    answer: T | None = None
    for step in steps:
        answer = step
    if answer is None:
        raise RuntimeError("the steps ended without an answer")
    return answer
