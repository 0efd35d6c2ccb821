"""Questions take turns, wait for a limited time, and let other tasks run between their steps."""

import asyncio
from collections.abc import Iterator

import anyio
import pytest

from neuron_scheduler.questions.lane import SAVED, SHARE, ClientGoneError, CrowdedError, Lane, Turn


def here() -> bool:
    """The client waits."""
    return False


async def test_some_at_a_time() -> None:
    """Further questions wait; when too many wait, one more is refused."""
    lane, release, inside = Lane(at_once=2, waiting=1), anyio.Event(), list[int]()

    async def ask(number: int) -> None:
        async with lane.turn(here):
            inside.append(number)
            await release.wait()

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(ask, number)
        await anyio.wait_all_tasks_blocked()
        assert inside == [0, 1]
        with pytest.raises(CrowdedError):
            async with lane.turn(here):
                pass
        release.set()
    assert inside == [0, 1, 2]
    async with lane.turn(here):
        pass


async def test_a_question_has_its_time() -> None:
    """The time includes the wait for a turn, and a question that is given up leaves its turn to the next."""
    lane = Lane(at_once=1, seconds=0.01)
    with pytest.raises(TimeoutError):
        async with lane.turn(here):
            await anyio.sleep_forever()
    occupied = Lane(at_once=1, seconds=0.01)
    occupied._turns.acquire_nowait()
    with pytest.raises(TimeoutError):
        async with occupied.turn(here):
            raise AssertionError("there was no turn")
    occupied._turns.release()
    assert (lane._inside, lane._turns.value, occupied._inside, occupied._turns.value) == (0, 1, 0, 1)


async def test_nobody_waits_for_the_answer() -> None:
    """A question whose client has gone does not begin, and does not go on."""
    with pytest.raises(ClientGoneError):
        async with Lane().turn(lambda: True):
            raise AssertionError("it began")
    steps = iter([None, None, 7])
    with pytest.raises(ClientGoneError):
        await Turn(Lane(), lambda: True).last(steps)
    assert [*steps] == [None, 7]


async def test_other_tasks_run_between_steps() -> None:
    """Each step is followed by everything else that is ready."""
    seen: list[str] = []

    def steps() -> Iterator[str | None]:
        for number in range(3):
            seen.append(f"step {number}")
            asyncio.get_running_loop().call_soon(seen.append, "another")
            yield None
        yield "answer"

    assert await Turn(Lane(), here).last(steps()) == "answer"
    assert seen == ["step 0", "another", "step 1", "another", "step 2", "another"]


async def test_steps_without_an_answer() -> None:
    """That is an error of ours, and no answer."""
    with pytest.raises(LookupError):
        await Turn(Lane(), here).last(iter([None]))


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

    def steps() -> Iterator[str | None]:
        nonlocal used
        for seconds in (0.2, 0.3):
            used += seconds
            yield None
        used += 0.001
        yield "answer"

    lane = Lane(cpu=lambda: used, clock=lambda: 0.0)
    assert await Turn(lane, here).last(steps()) == "answer"
    assert lane.pause() == pytest.approx((0.2 + 0.3 + 0.001 - SAVED) / SHARE)


@pytest.mark.parametrize(("elapsed", "counted"), [(0.02, 0.02), (0.005, 0.005), (60.0, 0.025)])
async def test_a_process_with_less_than_a_cpu(elapsed: float, counted: float) -> None:
    """What counts is how long scheduling had to wait, but a process that was stopped is not charged for that."""
    now = used = 0.0

    def steps() -> Iterator[str | None]:
        nonlocal now, used
        now, used = now + elapsed, used + 0.005
        yield "answer"

    lane = Lane(cpu=lambda: used, clock=lambda: now)
    lane.spend(SAVED)
    assert await Turn(lane, here).last(steps()) == "answer"
    assert lane.pause() == pytest.approx(counted / SHARE - elapsed if counted == elapsed else 0.0)
