"""A preemption executor that runs for one node, with a stand-in for the evictor and for the API server's client."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.preemption_executor import PostFilter, PreemptionExecutor
from neuron_scheduler.kube.http.client import Response
from neuron_scheduler.kube.writes.evictor import Eviction, Evictor
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.errors import FencedError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal
from tests.support.patience import PATIENCE
from tests.support.queueing import FIT, new_queue, popped

PROFILE = default_profile("my-scheduler")
BIG = pod("big", devices=16, priority=9)


def half(name: str, first: int, **keywords: object) -> Pod:
    return pod(name, on="n", devices=8, ids=range(first, first + 8), **keywords)  # type: ignore[arg-type]  # as given


def crowd(*namespaces: str) -> list[Pod]:
    """Return a full node: a core for each of 32 pods, in these namespaces by turns."""
    places = [namespaces[number % len(namespaces)] for number in range(32)]
    return [
        pod(f"v{number}", on="n", cores=1, ids=range(number, number + 1), namespace=place)
        for number, place in enumerate(places)
    ]


@attrs.define(eq=False)
class World:
    """A node with both halves in use, a pending pod, and a stand-in for the evictor."""

    cluster: Cluster
    queue: SchedulingQueue = attrs.field(
        default=attrs.Factory(lambda self: new_queue(view=self.cluster.view), takes_self=True)
    )
    refusing: set[str] = attrs.field(factory=set)
    asked: list[str] = attrs.field(factory=list)
    waiting: set[str] = attrs.field(factory=set)
    pausing: set[str] = attrs.field(factory=set)
    pause: float = 5.0
    broken: set[str] = attrs.field(factory=set)
    metrics: Metrics = attrs.field(factory=Metrics)
    now: float = 100.0
    reports: list[tuple[str, str]] = attrs.field(factory=list)
    may_answer: anyio.Event = attrs.field(factory=anyio.Event)

    async def proceed(self, eviction: Eviction) -> float:
        """Answer when it is allowed."""
        victim = eviction.victim
        assert eviction.scheduler_name
        self.asked.append(victim.name)
        if victim.name in self.pausing:
            self.pausing.discard(victim.name)
            return self.pause
        await self.may_answer.wait()
        if victim.name in self.broken:
            raise ValueError("broken")
        eviction.refused = victim.name in self.refusing
        eviction.evicted = not eviction.refused
        return 0.0

    def report_preemption(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        self.reports.append((victim.name, f"{preemptor.name} on {node_name}"))

    def clear_nomination(self, pod: Pod) -> None:
        """Remember which pod lost its nomination."""
        self.reports.append((pod.name, "nomination lost"))

    def give_up(self, uid: str) -> bool:
        """Return whether the pod waits to be bound."""
        return uid in self.waiting

    @property
    def victims(self) -> tuple[float, float]:
        """How many preemptions the metric counts, and how many victims."""
        lines = dict(line.rsplit(" ", 1) for line in self.metrics.exposition()[0].decode().splitlines())
        name = "scheduler_preemption_victims"
        return float(lines[f"{name}_count"]), float(lines[f"{name}_sum"])

    def cordon(self, executor: PreemptionExecutor) -> None:
        """Cordon the node, so that its nominations are given up."""
        self.cluster.put_node(node("n", "trn1.32xlarge", unschedulable=True))
        executor.recheck("n")

    def row(self, name: str) -> NodeInfo:
        """Return a node's row."""
        node_info = self.cluster.node(name)
        assert node_info is not None
        return node_info

    def pending(self, pending: Pod = BIG) -> QueuedPod:
        """Queue and pop a pod."""
        self.queue.add(pending, 0.0)
        return popped(self.queue, 0.0)


@attrs.define(eq=False)
class Requests:
    """
    Stands in for the API server's client: the requests that are sent, as method and name of the pod.

    Attributes:
        meanwhile: called with a request that is on its way; what it raises is its answer.
    """

    meanwhile: Callable[[str], None]
    sent: list[str] = attrs.field(factory=list)

    async def request(self, method: str, path: str, *, permit: Callable[[], bool] | None = None, **_: Any) -> Response:
        """Send what is permitted."""
        request = f"{method} {path.removesuffix('/status').rpartition('/')[2]}"
        if permit is not None and not permit():
            raise FencedError("held back")
        self.sent.append(request)
        await anyio.lowlevel.checkpoint()
        self.meanwhile(request)
        return Response(200, b'{"kind":"Pod","apiVersion":"v1"}')


@asynccontextmanager
async def preempting(*pods: Pod, client: Requests | None = None) -> AsyncIterator[tuple[World, PreemptionExecutor]]:
    """Run a preemption executor for a node with these pods; with the real evictor if there is a client."""
    world = World(cluster_of([node("n", "trn1.32xlarge")], pods))
    real = (
        None
        if client is None
        else Evictor(
            client=cast(Any, client),
            may_bind=lambda: True,
            timeout=4.0,
            on_retry=lambda _write: None,
            random=lambda: 0.0,
        )
    )
    preemption_executor = PreemptionExecutor(
        cluster=world.cluster,
        queue=world.queue,
        evictor=real or cast(Any, world),
        reporter=cast(Any, world),
        metrics=world.metrics,
        pod_list=PodList(),
        fence=cast(Any, world),
        clock=lambda: world.now,
        errors=UnexpectedErrors(world.metrics.count_unexpected_error),
    )
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            await tasks.start(preemption_executor.run)
            yield world, preemption_executor
            world.may_answer.set()
            preemption_executor.stop()


async def post_filter(world: World, preemption_executor: PreemptionExecutor, queued: QueuedPod) -> PostFilter:
    """Let a refused pod preempt, and put it back."""
    after = await preemption_executor.post_filter(queued, refusal(world.cluster, queued.pod), PROFILE)
    has_nomination = world.cluster.nomination(queued.pod.uid) is not None
    world.queue.put_back_refused(queued, FIT, 0.0, is_preempting=after.held, has_nomination=has_nomination)
    return after
