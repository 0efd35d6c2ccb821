"""
How long the answers to questions take in an event loop, and the longest time for which they keep other tasks waiting.

Run as `python -m benchmarks.questions [--nodes 5000] [--pods 15000] [--waiting 1000]`. A task that does nothing else
notes how long each turn of the event loop takes beside it. Prints, for each question, milliseconds of CPU in all and in
the longest turn, the number of turns, and the size of the answer. It is asked twice, and the second time counts: the
indexes are those of a running process then.
"""

import argparse
import asyncio
import gc
import time
from typing import Final, cast

import anyio
import anyio.lowlevel
import attrs

from benchmarks.decision import PROFILE, pod
from benchmarks.why import cluster_of
from neuron_scheduler.app import _WHILE_SCHEDULING
from neuron_scheduler.kube.reviews import User, UserReviews
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.serving.asked import Asked, DecisionRing, ServedProfiles
from neuron_scheduler.serving.questions import question_pages
from tests.support.web_requests import answer, body_of, request

QUESTIONS: Final = (
    "/v1/why?pod=default/waits-0",
    "/v1/why?pod=default/waits-0&node=n0",
    "/v1/fit?devices=16&replicas=4",
    "/v1/fit?devices=4",
    "/v1/fleet",
    "/v1/waiting",
)


class Reviews:
    """An API server that lets everybody do everything, or nobody see names."""

    def __init__(self, *, names: bool) -> None:
        """Let readers see names, or not."""
        self._names = names

    async def user_of(self, token: str) -> User:
        """Return a user."""
        return User(username=token)

    async def may_get(self, _user: User, _path: str) -> bool:
        """Return True."""
        return True

    async def may_get_pods(self, _user: User, _namespace: str, name: str = "") -> bool:
        """Return whether names are shown; a single pod always is."""
        return self._names or bool(name)


@attrs.frozen
class Cost:
    """What an answer took: milliseconds of CPU, turns of the event loop, and kilobytes."""

    total: float
    longest: float
    turns: int
    size: float


def asked(nodes: int, bound: int, waiting: int) -> Asked:
    """Return what questions are answered from: a fleet with pods, and pods that wait for more than there is."""
    cluster, queue = cluster_of(nodes, bound), SchedulingQueue()
    cluster.namespaces.put(Namespace(uid="default", name="default"))
    pods: dict[str, Pod] = {}
    for number in range(waiting):
        waits = attrs.evolve(pod(-1 - number, {NEURON_DEVICE: 32}), name=f"waits-{number}", uid=f"waits-{number}")
        pods[f"{waits.namespace}/{waits.name}"] = waits
        queue.add(waits, 0.0)
    return Asked(
        cluster=cluster,
        queue=queue,
        pod_of=pods.get,
        budgets=lambda: (),
        profiles=ServedProfiles({PROFILE.scheduler_name: PROFILE}, PROFILE),
        decisions=DecisionRing(now=time.time),
        unsynced=lambda: None,
        leads=lambda: True,
        clock=time.monotonic,
        now=time.time,
        capacity_request_of=lambda _: None,
    )


async def cost_of(of: Asked, target: str, *, names: bool, gzip: bool) -> Cost:
    """Return what a new answer costs."""
    reviews = cast(UserReviews, Reviews(names=names))
    page = question_pages(of, reviews, public=False)[target.partition("?")[0]]
    asking = request(target, {"Authorization": "Bearer reader"} | ({"Accept-Encoding": "gzip"} if gzip else {}))
    turns: list[float] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, turns)
        await anyio.lowlevel.checkpoint()
        turns.clear()
        reply = await answer(page, asking)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    body = await body_of(reply)
    if reply.status != 200:
        raise RuntimeError(f"{target}: {reply.status} {body.decode()}")
    return Cost(1e3 * sum(turns), 1e3 * max(turns), len(turns), len(body) / 1e3)


async def _watch(turns: list[float]) -> None:
    """Note the CPU time of every turn of the event loop."""
    while True:
        started = time.thread_time()
        await anyio.lowlevel.checkpoint()
        turns.append(time.thread_time() - started)


async def measure(of: Asked) -> None:
    """Print a line for each question and reader."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_WHILE_SCHEDULING)
    print(f"{'':42}{'all':>9}{'longest':>9}{'turns':>7}{'kB':>8}")
    for target in QUESTIONS:
        for names, gzip in ((True, False), (False, False), (True, True)):
            await cost_of(of, target, names=names, gzip=gzip)
            cost = await cost_of(of, target, names=names, gzip=gzip)
            how = ("" if names else " no names") + (" gzip" if gzip else "")
            print(f"{target + how:42}{cost.total:9.1f}{cost.longest:9.1f}{cost.turns:7}{cost.size:8.0f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=15000)
    parser.add_argument("--waiting", type=int, default=1000)
    arguments = parser.parse_args()
    asyncio.run(measure(asked(arguments.nodes, arguments.pods, arguments.waiting)))


if __name__ == "__main__":
    main()
