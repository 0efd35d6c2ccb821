"""The simulated loop: time, processes and connections."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulation import clock
from tests.simulation.clock import CLOCK
from tests.simulation.loop import SimulatedLoop, StuckError
from tests.simulation.network import Network
from tests.simulation.process import KILLED, Process, current

SERVER = ("10.0.0.1", 6443)


_LEFT: list[object] = []
"""Tasks that had not ended: nothing may close them when they are no longer referenced."""


def simulated(main: Coroutine[Any, Any, Any], network: Network | None = None, *, most_steps: int = 10_000) -> Any:
    """Run a coroutine on a new loop at the time 0, and return its result."""
    clock.begin(1)
    loop = SimulatedLoop(network or Network(seed=1), most_steps=most_steps)
    try:
        return loop.run_until_complete(main)
    finally:
        _LEFT.extend(asyncio.all_tasks(loop))
        loop.close()


def started(process: Process, main: Coroutine[Any, Any, Any]) -> None:
    """Start a task in a process."""
    context = process.context()
    context.run(asyncio.get_running_loop().create_task, main, context=context)


async def ticking(noted: list[float]) -> None:
    """Note the time, once a second, for a minute."""
    for _ in range(60):
        noted.append(round(CLOCK.now, 1))
        await asyncio.sleep(1)


def test_time_passes_when_nothing_else_can_happen() -> None:
    """A sleep of an hour takes an hour of virtual time."""

    async def main() -> float:
        await asyncio.sleep(3600)
        return CLOCK.now

    assert simulated(main()) == pytest.approx(3600, abs=0.001)


def test_a_wait_without_an_end_is_noticed() -> None:
    """A loop in which nothing can happen any more says so."""

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StuckError, match="nothing can happen"):
        simulated(main())


def test_a_turn_without_an_end_is_noticed() -> None:
    """Code that turns for ever at one moment is stopped after so many steps."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(turning)
        await asyncio.get_running_loop().create_future()

    def turning() -> None:
        asyncio.get_running_loop().call_soon(turning)

    with pytest.raises(StuckError, match="no end"):
        simulated(main())


def test_a_stopped_process_does_later_what_it_would_have_done() -> None:
    """A process that is stopped for 10 s runs no step meanwhile, and goes on afterwards."""
    noted: list[float] = []

    async def main() -> None:
        process = Process("p", lambda _process: None)
        started(process, ticking(noted))
        await asyncio.sleep(2.5)
        process.stop(10)
        await asyncio.sleep(12)

    simulated(main())
    assert noted == [0.0, 1.0, 2.0, 12.5, 13.5]


def test_a_killed_process_does_nothing_more() -> None:
    """No step runs after the end, and no `finally` either."""
    done: list[str] = []
    codes: list[int | None] = []

    async def working() -> None:
        try:
            await asyncio.sleep(5)
            done.append("worked")
        finally:
            done.append("cleaned up")

    async def main() -> None:
        process = Process("p", lambda process: codes.append(process.exit_code))
        started(process, working())
        await asyncio.sleep(1)
        assert len(process.tasks) == 1
        process.end(KILLED)
        await asyncio.sleep(10)

    simulated(main())
    assert (done, codes) == ([], [KILLED])


def test_the_wall_clock_belongs_to_a_process() -> None:
    """A process whose clock is wrong reads another time than the world."""

    async def main() -> list[float]:
        process, read = Process("p", lambda _process: None), []
        process.wall_offset = -300.0

        async def reading() -> None:
            assert current() is process
            read.append(CLOCK.time() - clock.START - CLOCK.now)

        started(process, reading())
        await asyncio.sleep(1)
        return [*read, CLOCK.time() - clock.START - CLOCK.now]

    assert simulated(main()) == pytest.approx([-300.0, 0.0], abs=1e-6)
