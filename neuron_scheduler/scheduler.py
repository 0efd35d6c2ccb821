"""
The loop: pop a pod, decide, assume, commit.

The decision and its assumption are one synchronous step, so no event can come in between. What follows, one Binding and
one Event, runs beside the next decisions; a Binding that fails is forgotten and its pod queued again. Refuses to decide
anything itself: that is `scheduling`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import anyio
import anyio.lowlevel
import attrs
from anyio.abc import TaskGroup, TaskStatus

from neuron_scheduler import extension_log, logs
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.binder import BindOutcome, Bound, Fenced, Gone, Refused, Unresolved
from neuron_scheduler.kube.worklist import Worklist
from neuron_scheduler.metrics import Metrics
from neuron_scheduler.model.pod import Pod, placed
from neuron_scheduler.neuron.allocation import LEADER, annotations_for
from neuron_scheduler.preemptor import PostFilter
from neuron_scheduler.scheduling.decide import Decision, FitError, schedule_pod
from neuron_scheduler.scheduling.events import ClusterEvent
from neuron_scheduler.scheduling.hints import Change
from neuron_scheduler.scheduling.profile import Profile
from neuron_scheduler.scheduling.queue import SchedulingQueue
from neuron_scheduler.scheduling.queued_pod import QueuedPod
from neuron_scheduler.scheduling.rehearsal import TYPICAL, Rehearsal
from neuron_scheduler.scheduling.storage_events import taken_back
from neuron_scheduler.scheduling.volume_plan import VolumePlan
from neuron_scheduler.side_lane import SideLane

log = logs.logger(__name__)

NO_FIT = "Unable to schedule pod; no fit; waiting"
NO_NODES = "Unable to schedule pod; no nodes are registered to the cluster; waiting"

_LONGEST_TURN = 0.002
"""Seconds of decisions in a row after which the event loop gets a turn, so that watches are served."""
_LONGEST_IDLE = 5.0
"""Seconds after which the loop looks at the queue again although nothing woke it: then it is known to be alive."""
_PAUSE = 0.1
"""Seconds between two looks at whether a Binding may be started."""


class Binder(Protocol):
    """Commits one decision at the API server."""

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome:
        """Send the Binding until its outcome is definite."""


class Herald(Protocol):
    """Tells the pod's owner what became of an attempt: Event and condition."""

    def scheduled(self, pod: Pod, node_name: str) -> None:
        """Tell that the pod is bound."""

    def unschedulable(self, pod: Pod, message: str, *, hopeless: bool, nominated: str | None) -> None:
        """Tell why no node takes the pod now, and which one was promised to it."""

    def failed(self, pod: Pod, message: str) -> None:
        """Tell that an attempt ended in an error."""

    async def withdraw(self, uid: str) -> None:
        """Let nothing that was said before reach the pod after its Binding."""


class Preemptor(Protocol):
    """Asks pods to leave for one that fits nowhere."""

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Carry out what is decided, until stopped."""

    def stop(self) -> None:
        """Let `run` end once all who are to leave have been asked."""

    def adopt(self, queued: QueuedPod, profile: Profile) -> None:
        """Take over what the pod's status says it was promised."""

    def recheck(self, node_name: str) -> None:
        """Take back what can no longer be kept of the promises on a node."""

    async def post_filter(self, queued: QueuedPod, refused: FitError, profile: Profile) -> PostFilter:
        """Look for pods to ask to leave, and begin to."""


class VolumeBinder(Protocol):
    """Binds a pod's volumes before the pod."""

    def reserve(self, pod: Pod, node_name: str) -> VolumePlan | None:
        """Assume what the pod's volumes need on the node; None if they need nothing."""

    def release(self, plan: VolumePlan) -> None:
        """Take back what was assumed."""

    async def prepare(self, pod: Pod, plan: VolumePlan) -> BindOutcome | None:
        """Carry out the plan and wait; None if the pod can be bound now."""


@attrs.frozen
class _Commitment:
    """A decision that is assumed and waits to be sent."""

    queued: QueuedPod
    pod: Pod
    annotations: Mapping[str, str]
    decision: Decision
    started: float
    plan: VolumePlan | None = None


_REHEARSED = 1024  # pods, most of which resemble each other


@attrs.define(eq=False, kw_only=True)
class Scheduler:
    """
    Schedules the queue's pods while it runs.

    Attributes:
        profiles: the plugins, by the scheduler name of the pods they serve.
        identity: who holds the Lease, for the fence at the API server; empty without leader election.
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds, for NEURON_ALLOC_TIME.
        may_bind: False while the Lease may be lost; nothing is decided then.
        bind_concurrency: Bindings on their way at once.
        looked_at: when the loop last looked at the queue, on `clock`; None before it runs.
    """

    cluster: Cluster
    queue: SchedulingQueue
    profiles: Mapping[str, Profile]
    binder: Binder
    volumes: VolumeBinder
    preemptor: Preemptor
    herald: Herald
    metrics: Metrics
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    may_bind: Callable[[], bool]
    identity: str = ""
    bind_concurrency: int = 48
    looked_at: float | None = attrs.field(default=None, init=False)
    stopping: bool = attrs.field(default=False, init=False)
    _wake: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _rehearsal: Rehearsal = attrs.field(factory=Rehearsal, init=False)
    _aside: SideLane = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: SideLane(
                cluster=self.cluster,
                queue=self.queue,
                profiles=self.profiles,
                rehearsal=self._rehearsal,
                clock=self.clock,
                wake=self.wake,
            ),
            takes_self=True,
        ),
    )

    def wake(self) -> None:
        """Let the loop look at the queue again."""
        self._wake.set()

    def stop(self) -> None:
        """Let `run` end once every Binding on its way is resolved."""
        self.stopping = True
        self._wake.set()

    async def rehearse(self) -> None:
        """Prepare the cluster for pods like those that wait already, and for those that may come."""
        typical = [attrs.evolve(TYPICAL, scheduler_name=name) for name in self.profiles]
        for pod in (*typical, *self.queue.first(_REHEARSED)):
            for _ in self._rehearsal.of(self.cluster, pod, self.profiles[pod.scheduler_name]):
                await anyio.lowlevel.checkpoint()

    async def run(self) -> None:
        """Schedule until stopped; returns when no Binding is on its way."""
        self.looked_at = self.clock()
        decided: Worklist[_Commitment] = Worklist(self.bind_concurrency)
        async with anyio.create_task_group() as binders:
            for _ in range(self.bind_concurrency):
                binders.start_soon(self._commit_each, decided)
            await binders.start(self.preemptor.run)
            async with anyio.create_task_group() as preparing:
                await self._schedule_each(decided, preparing)
                preparing.cancel_scope.cancel()  # pods that wait for their volumes are left to whoever comes next
            decided.close()
            self.preemptor.stop()

    async def _schedule_each(self, decided: Worklist[_Commitment], preparing: TaskGroup) -> None:
        turn_ends = self.clock() + _LONGEST_TURN
        while not self.stopping:
            if not self.may_bind():
                await anyio.sleep(_PAUSE)  # a renewal that is late succeeds, or the Lease is lost and the process ends
                continue
            now = self.looked_at = self.clock()
            queued = self._aside.next() or self.queue.pop(now)
            if queued is None:
                await self._idle(now)
                continue
            commitment = None
            if self._aside.takes(queued):
                preparing.start_soon(self._aside.prepare, queued)
            else:
                commitment = await self._schedule_one(queued)
            if commitment is not None and commitment.plan is not None:
                preparing.start_soon(self._prepare, commitment, commitment.plan, decided)
            elif commitment is not None:
                await decided.give(commitment)
            if self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + _LONGEST_TURN

    async def _idle(self, now: float) -> None:
        """Wait for an event, or until a backoff is over; between the look at the queue and this nothing can happen."""
        self._wake = anyio.Event()
        upcoming = self.queue.next_time()
        timeout = _LONGEST_IDLE if upcoming is None else max(0.0, upcoming - now)
        with anyio.move_on_after(min(timeout, _LONGEST_IDLE)):
            await self._wake.wait()

    async def _schedule_one(self, queued: QueuedPod) -> _Commitment | None:
        """Decide and assume in one step; None if there is nothing to commit. Waits only where no node was found."""
        profile = self.profiles[queued.pod.scheduler_name]
        if not await self._rehearsed(queued, profile):
            return None
        pod, started = queued.pod, self.clock()
        self.preemptor.adopt(queued, profile)
        decision = schedule_pod(self.cluster, pod, profile)
        decided = self.clock()
        self.metrics.decided(decided - started)
        if isinstance(decision, FitError):
            await self._refused(queued, decision, profile, started)
            return None
        extension_log.filtered(self.cluster, pod, profile)  # before the assumption: it shows what was free
        allocation = self._allocation(pod, decision)
        promised = self.cluster.nomination(pod.uid)
        assumed = placed(pod, decision.node_name, allocation)
        self.cluster.assume(assumed, decision.placement.cores if decision.placement else 0)
        self.queue.note(ClusterEvent.ASSIGNED_POD_ADDED, assumed)
        self.preemptor.recheck(decision.node_name)
        if promised is not None:
            self._note_freed(pod, promised[0])  # it may have taken other space than that which was kept for it
        plan = self.volumes.reserve(pod, decision.node_name)
        leader = {LEADER: self.identity} if self.identity else {}
        return _Commitment(queued, pod, {**allocation, **leader}, decision, started, plan)

    async def _rehearsed(self, queued: QueuedPod, profile: Profile) -> bool:
        """Prepare the cluster for a pod that is the first of its sort; False if it is gone when that is done."""
        uid, waited = queued.pod.uid, False
        for _ in self._rehearsal.of(self.cluster, queued.pod, profile):
            waited = True
            await anyio.lowlevel.checkpoint()
        return not waited or uid in self.queue

    async def _refused(self, queued: QueuedPod, refused: FitError, profile: Profile, started: float) -> None:
        """Ask others to leave if that helps, tell the pod's owner, and put the pod back."""
        after = PostFilter()
        if refused.nodes:
            after = await self.preemptor.post_filter(queued, refused, profile)
            refused = attrs.evolve(refused, preemption=after.text)
        pod, now = queued.pod, self.clock()
        if pod.uid not in self.queue:
            return  # gone, or bound by somebody else, in the meantime
        promised = self.cluster.nomination(pod.uid) is not None
        self.queue.unschedulable(queued, refused.plugins, now, held=after.held, promised=promised)
        self.metrics.attempted("unschedulable", pod.scheduler_name, now - started)
        log.info(NO_FIT if refused.nodes else NO_NODES, v=2, pod=pod.key, err=refused.text)
        self.herald.unschedulable(pod, refused.text, hopeless=refused.hopeless, nominated=after.nominated)

    def _allocation(self, pod: Pod, decision: Decision) -> Mapping[str, str]:
        """Return the annotations that tell what the pod is given."""
        state = self.cluster.node(decision.node_name)
        if decision.placement is None or state is None or state.machine is None:
            return {}
        return annotations_for(
            pod=pod,
            machine=state.machine,
            placement=decision.placement,
            node_name=decision.node_name,
            alloc_time=max(self.wall_clock(), state.last_alloc_time + 1),
        )

    async def _prepare(self, commitment: _Commitment, plan: VolumePlan, decided: Worklist[_Commitment]) -> None:
        """Let a pod's volumes be bound, however long it takes, and then the pod; nobody else waits with it."""
        outcome = await self.volumes.prepare(commitment.pod, plan)
        if outcome is None:
            await decided.give(commitment)
        else:
            self._settle(commitment, outcome)

    async def _commit_each(self, decided: Worklist[_Commitment]) -> None:
        while (commitment := await decided.next()) is not None:
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
        self.metrics.attempted("scheduled", commitment.pod.scheduler_name, now - commitment.started)
        first = queued.since if queued.first_active is None else queued.first_active
        self.metrics.scheduled(attempts=queued.attempts, seconds=now - first)
        ids = {}
        if decision.placement is not None and commitment.pod.neuron is not None:
            ids = {f"{commitment.pod.neuron.unit}s": ",".join(map(str, decision.placement.ids))}
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
        self.metrics.attempted("error", commitment.pod.scheduler_name, now - commitment.started)
        log.error("Error scheduling pod; retrying", pod=commitment.pod.key, err=message)
        if commitment.pod.uid in self.queue:  # else it was bound by someone else, or deleted, meanwhile
            self.queue.failed(commitment.queued, now)
            self.herald.failed(commitment.pod, message)

    def _forget(self, commitment: _Commitment) -> None:
        """Free what was assumed; others may be waiting for it."""
        self.cluster.forget(commitment.pod.uid)
        if commitment.plan is not None:
            self.volumes.release(commitment.plan)
            for event in taken_back(commitment.plan):
                self.queue.note_storage(event.event, event.claim)
        self._note_freed(commitment.pod, commitment.decision.node_name)
        self.wake()

    def _note_freed(self, pod: Pod, node_name: str) -> None:
        """Let those know who wait for space on a node that a pod does not take, or not any more."""
        state = self.cluster.node(node_name)
        self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, on=None if state is None else Change(state))
