"""
What is done to a leader in a round: a crash, a freeze, a clean stop, a rolling update.

Each returns the round's figures. The crash and the freeze come right after a renewal, when the Lease has its whole
duration before it.
"""

import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio

from benchmarks.takeover.figures import LeaseTimes, Round
from benchmarks.takeover.stage import Replica, Stage

RATE: Final = 150.0  # pods a second that arrive around a crash: fewer than a scheduler binds
UPDATE_RATE: Final = 60.0  # during a rolling update, which takes as long as processes take to start
BEFORE: Final = 0.2  # the share of the pods that are bound before the deed
AT_ONCE: Final = 0.1  # the same, where all pods wait


async def crash(stage: Stage, times: LeaseTimes, _number: int) -> Round:
    """Kill the leader while pods arrive."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.paced, RATE)
        await stage.bound(int(stage.pods * BEFORE))
        await stage.renewal()
        at = time.perf_counter()
        stage.leader.send(signal.SIGKILL)
    return await _finished(stage, times, "crash", at)


async def freeze(stage: Stage, times: LeaseTimes, _number: int) -> Round:
    """Freeze the leader while pods arrive; it wakes up when they are bound, and must end."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.paced, RATE)
        await stage.bound(int(stage.pods * BEFORE))
        await stage.renewal()
        at = time.perf_counter()
        stage.leader.send(signal.SIGSTOP)
        await stage.succeeded()
        stage.leader.send(signal.SIGCONT)
        code = await stage.leader.ended()
        wrong = [] if code == 1 else [f"the frozen leader ended with {code} when it woke up"]
    return await _finished(stage, times, "freeze", at, wrong)


async def clean_stop(stage: Stage, times: LeaseTimes, number: int) -> Round:
    """Stop the leader: while all pods wait, in every second round while they arrive."""
    async with anyio.create_task_group() as tasks:
        if number % 2:
            tasks.start_soon(stage.paced, RATE)
        else:
            tasks.start_soon(stage.at_once)
        await stage.bound(int(stage.pods * (BEFORE if number % 2 else AT_ONCE)))
        at = time.perf_counter()
        stage.leader.send(signal.SIGTERM)
        wrong = await _ended_well(stage.leader)
    return await _finished(stage, times, "clean stop", at, wrong)


async def rolling_update(stage: Stage, times: LeaseTimes, number: int) -> Round:
    """
    Replace both replicas, as a Deployment of two does by default: one more, and never one less.

    The Deployment knows no leader: it is the first to be stopped, in every second round the last.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stage.paced, UPDATE_RATE)
        await stage.bound(int(stage.pods * AT_ONCE))
        first, last = (stage.standby, stage.leader) if number % 2 else (stage.leader, stage.standby)
        await stage.replicas.start()
        first.send(signal.SIGTERM)
        await stage.replicas.start()
        last.send(signal.SIGTERM)
        updated = time.perf_counter()
        wrong = [*await _ended_well(first), *await _ended_well(last)]
        await stage.bound(stage.pods)
    if updated > max(stage.created.values()):
        wrong.append("the update took longer than the pods arrived: the gap is not that of an update")
    return Round(
        deed="rolling update",
        times=times,
        takeover=stage.gap(),
        pods=stage.pods,
        bound=stage.history.total,
        wrong=(*wrong, *stage.history.wrong),
    )


DEEDS: Final[dict[str, Callable[[Stage, LeaseTimes, int], Awaitable[Round]]]] = {
    "crash": crash,
    "freeze": freeze,
    "clean stop": clean_stop,
    "rolling update": rolling_update,
}


async def _finished(stage: Stage, times: LeaseTimes, deed: str, at: float, wrong: Sequence[str] = ()) -> Round:
    """Wait for the successor and for all pods, and return the figures."""
    succeeded = await stage.succeeded()
    await stage.bound(stage.pods)
    return Round(
        deed=deed,
        times=times,
        takeover=succeeded - at,
        pods=stage.pods,
        bound=stage.history.total,
        wrong=(*wrong, *stage.history.wrong, *stage.late(succeeded)),
    )


async def _ended_well(replica: Replica) -> list[str]:
    """Return what is wrong with the end of a replica that was stopped."""
    code = await replica.ended()
    return [] if code == 0 else [f"{replica.name} ended with {code} after SIGTERM"]
