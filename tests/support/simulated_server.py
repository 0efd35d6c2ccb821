"""
The whole path from a watch event to the decision, around a simulated API server.

Object store, handlers, queue, hints, the loop and preemption are the real ones. The clock is virtual, and never
reaches the time after which all pods are tried again.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.kube.objects.base import Decoded, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.selecting_kinds import NAMESPACES
from neuron_scheduler.kube.objects.storage import CLAIMS
from neuron_scheduler.kube.watch.object_store import ObjectStore
from neuron_scheduler.kube.writes.binder import Binding, BindOutcome, Bound, Fenced, Refused
from neuron_scheduler.kube.writes.evictor import Eviction
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.nomination import NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import Storage
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.loops import loop_of, watches_of
from tests.support.queueing import new_queue

BACKOFF = 11.0
"""Seconds: longer than any backoff."""
TURNS = 30
"""Turns of the event loop in which all that can happen happens."""
PROFILE = default_profile("my-scheduler")


@attrs.define(eq=False)
class World:
    """The scheduler's parts around a simulated API server with random answers."""

    dice: Random
    time: float = 0.0
    cluster: Cluster = attrs.field(factory=Cluster)
    there: dict[str, Pod] = attrs.field(factory=dict)
    nodes: dict[str, Node] = attrs.field(factory=dict)
    storage: dict[str, Storage] = attrs.field(factory=dict)
    queue: SchedulingQueue = attrs.field(init=False)
    scheduler: SchedulingLoop = attrs.field(init=False)
    sights: dict[str, ObjectStore[Any]] = attrs.field(init=False)
    uids: int = 0

    def __attrs_post_init__(self) -> None:
        self.queue = new_queue(max_unschedulable=1e18, view=self.cluster.view)
        fake: Any = self
        pod_list = PodList()
        self.scheduler = loop_of(
            cluster=self.cluster, queue=self.queue, profiles={"my-scheduler": PROFILE}, parts=fake, clock=self.clock,
            pod_list=pod_list,
            executor=lambda fence: PreemptionExecutor(
                cluster=self.cluster, queue=self.queue, evictor=fake, reporter=fake, metrics=Metrics(),
                clock=self.clock, pod_list=pod_list, fence=fence,
                errors=UnexpectedErrors(Metrics().count_unexpected_error),
            ),
        )  # fmt: skip
        watches = watches_of(
            self.cluster, self.queue, self.scheduler.binding_cycle.fence, self.scheduler.preemption_executor,
            clock=self.clock, pod_list=pod_list,
        )  # fmt: skip
        kinds: dict[str, Resource[Any]] = {"pod": PODS, "node": NODES, "namespace": NAMESPACES, "storage": CLAIMS}
        handlers = {kind: watches.of(resource) for kind, resource in kinds.items()}
        same: Mapping[str, Callable[[Any, Any], bool]] = {"pod": PODS.is_same, "node": NODES.is_same}
        self.sights = {
            kind: ObjectStore(
                handler=handler, kind=kind, is_same=same.get(kind, lambda old, new: old == new), on_failure=lambda: None
            )
            for kind, handler in handlers.items()
        }

    # What the parts call

    def clock(self) -> float:
        """Return the time; each call takes as long as a turn of the loop may take."""
        self.time += 0.003
        return self.time

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome:
        """Take a Binding, which the watch then shows, or refuse it."""
        await anyio.lowlevel.checkpoint()
        known = self.there.get(pod.name)
        if self.dice.random() < 0.05:
            return Fenced()
        if self.dice.random() < 0.2 or known is None or known.uid != pod.uid or node_name not in self.nodes:
            return Refused(status=422, message="by chance")
        self.see_pod(attrs.evolve(known, node_name=node_name, allocation=annotations, nominated_node_name=""))
        return Bound()

    async def proceed(self, eviction: Eviction) -> float:
        """Mark a pod as terminating, or refuse to."""
        victim = eviction.victim
        assert eviction.scheduler_name
        for _ in range(self.dice.randint(1, 6)):
            await anyio.lowlevel.checkpoint()
        known = self.there.get(victim.name)
        eviction.evicted = known is None or known.uid != victim.uid or self.dice.random() >= 0.2
        if eviction.evicted and known is not None and known.uid == victim.uid:
            self.see_pod(attrs.evolve(known, terminating=True))
        return 0.0

    async def prepare(self, pod: Pod, plan: VolumePlan) -> BindOutcome | None:
        """Never happens."""

    def report_scheduled(self, pod: Pod, node_name: str, placement: Placement | None) -> None:
        """Do nothing."""

    def report_unschedulable(
        self, pod: Pod, message: str, *, new_node_cannot_help: bool, nomination: NominationChange
    ) -> None:
        """Do nothing."""

    def report_failure(self, pod: Pod, message: str) -> None:
        """Do nothing."""

    def withdraw(self, uid: str) -> None:
        """Withdraw nothing."""

    def report_held(self, pod: Pod, node_name: str, behind: Pod) -> None:
        """Do nothing."""

    def report_doubt(self, pod: Pod, message: str) -> None:
        """Never happens."""

    async def try_again(self, binding: Binding, lost: BindOutcome | None = None) -> BindOutcome:
        raise AssertionError(binding, lost)

    def report_preemption(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        """Do nothing."""

    def clear_nomination(self, pod: Pod) -> None:
        """Do nothing."""

    # What the watch shows

    def see_pod(self, seen: Pod) -> None:
        """Show a pod's new state."""
        self.there[seen.name] = seen
        self.sights["pod"].put(Decoded(seen.key, seen.uid, "", seen))

    def lose_pod(self, name: str) -> None:
        self.sights["pod"].remove(self.there.pop(name).key)

    def see_node(self, seen: Node) -> None:
        """Show a node's new state."""
        self.nodes[seen.name] = seen
        self.sights["node"].put(Decoded(seen.name, seen.uid, "", seen))

    def lose_node(self, name: str) -> None:
        """Show that a node is gone."""
        del self.nodes[name]
        self.sights["node"].remove(name)

    def see_storage(self, key: str, seen: Storage | None) -> None:
        """Show a storage object's new state, or that it is gone."""
        if seen is not None:
            self.storage[key] = seen
            self.sights["storage"].put(Decoded(key, seen.uid, "", seen))
        elif self.storage.pop(key, None) is not None:
            self.sights["storage"].remove(key)

    def new_uid(self) -> str:
        """Return a new uid."""
        self.uids += 1
        return f"uid-{self.uids}"

    def admit_some(self) -> None:
        """Let kubelets admit most of the pods that are bound to their nodes."""
        for seen in [pod for pod in self.there.values() if pod.node_name and not pod.admitted]:
            if self.dice.random() < 0.7:
                self.see_pod(attrs.evolve(seen, admitted=True))

    # What must hold

    async def settle(self) -> None:
        """Run until the queue is at rest, after all backoffs."""
        for _ in range(40):
            self.time += BACKOFF
            self.admit_some()
            list(self.scheduler.binding_cycle.fence.expire())
            self.scheduler.wake_up.set()
            for _ in range(TURNS):
                await anyio.lowlevel.checkpoint()
            if not any(self.queue.count(place) for place in (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT)):
                return
        raise AssertionError("the queue never comes to rest")

    def refusing(self, queued: QueuedPod) -> list[str]:
        """Return the plugins that refused a pod."""
        line = self.queue._unschedulable.line_of(queued)
        assert line is not None
        return sorted(line.kind.plugins)

    def sleepers(self) -> list[str]:
        """Return the pods that would fit and are not tried."""
        sleepers = []
        for queued in [waiting for waiting in self.queue._pods.values() if waiting.place is Place.UNSCHEDULABLE]:
            decision = schedule_pod(self.cluster, queued.pod, PROFILE)
            if isinstance(decision, Decision):
                sleepers.append(f"{queued.pod.name}, refused by {self.refusing(queued)}, fits {decision.node_name}")
        return sleepers


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.scheduler.run)
        yield
        world.scheduler.stop()
