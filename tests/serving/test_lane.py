"""Questions take turns, wait for a limited time, and let other tasks run between their steps."""

import asyncio
from collections.abc import Generator

import anyio
import pytest

from neuron_scheduler.serving.lane import SAVED, SHARE, CrowdedError, Lane, Turn


async def test_some_at_a_time() -> None:
    """Further questions wait; when too many wait, one more is refused."""
    lane, release, inside = Lane(at_once=2, waiting=1), anyio.Event(), list[int]()

    async def ask(number: int) -> None:
        async with lane.turn():
            inside.append(number)
            await release.wait()

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(ask, number)
        await anyio.wait_all_tasks_blocked()
        assert inside == [0, 1]
        with pytest.raises(CrowdedError):
            async with lane.turn():
                pass
        release.set()
    assert inside == [0, 1, 2]
    async with lane.turn():
        pass


async def test_a_question_has_its_time() -> None:
    """The time includes the wait for a turn, and a question that is given up leaves its turn to the next."""
    lane = Lane(at_once=1, seconds=0.01)
    with pytest.raises(TimeoutError):
        async with lane.turn():
            await anyio.sleep_forever()
    occupied = Lane(at_once=1, seconds=0.01)
    occupied._turns.acquire_nowait()
    with pytest.raises(TimeoutError):
        async with occupied.turn():
            raise AssertionError("there was no turn")
    occupied._turns.release()
    assert (lane._inside, lane._turns.value, occupied._inside, occupied._turns.value) == (0, 1, 0, 1)


async def test_other_tasks_run_between_steps() -> None:
    """Each step is followed by everything else that is ready."""
    seen: list[str] = []

    def steps() -> Generator[None, None, str]:
        for number in range(3):
            seen.append(f"step {number}")
            asyncio.get_running_loop().call_soon(seen.append, "another")
            yield
        return "answer"

    assert await Turn(Lane()).run(steps()) == "answer"
    assert seen == ["step 0", "another", "step 1", "another", "step 2", "another"]


def test_a_share() -> None:
    """A few questions are answered at once; when many have used up what was saved, each step waits for its share."""
    now = 100.0
    lane = Lane(clock=lambda: now)
    lane.spend(SAVED)
    assert lane.pause() == 0.0
    lane.spend(0.003)
    assert lane.pause() == pytest.approx(0.003 / SHARE)
    now += 0.003 / SHARE
    assert lane.pause() == pytest.approx(0.0)
    now += 1000
    lane.pause()
    lane.spend(SAVED)
    assert lane.pause() == pytest.approx(0.0)


async def test_steps_are_charged() -> None:
    """Each step counts with the CPU time that it took, also the last one."""
    used = 0.0

    def steps() -> Generator[None, None, str]:
        nonlocal used
        for seconds in (0.2, 0.3):
            used += seconds
            yield
        used += 0.001
        return "answer"

    lane = Lane(cpu=lambda: used, clock=lambda: 0.0)
    assert await Turn(lane).run(steps()) == "answer"
    assert lane.pause() == pytest.approx((0.2 + 0.3 + 0.001 - SAVED) / SHARE)


@pytest.mark.parametrize(("elapsed", "counted"), [(0.02, 0.02), (0.005, 0.005), (60.0, 0.025)])
async def test_a_process_with_less_than_a_cpu(elapsed: float, counted: float) -> None:
    """What counts is how long scheduling had to wait, but a process that was stopped is not charged for that."""
    now = used = 0.0

    def steps() -> Generator[None, None, str]:
        nonlocal now, used
        now, used = now + elapsed, used + 0.005
        yield from ()
        return "answer"

    lane = Lane(cpu=lambda: used, clock=lambda: now)
    lane.spend(SAVED)
    assert await Turn(lane).run(steps()) == "answer"
    assert lane.pause() == pytest.approx(counted / SHARE - elapsed if counted == elapsed else 0.0)
