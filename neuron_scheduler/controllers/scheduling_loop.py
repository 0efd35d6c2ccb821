"""
The loop: pop a pod, decide, assume, commit.

The decision and its assumption are one synchronous step, so no event can come in between. What follows, one Binding and
one Event, runs beside the next decisions (`binding_cycle`). An exception in an attempt is that pod's error: what was
assumed is forgotten, and the pod is tried again after a backoff.

Upstream: `pkg/scheduler/schedule_one.go`.
"""

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.controllers.allocate_fence import AllocateFence
from neuron_scheduler.controllers.binding_cycle import BindingCycle
from neuron_scheduler.controllers.commitment import Assumptions, Commitment, note_freed
from neuron_scheduler.controllers.extension_log import OF_OUR_QUEUE, Lines
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.preemption_executor import PostFilter, PreemptionExecutor
from neuron_scheduler.controllers.side_lane import SideLane
from neuron_scheduler.controllers.volume_binder import VolumeBinder
from neuron_scheduler.kube.writes.binder import Binder, Fenced, Gone, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.scheduling.cycle.index_warmup import TYPICAL, IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import (
    Decision,
    FitError,
    NoNode,
    fit_error,
    schedule_pod,
    select_node,
)
from neuron_scheduler.scheduling.cycle.trial import ChangedError, Taken, give_back, take_with_volumes
from neuron_scheduler.scheduling.groups.gang import Gang, Plan, gang_of, held_text
from neuron_scheduler.scheduling.groups.plan import planned
from neuron_scheduler.scheduling.queue.places import QueuedPod, matters_for_scheduling
from neuron_scheduler.scheduling.queue.scheduling_queue import BINDER, SchedulingQueue
from neuron_scheduler.steps import LONGEST_TURN, run_in_turns
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

log = logs.logger(__name__)
_attempts = log.v(3)  # as upstream's

NO_ROOM: Final = "Unable to schedule pod group; too few members fit at once; waiting"
NO_FIT: Final = "Unable to schedule pod; no fit; waiting"
NO_NODES: Final = "Unable to schedule pod; no nodes are registered to the cluster; waiting"
LONGEST_LIST: Final = 5.0
"""Seconds for which a refusal waits for the end of a list of pods; ten thousand changed pods take about one."""
_LOOK_AT_LIST: Final = 0.001
"""Seconds between two looks."""
_LONGEST_IDLE = 5.0
"""Seconds after which an idle loop looks at the queue again, to show that it works."""
_PAUSE = 0.1
"""Seconds between two checks whether a Binding may be started."""
_LOOK_AT_GROUPS: Final = 1.0
"""Seconds between two looks at the groups that have too few members."""
_HELD_IN_SILENCE: Final = 5.0
"""Seconds for which nothing is said of such a group: its members are being created."""
_WARM_UP_PODS = 1024  # most waiting pods resemble each other


@attrs.frozen(eq=False)
class QueuedAttempt:
    """The requester of a commitment that the scheduling loop has made."""

    queued: QueuedPod
    _loop: "SchedulingLoop"

    @property
    def pod(self) -> Pod:
        """The pod's present state."""
        return self.queued.pod

    @property
    def withdrawal(self) -> Gone | Fenced | None:
        """Gone if the pod has left the queue; Fenced if its group has too few members by now, and none is bound."""
        group, waits = self.queued.pod.group, self._loop.queue.groups
        if self.queued.pod.uid not in self._loop.queue:
            return Gone()
        is_held = group is not None and waits.is_held(group.key) and not waits.groups.placed(group.key)
        return Fenced() if is_held else None

    @property
    def lines(self) -> Lines:
        """The lines about pods of our own queue."""
        return OF_OUR_QUEUE

    def bound(self, commitment: Commitment) -> None:
        """Take the pod out of the queue, and report it."""
        loop, queued, pod = self._loop, self.queued, commitment.pod
        now = loop.clock()
        loop.queue.remove(pod.uid)
        loop.metrics.attempted("scheduled", pod.scheduler_name, now - commitment.started)
        first = queued.since if queued.first_active is None else queued.first_active
        loop.metrics.scheduled(attempts=queued.attempts, seconds=now - first)
        loop.reporter.scheduled(pod, commitment.node_name, commitment.decision.placement)

    def gone(self) -> None:
        """Take the pod out of the queue."""
        self._loop.queue.remove(self.queued.pod.uid)

    def refused(self, commitment: Commitment, refusal: Refused) -> None:
        """Put the pod back, and report why."""
        loop, pod = self._loop, commitment.pod
        now = loop.clock()
        loop.metrics.attempted("error", pod.scheduler_name, now - commitment.started)
        log.error("Error scheduling pod; retrying", pod=pod.key, err=refusal.message)
        if loop.queue.holds(self.queued):  # else it was bound by another scheduler, or deleted, meanwhile
            if refusal.until_changed:  # it may never change, so nothing is kept for it
                loop.queue.unschedulable(self.queued, frozenset({BINDER}), now)
            else:
                self._keep(commitment)
                loop.queue.failed(self.queued, now)
            loop.reporter.failed(pod, refusal.message)

    def fenced(self, commitment: Commitment) -> None:
        """Put the pod back; it is tried again after a backoff."""
        self._keep(commitment)
        self._loop.queue.failed(self.queued, self._loop.clock())

    def _keep(self, commitment: Commitment) -> None:
        """Keep the space of a member of a group of which others have a node: without it the group stays half bound."""
        pod, cluster = self.queued.pod, self._loop.cluster
        members = () if pod.group is None else cluster.groups.members(pod.group.key)
        held = pod.group is not None and self._loop.queue.groups.is_held(pod.group.key)
        placed = any(cluster.node_of(uid) is not None for uid in members if uid != pod.uid)
        if pod.uid in self._loop.queue and placed and not held:
            cluster.nominate(commitment.node_name, Nomination(pod, commitment.decision.cores))

    def crashed(self, error: Exception) -> None:
        """Handle the exception as the pod's error."""
        self._loop.attempt_crashed(self.queued, error)


@attrs.define(eq=False, kw_only=True)
class SchedulingLoop:
    """
    Schedules the pods of the queue while it runs.

    Attributes:
        profiles: by scheduler name.
        identity: the holder of the Lease, for the fence at the API server; empty without leader election.
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds, for NEURON_ALLOC_TIME.
        may_bind: False while the Lease may be lost; nothing is decided then.
        listing: returns whether a list of all pods is being handed over. The new pods come first, and those that are
            gone go last: until its end a node may look fuller than it is, and no pod is refused or preempted for that.
        defers: returns whether a node is looked at later, at the end of the list.
        bind_concurrency: Bindings that are tried for the first time at once.
        errors: reports unexpected exceptions.
        allocate_fence: whether Bindings wait where the device plugin could confuse two pods.
        listeners: called in order with each pod and the decision about it, before that is assumed.
        looked_at: when the loop last looked at the queue, on `clock`; None before it runs.
        assumptions, binding_cycle: what its decisions go through, which other requesters of nodes share.
    """

    cluster: Cluster
    queue: SchedulingQueue
    profiles: Mapping[str, Profile]
    binder: Binder
    volumes: VolumeBinder
    preemption_executor: PreemptionExecutor
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    may_bind: Callable[[], bool]
    listing: Callable[[], bool]
    defers: Callable[[str], bool]
    bind_concurrency: int
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    identity: str = ""
    allocate_fence: bool = True
    listeners: list[Callable[[Pod, Decision | FitError], None]] = attrs.field(factory=list)
    looked_at: float | None = attrs.field(default=None, init=False)
    stopping: bool = attrs.field(default=False, init=False)
    _wake: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup, init=False)
    assumptions: Assumptions = attrs.field(init=False)
    binding_cycle: BindingCycle = attrs.field(init=False)
    _side_lane: SideLane = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.queue.on_change = self.wake
        self.assumptions = Assumptions(
            cluster=self.cluster,
            queue=self.queue,
            recheck=self._recheck,
            identity=self.identity,
        )
        self.binding_cycle = BindingCycle(
            cluster=self.cluster,
            queue=self.queue,
            binder=self.binder,
            volumes=self.volumes,
            reporter=self.reporter,
            metrics=self.metrics,
            clock=self.clock,
            wall_clock=self.wall_clock,
            may_bind=self.may_bind,
            errors=self.errors,
            concurrency=self.bind_concurrency,
            fenced=self.allocate_fence,
        )
        self._side_lane = SideLane(
            cluster=self.cluster,
            queue=self.queue,
            profiles=self.profiles,
            warmup=self._warmup,
            clock=self.clock,
            wake=self.wake,
            crashed=self.attempt_crashed,
        )

    @property
    def fence(self) -> AllocateFence:
        """Where Bindings wait for other pods of their nodes; the handlers notify it of pods and nodes."""
        return self.binding_cycle.fence

    def wake(self) -> None:
        """Make an idle loop look at the queue again."""
        self._wake.set()

    def stop(self) -> None:
        """End `run` once every Binding on its way is resolved."""
        self.stopping = True
        self._wake.set()

    async def warm_up(self) -> None:
        """Build the indexes for typical pods and for those that already wait."""
        typical = [attrs.evolve(TYPICAL, scheduler_name=name) for name in self.profiles]
        for pod in (*typical, *self.queue.first(_WARM_UP_PODS)):
            try:
                profile = self.profiles[pod.scheduler_name]
                for warm_up in (self._warmup.of, self._warmup.of_refusal):
                    for _ in warm_up(self.cluster, pod, profile):
                        await anyio.lowlevel.checkpoint()
            except Exception as error:  # noqa: BLE001 - it is one pod's error; its attempt reports it again
                self.errors.report(error, task="warm-up", pod=pod.key)

    async def run(self) -> None:
        """Schedule until stopped; returns when no Binding is on its way."""
        self.looked_at = self.clock()
        async with (
            anyio.create_task_group() as preempting,
            self.binding_cycle.running(),
            anyio.create_task_group() as preparing,
        ):
            await preempting.start(self.preemption_executor.run)
            preparing.start_soon(self._side_lane.run)
            preparing.start_soon(self._look_at_held_groups)
            await self._schedule_each()
            preparing.cancel_scope.cancel()
            self.preemption_executor.stop()

    async def _schedule_each(self) -> None:
        turn_ends = self.clock() + LONGEST_TURN
        while not self.stopping:
            if not self.may_bind():
                await anyio.sleep(_PAUSE)  # a renewal that is late succeeds, or the Lease is lost and the process ends
                continue
            now = self.looked_at = self.clock()
            queued = self._side_lane.next() or self.queue.pop(now)
            if queued is None:
                await self._idle(now)
                continue
            commitments = list[Commitment]()
            try:
                if self._side_lane.takes(queued):
                    self._side_lane.put(queued)
                elif queued.pod.group is not None and (group := self.cluster.groups.of(queued.pod)) is not None:
                    commitments = await self._schedule_group(queued, group.key)
                elif (commitment := await self._schedule_one(queued)) is not None:
                    commitments.append(commitment)
            except Exception as error:  # noqa: BLE001 - it is one pod's error, never the loop's
                self.attempt_crashed(queued, error)
            for commitment in commitments:
                await self.binding_cycle.give(commitment)
            if self.clock() >= turn_ends:
                await anyio.lowlevel.checkpoint()
                turn_ends = self.clock() + LONGEST_TURN

    async def _idle(self, now: float) -> None:
        """Wait until the queue changes or a backoff is over; nothing can happen between `pop` and this call."""
        self._wake = anyio.Event()
        upcoming = self.queue.next_time()
        timeout = _LONGEST_IDLE if upcoming is None else max(0.0, upcoming - now)
        with anyio.move_on_after(min(timeout, _LONGEST_IDLE)):
            await self._wake.wait()

    async def _schedule_one(self, queued: QueuedPod) -> Commitment | None:
        """
        Decide and assume in one step; None if there is nothing to commit.

        Other tasks may run before that step, if indexes are missing, and after it, if no node takes the pod.
        """
        profile = self.profiles[queued.pod.scheduler_name]
        if not await self._warmed_up(queued, profile):
            return None
        pod, started = queued.pod, self.clock()
        if _attempts.enabled:
            _attempts.info("Attempting to schedule pod", pod=pod.key)
        self.preemption_executor.adopt(queued, profile)
        selected = select_node(self.cluster, pod, profile)
        decision = selected if isinstance(selected, Decision) else await self._explained(queued, profile, selected)
        if decision is None:
            return None
        pod = queued.pod  # it may have changed before it was decided
        decided = self.clock()
        self.metrics.decided(decided - started)
        chosen = "" if isinstance(decision, FitError) else decision.node_name
        extension_log.filtered(self.cluster, pod, profile, chosen)  # before the assumption: its lines show what is free
        for listener in self.listeners:
            listener(pod, decision)
        if isinstance(decision, FitError):
            await self._refused(queued, decision, profile, started)
            return None
        return self._commitment(queued, take_with_volumes(self.cluster, pod, decision), started)

    def _commitment(self, queued: QueuedPod, taken: Taken, started: float) -> Commitment:
        """Make an assumption known, and return what is to be written."""
        annotations = self.assumptions.told(taken)
        return Commitment(QueuedAttempt(queued, self), taken.pod, annotations, taken.decision, started, taken.volumes)

    def _recheck(self, node_name: str) -> None:
        """Look at the nominations of a node again, if all its pods are known."""
        if not self.defers(node_name):
            self.preemption_executor.recheck(node_name)

    async def _warmed_up(self, queued: QueuedPod, profile: Profile) -> bool:
        """Build missing indexes for a pod that is the first of its kind; False if it is gone when that is done."""
        waited = False
        for _ in self._warmup.of(self.cluster, queued.pod, profile):
            waited = True
            await anyio.lowlevel.checkpoint()
        return not waited or self.queue.holds(queued)

    async def _explained(self, queued: QueuedPod, profile: Profile, no_node: NoNode) -> Decision | FitError | None:
        """
        Return why no node takes the pod, or a new decision if other tasks have run since; None if the pod is gone.

        In the middle of a list, pods that are gone count beside those that came: no pod is preempted for that.
        """
        waited = await self._list_ended()
        for _ in self._warmup.of_refusal(self.cluster, queued.pod, profile):
            waited = True
            await anyio.lowlevel.checkpoint()
        if not waited:
            return fit_error(self.cluster, queued.pod, profile, no_node)
        return schedule_pod(self.cluster, queued.pod, profile) if self.queue.holds(queued) else None

    async def _schedule_group(self, queued: QueuedPod, key: GroupKey) -> list[Commitment]:
        """
        Decide a popped pod's group as one, and assume it as a whole or not at all.

        Other tasks run meanwhile, so a member may be gone or changed at the end; then the group is tried again.
        """
        self.queue.keep_events(queued)
        members = [queued, *await run_in_turns(self.queue.companions(key, self.clock()), self.clock)]
        await self._list_ended()
        started, commitments = self.clock(), list[Commitment]()
        try:
            members = [member for member in members if self.queue.holds(member)]
            gang, profile = gang_of(self.cluster, [m.pod for m in members]), self.profiles[queued.pod.scheduler_name]
            found = await run_in_turns(planned(self.cluster, gang, profile, self._warmup), self.clock)
            if isinstance(found, Plan):
                commitments = await run_in_turns(self._assume_group(members, found, gang, started), self.clock)
            else:
                refused = found.fit_error(gang)
                await run_in_turns(self._group_unschedulable(members, gang, refused, started), self.clock)
        except ChangedError:
            await run_in_turns(self._group_failed(members), self.clock)
        except Exception as error:  # noqa: BLE001 - it is one group's error
            for member in members:
                self.attempt_crashed(member, error)
        if not commitments:
            self.queue.groups.charge(key.namespace, self.clock() - started, self.clock())
        return commitments

    def _assume_group(
        self, members: list[QueuedPod], plan: Plan, gang: Gang, started: float
    ) -> Generator[None, None, list[Commitment]]:
        """Return what is to be written for the members that are assumed; put the others back."""
        by_uid = {member.pod.uid: member for member in members}
        held = self.queue.groups.is_held(gang.group.key)
        if held or not all(self._is_as_decided(by_uid[taken.pod.uid], taken) for taken in plan.taken):
            yield from self._give_back(plan)
            raise ChangedError
        self.metrics.decided(self.clock() - started)
        commitments = list[Commitment]()
        try:
            for taken in plan.taken:
                for listener in self.listeners:
                    listener(taken.pod, taken.decision)
                commitments.append(self._commitment(by_uid[taken.pod.uid], taken, started))
                yield
        except Exception:
            yield from self._give_back(plan)
            raise
        for pod, refused in plan.left_out:
            self._unschedulable(by_uid[pod.uid], refused, PostFilter(alone=True), started)
            yield
        return commitments

    def _group_failed(self, members: list[QueuedPod]) -> Generator[None, None, None]:
        for member in members:
            self.queue.failed(member, self.clock())
            yield

    def _give_back(self, plan: Plan) -> Generator[None, None, None]:
        for taken in plan.taken:
            give_back(self.cluster, taken)
            yield

    def _is_as_decided(self, member: QueuedPod, taken: Taken) -> bool:
        pod = taken.pod
        changed = member.pod is not pod and matters_for_scheduling(pod, member.pod)
        return self.queue.holds(member) and self.cluster.is_assumed(pod.uid) and not changed

    def _group_unschedulable(
        self, members: list[QueuedPod], gang: Gang, refused: FitError, started: float
    ) -> Generator[None, None, None]:
        """Put a refused group back, as one line, and report why; a group evicts nobody."""
        log.info(NO_ROOM, v=2, group=str(gang.group.key), members=len(members), err=refused.text)
        for member in reversed(members):  # the popped one last: for it the events are kept until then
            pod, now = member.pod, self.clock()
            if not self.queue.holds(member):
                continue
            if not gang.placed:  # one was when space was kept
                self._keep_nothing(pod)
            self.queue.unschedulable(member, refused.plugins, now, together=True, cause=refused.cause)
            for listener in self.listeners:
                listener(pod, refused)
            self.metrics.attempted("unschedulable", pod.scheduler_name, now - started)
            self.reporter.unschedulable(pod, refused.text, new_node_cannot_help=refused.new_node_cannot_help)
            yield

    def _keep_nothing(self, pod: Pod) -> None:
        node_name = self.cluster.clear_nomination(pod.uid)
        if node_name is not None:
            note_freed(self.cluster, self.queue, pod, node_name)

    async def _look_at_held_groups(self) -> None:
        """Look at the groups that wait for members, every second."""
        while True:
            await anyio.sleep(_LOOK_AT_GROUPS)
            await run_in_turns(self._hold_groups(), self.clock)

    def _hold_groups(self) -> Generator[None, None, None]:
        """Bind no member of a group that waits for members, keep no space for it, and say how many exist."""
        for key, since in self.queue.groups.held():
            is_to_be_said = self.clock() - since >= _HELD_IN_SILENCE
            text = held_text(self.cluster.groups.members(key), self.cluster.groups.group(key))
            for member in self.queue.groups.waiting(key):
                pod = member.pod
                if self.queue.groups.is_held(key):
                    self.fence.noticed(pod.uid, "")
                    self._keep_nothing(pod)
                    if is_to_be_said:
                        self.reporter.waiting_for_group(pod, text)
                yield

    async def _list_ended(self) -> bool:
        """Wait for the end of a list of pods, but not for long; return whether there was anything to wait for."""
        waited, until = False, self.clock() + LONGEST_LIST
        while self.listing() and self.clock() < until:
            waited = True
            await anyio.sleep(_LOOK_AT_LIST)
        return waited

    async def _refused(self, queued: QueuedPod, refused: FitError, profile: Profile, started: float) -> None:
        """Preempt other pods if that helps, and handle the refusal."""
        after = PostFilter()
        if refused.nodes:
            after = await self.preemption_executor.post_filter(queued, refused, profile)
        self._unschedulable(queued, attrs.evolve(refused, preemption=after.text), after, started)

    def _unschedulable(self, queued: QueuedPod, refused: FitError, after: PostFilter, started: float) -> None:
        """
        Put a pod back that no node takes now, and report why; `after` says what preemption has done for it.

        Upstream: `handleSchedulingFailure`.
        """
        pod, now = queued.pod, self.clock()
        if not self.queue.holds(queued):
            return  # gone, or bound by another scheduler, in the meantime
        has_nomination = self.cluster.nomination(pod.uid) is not None
        self.queue.unschedulable(
            queued,
            refused.plugins,
            now,
            held=after.held,
            has_nomination=has_nomination,
            alone=after.alone,
            cause=refused.cause,
            against_preemption=after.plugins,
        )
        self.metrics.attempted("unschedulable", pod.scheduler_name, now - started)
        log.info(NO_FIT if refused.nodes else NO_NODES, v=2, pod=pod.key, err=refused.text)
        self.reporter.unschedulable(
            pod, refused.text, new_node_cannot_help=refused.new_node_cannot_help, nomination=after.nomination
        )

    def attempt_crashed(self, queued: QueuedPod, error: Exception) -> None:
        """
        Handle an exception in an attempt, or in applying its outcome, as the pod's error.

        What the attempt assumed is forgotten unless the pod has left the queue, which it does as soon as it is known to
        be bound. If one of the steps fails too, the others are still done.
        """
        pod, now = queued.pod, self.clock()
        message = self.errors.report(error, task="scheduling", pod=pod.key)
        if not self.queue.holds(queued):
            return
        for step in (
            partial(self.cluster.forget, pod.uid),
            partial(self.queue.failed, queued, now),
            partial(self.metrics.attempted, "error", pod.scheduler_name, 0.0),
            partial(self.reporter.failed, pod, message),
        ):
            try:
                step()
            except Exception as another:  # noqa: BLE001 - as above
                self.errors.report(another, task="scheduling", pod=pod.key)
