"""
The loop: pop a pod, decide, assume, commit.

The decision and its assumption are one synchronous step, so no event can come in between. What follows, one Binding and
one Event, runs beside the next decisions; a Binding that fails is forgotten and its pod queued again. Refuses to decide
anything itself: that is `scheduling`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import anyio
import anyio.lowlevel
import attrs
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from neuron_scheduler import extension_log, logs
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.binder import BindOutcome, Bound, Fenced, Gone, Refused, Unresolved
from neuron_scheduler.metrics import Metrics
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.allocation import LEADER, annotations_for
from neuron_scheduler.scheduling.decide import Decision, FitError, schedule_pod
from neuron_scheduler.scheduling.events import ClusterEvent
from neuron_scheduler.scheduling.profile import Profile
from neuron_scheduler.scheduling.queue import QueuedPod, SchedulingQueue

log = logs.logger(__name__)

NO_FIT = "Unable to schedule pod; no fit; waiting"
NO_NODES = "Unable to schedule pod; no nodes are registered to the cluster; waiting"

_LONGEST_TURN = 0.002
"""Seconds of decisions in a row after which the event loop gets a turn, so that watches and leases are served."""


class Binder(Protocol):
    """Commits one decision at the API server."""

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome:
        """Send the Binding until its outcome is definite."""


class Herald(Protocol):
    """Tells the pod's owner what became of an attempt: Event and condition."""

    def scheduled(self, pod: Pod, node_name: str) -> None:
        """Tell that the pod is bound."""

    def unschedulable(self, pod: Pod, message: str, *, hopeless: bool) -> None:
        """Tell why no node takes the pod now."""

    def failed(self, pod: Pod, message: str) -> None:
        """Tell that an attempt ended in an error."""

    async def withdraw(self, uid: str) -> None:
        """Let nothing that was said before reach the pod after its Binding."""


@attrs.frozen
class _Commitment:
    """A decision that is assumed and waits to be sent."""

    queued: QueuedPod
    pod: Pod
    annotations: Mapping[str, str]
    decision: Decision
    started: float


@attrs.define(eq=False, kw_only=True)
class Scheduler:
    """
    Schedules the queue's pods while it runs.

    Attributes:
        identity: who holds the Lease, for the fence at the API server; empty without leader election.
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds, for NEURON_ALLOC_TIME.
        may_bind: False once the Lease may be lost; nothing is decided then.
        bind_concurrency: Bindings on their way at once.
    """

    cluster: Cluster
    queue: SchedulingQueue
    profile: Profile
    binder: Binder
    herald: Herald
    metrics: Metrics
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    may_bind: Callable[[], bool]
    identity: str = ""
    bind_concurrency: int = 48
    running: bool = attrs.field(default=False, init=False)
    stopping: bool = attrs.field(default=False, init=False)
    _wake: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _soft_counted: logs.Once = attrs.field(factory=logs.Once, init=False)

    def wake(self) -> None:
        """Let the loop look at the queue again."""
        self._wake.set()

    def stop(self) -> None:
        """Let `run` end once every Binding on its way is resolved."""
        self.stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Schedule until stopped; returns when no Binding is on its way."""
        self.running = True
        send, receive = anyio.create_memory_object_stream[_Commitment](self.bind_concurrency)
        async with anyio.create_task_group() as binders, receive:
            for _ in range(self.bind_concurrency):
                binders.start_soon(self._commit_each, receive.clone())
            async with send:
                await self._schedule_each(send)

    async def _schedule_each(self, send: MemoryObjectSendStream[_Commitment]) -> None:
        turn_ends = self.clock() + _LONGEST_TURN
        while not self.stopping and self.may_bind():
            self._wake = anyio.Event()
            now = self.clock()
            queued = self.queue.pop(now)
            if queued is None:
                await self._idle(now)
                continue
            commitment = self._schedule_one(queued)
            if commitment is not None:
                await send.send(commitment)
            if self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + _LONGEST_TURN

    async def _idle(self, now: float) -> None:
        """Wait for an event, or until a backoff is over."""
        upcoming = self.queue.next_time()
        timeout = math.inf if upcoming is None else max(0.0, upcoming - now)
        with anyio.move_on_after(timeout):
            await self._wake.wait()

    def _schedule_one(self, queued: QueuedPod) -> _Commitment | None:
        """Decide and assume in one step; None if there is nothing to commit."""
        pod, started = queued.pod, self.clock()
        self._count_soft_constraints(pod)
        decision = schedule_pod(self.cluster, pod, self.profile)
        decided = self.clock()
        self.metrics.decided(decided - started)
        if isinstance(decision, FitError):
            self.queue.unschedulable(queued, decision.plugins, decided)
            self.metrics.attempted("unschedulable", decided - started)
            log.info(NO_FIT if decision.nodes else NO_NODES, v=2, pod=pod.key, err=decision.text)
            self.herald.unschedulable(pod, decision.text, hopeless=decision.hopeless)
            return None
        extension_log.filtered(self.cluster, pod, self.profile)  # before the assumption: it shows what was free
        annotations = self._annotations(pod, decision)
        placed = attrs.evolve(pod, node_name=decision.node_name, allocation=annotations)
        self.cluster.assume(placed, decision.placement.cores if decision.placement else 0)
        return _Commitment(queued, pod, annotations, decision, started)

    def _annotations(self, pod: Pod, decision: Decision) -> dict[str, str]:
        """Return what the Binding carries: the allocation, and who is leading."""
        state = self.cluster.node(decision.node_name)
        if decision.placement is None or state is None or state.machine is None:
            return {LEADER: self.identity} if self.identity else {}
        return annotations_for(
            pod=pod,
            machine=state.machine,
            placement=decision.placement,
            node_name=decision.node_name,
            alloc_time=max(self.wall_clock(), state.last_alloc_time + 1),
            leader=self.identity,
        )

    async def _commit_each(self, receive: MemoryObjectReceiveStream[_Commitment]) -> None:
        async with receive:
            async for commitment in receive:
                await self.herald.withdraw(commitment.pod.uid)
                outcome = await self.binder.bind(commitment.pod, commitment.decision.node_name, commitment.annotations)
                self._settle(commitment, outcome)

    def _settle(self, commitment: _Commitment, outcome: BindOutcome) -> None:
        """Draw the consequences of a Binding whose outcome is definite."""
        match outcome:
            case Bound():
                self._bound(commitment)
            case Gone():
                self.queue.remove(commitment.pod.uid)
                self._forget(commitment)
            case Refused(message=message):
                self._forget(commitment)
                self._failed(commitment, message)
            case Fenced():
                self._forget(commitment)
                self.queue.failed(commitment.queued, self.clock())
            case Unresolved():
                log.warning("Binding is left unresolved; its pod stays assumed", pod=commitment.pod.key)

    def _bound(self, commitment: _Commitment) -> None:
        now, queued, decision = self.clock(), commitment.queued, commitment.decision
        self.queue.remove(commitment.pod.uid)
        self.metrics.attempted("scheduled", now - commitment.started)
        first = queued.since if queued.first_active is None else queued.first_active
        self.metrics.scheduled(attempts=queued.attempts, seconds=now - first)
        ids = {}
        if decision.placement is not None and commitment.pod.neuron is not None:
            ids = {f"{commitment.pod.neuron.unit.value}s": ",".join(map(str, decision.placement.ids))}
        log.info(
            "Successfully bound pod to node",
            v=2,
            pod=commitment.pod.key,
            node=decision.node_name,
            evaluatedNodes=decision.evaluated,
            feasibleNodes=decision.feasible,
            **ids,
        )
        extension_log.allocated(self.cluster, commitment.pod, decision)
        self.herald.scheduled(commitment.pod, decision.node_name)

    def _failed(self, commitment: _Commitment, message: str) -> None:
        now = self.clock()
        self.metrics.attempted("error", now - commitment.started)
        log.error("Error scheduling pod; retrying", pod=commitment.pod.key, err=message)
        if commitment.pod.uid in self.queue:  # else it was bound by someone else, or deleted, meanwhile
            self.queue.failed(commitment.queued, now)
            self.herald.failed(commitment.pod, message)

    def _forget(self, commitment: _Commitment) -> None:
        """Free what was assumed; others may be waiting for it."""
        self.cluster.forget(commitment.pod.uid)
        self.queue.note(ClusterEvent.ASSIGNED_POD_GONE)
        self.wake()

    def _count_soft_constraints(self, pod: Pod) -> None:
        if pod.constraints.soft and self._soft_counted(pod.uid):
            self.metrics.ignored("soft")
