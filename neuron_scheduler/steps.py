"""
Long computations in steps: generators that yield at their pauses and return their answer.

`run` takes the steps one after the other. `run_in_turns` lets the other tasks of an event loop have their turns.
"""

from collections.abc import Callable, Generator
from typing import Final, TypeVar

import anyio

T = TypeVar("T")
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


async def run_in_turns(steps: Generator[None, None, T], clock: Callable[[], float], *, rest: float = 0.0) -> T:
    """
    Take all steps, with other tasks in between whenever a turn is over; return the answer.

    `rest` is the seconds between two turns, for what may use a part of the event loop's time only.
    """
    turn_ends = clock() + LONGEST_TURN
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer
        if clock() >= turn_ends:
            await anyio.sleep(rest)
            turn_ends = clock() + LONGEST_TURN
