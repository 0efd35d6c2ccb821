"""How long a service may compute on the event loop before other tasks, such as watches, get a turn."""

from collections.abc import Callable, Iterable
from typing import Final

import anyio.lowlevel

LONGEST_TURN: Final = 0.002
"""Seconds of decisions, of a search for victims, or of building indexes in a row."""


async def in_turns(steps: Iterable[object], clock: Callable[[], float]) -> int:
    """Take steps, with other tasks in between whenever a turn is over; returns how many there were."""
    count, turn_ends = 0, clock() + LONGEST_TURN
    for _ in steps:
        count += 1
        if clock() >= turn_ends:
            await anyio.lowlevel.checkpoint()
            turn_ends = clock() + LONGEST_TURN
    return count
