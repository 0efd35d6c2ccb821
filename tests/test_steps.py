"""A long computation lets other tasks run when its turn is over, and a short one does not."""

from collections.abc import Generator
from itertools import count

import anyio
import anyio.lowlevel
import pytest

from neuron_scheduler.steps import LONGEST_TURN, run, run_in_turns


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

    def steps() -> Generator[None, None, str]:
        for _ in range(3):
            yield
            seen.append(others)
        return "answer"

    ticks = count()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        assert await run_in_turns(steps(), lambda: next(ticks) * seconds) == "answer"
        tasks.cancel_scope.cancel()
    assert (len(set(seen)) if seen[0] else 0) == turns


async def test_a_rest() -> None:
    """What may use a part of the time only pauses for longer."""
    rests, ticks = list[float](), count()

    def steps() -> Generator[None, None, None]:
        yield from [None] * 3

    async def pause() -> None:
        rests.append(0.002)

    await run_in_turns(steps(), lambda: next(ticks) * LONGEST_TURN, pause)
    assert rests == [0.002] * 3


def test_all_steps_at_once() -> None:
    """The pauses before it are no answer."""

    def steps() -> Generator[None, None, int]:
        yield
        yield
        return 7

    assert run(steps()) == 7
