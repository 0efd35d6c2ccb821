"""
How many functions are called for a pod, step by step, beside the count that was last agreed on.

Run as `python -m benchmarks.calls`. With one version of Python the counts are the same on every machine, so what
changes them is the code. A call takes about 50 ns: a few more are the price of readable functions. A step that is
marked with `!` has used up the room above its agreed count: profile it, then repair it or agree on another count here.
What must never grow (requests, decodings, index operations, the cost of more nodes) is asserted by the tests of cost.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import mean
from typing import Final

import uvloop

from benchmarks.decision import PROFILE, WORKLOADS, Contestant, prepared
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from tests.control_plane.objects import pod_manifest
from tests.support.scripted_server import answer, scripted
from tests.support.wired_scheduler import WiredScheduler, names

NODES: Final = 1_000
REPEATS: Final = 40
WARM_UP: Final = 20
ROOM: Final = 0.25
"""Share of the agreed count by which a step may grow unmarked."""
AGREED_OF_DECISIONS: Final[Mapping[str, int]] = {
    "one shape": 366,
    "plain": 466,
    "plain, in MiB": 403,
    "spread by zone": 555,
    "spread by hostname": 548,
    "apart by hostname": 587,
    "near by zone": 590,
    "unschedulable": 267,
}


def calls(step: Callable[[], object]) -> int:
    """Return how many functions a step calls, those written in C included."""
    count = 0

    def see(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


async def sight() -> float:
    """Return the calls from the line of a watch to the queue, for another label of a bound pod."""
    world = WiredScheduler()
    await world.bind(names(REPEATS))
    counted = []
    for name, pod in world.pods.items():
        pod["metadata"]["labels"] = {"changed": name}
        line = world.line("MODIFIED", pod)
        counted.append(calls(partial(world.take, world.parts.pods, line)))
    return mean(counted[1:])  # the first fills caches


async def attempt() -> float:
    """Return the calls from the queue to the assumed pod, for a pod like others before it."""
    world = WiredScheduler()
    loop = world.parts.scheduling_loop
    await world.bind(names(REPEATS))

    def once() -> None:
        queued = loop.queue.pop(loop.clock())
        if queued is None:
            raise SystemExit("the queue is empty")
        try:
            loop.attempts.attempt(queued).send(None)
        except StopIteration:
            return
        raise SystemExit("the attempt waits for something")

    counted = []
    for name in names(8, "q"):
        world.deliver(world.parts.pods, "ADDED", pod_manifest(name, neuron=1))
        counted.append(calls(once))
    return mean(counted)


async def write() -> float:
    """Return the calls from a request to its last byte sent, on a connection that is open."""
    async with scripted(answer(), answer()) as (_, client):
        await client.request("POST", "/x", body=b"{}")
        request = client.request("POST", "/x", body=b"{}")
        counted = calls(partial(request.send, None))
        request.close()
    return counted


def decisions(contestant: Contestant, workload: str) -> float:
    """Return the calls of a decision and its assumption, for pods unlike each other."""
    counted, placed, dice = [], [], random.Random(2)
    for number in range(WARM_UP + REPEATS):
        pending = WORKLOADS[workload](number, dice)

        def once(pending: Pod = pending) -> None:
            decision = schedule_pod(contestant.cluster, pending, PROFILE)
            if isinstance(decision, Decision):
                contestant.place(pending, decision)

        counted.append(calls(once))
        placed.append(pending.uid)
    for uid in placed:
        contestant.cluster.forget(uid)
    return mean(counted[WARM_UP:])


def measured() -> Iterator[tuple[str, float, int]]:
    """Yield each step with its calls and the agreed count."""
    yield "change of a known pod", uvloop.run(sight()), 109
    yield "attempt", uvloop.run(attempt()), 330
    yield "write", uvloop.run(write()), 25
    contestant = prepared(NODES)
    for workload, agreed in AGREED_OF_DECISIONS.items():
        yield f"decision, {workload}", decisions(contestant, workload), agreed


def main() -> None:
    """Measure and print."""
    print(f"{'step':<32}{'calls':>8}{'agreed':>8}{'change':>8}")
    for step, count, agreed in measured():
        mark = " !" if count > agreed * (1 + ROOM) else ""
        print(f"{step:<32}{count:>8.1f}{agreed:>8}{count / agreed - 1:>+8.0%}{mark}")


if __name__ == "__main__":
    main()
