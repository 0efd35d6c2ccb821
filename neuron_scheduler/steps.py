"""
Long computations in steps: generators that yield at their pauses and return their answer.

`run` takes the steps one after the other. `run_in_turns` lets the other tasks of an event loop have their turns.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Final, TypeAlias, TypeVar

from anyio.lowlevel import checkpoint

T = TypeVar("T")
Pause: TypeAlias = Callable[[], Awaitable[object]]
LONGEST_TURN: Final = 0.002
"""Seconds of decisions, of a search for victims, or of building indexes in a row."""


def run(steps: Generator[None, None, T]) -> T:
    """Take all steps without a pause; return the answer."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer


async def run_in_turns(steps: Generator[None, None, T], clock: Callable[[], float], pause: Pause = checkpoint) -> T:
    """Take all steps, with a pause for other tasks whenever a turn is over; return the answer."""
    turn_ends = clock() + LONGEST_TURN
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
        if clock() >= turn_ends:
            await pause()
            turn_ends = clock() + LONGEST_TURN
