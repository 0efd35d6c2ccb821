"""A long computation lets other tasks run when its turn is over, and a short one does not."""

from collections.abc import Iterator
from itertools import count

import anyio
import anyio.lowlevel
import pytest

from neuron_scheduler.controllers.turn import LONGEST_TURN, in_turns


@pytest.mark.parametrize(("seconds", "turns"), [(LONGEST_TURN, 3), (LONGEST_TURN / 4, 0)])
async def test_others_come_in_between(seconds: float, turns: int) -> None:
    """Each step takes `seconds`; three steps of a whole turn have a pause after each."""
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await anyio.lowlevel.checkpoint()

    seen: list[int] = []

    def steps() -> Iterator[None]:
        for _ in range(3):
            yield
            seen.append(others)

    ticks = count()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert await in_turns(steps(), lambda: next(ticks) * seconds) == 3
        tasks.cancel_scope.cancel()
    assert (len(set(seen)) if seen[0] else 0) == turns
