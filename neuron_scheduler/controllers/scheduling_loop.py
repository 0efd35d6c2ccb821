"""
The loop: pop a pod, decide, assume, commit.

The decision and its assumption are one synchronous step, so no event can come in between. What follows, one Binding and
one Event, runs beside the next decisions (`binding_cycle`). An exception in an attempt is that pod's error: what was
assumed is forgotten, and the pod is tried again after a backoff. Refuses to decide: `scheduling` does.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import anyio
import anyio.lowlevel
import attrs
from anyio.abc import TaskStatus

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import binding_cycle, extension_log, queued_attempt
from neuron_scheduler.controllers.allocate_fence import AllocateFence
from neuron_scheduler.controllers.assumptions import Assumptions
from neuron_scheduler.controllers.binding_cycle import Binder, BindingCycle, VolumeBinder
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.controllers.plugin_timing import PluginTiming
from neuron_scheduler.controllers.pod_list import PodList
from neuron_scheduler.controllers.preemption_executor import PostFilter
from neuron_scheduler.controllers.queued_attempt import QueuedAttempt, QueuedAttempts
from neuron_scheduler.controllers.side_lane import SideLane
from neuron_scheduler.controllers.turn import LONGEST_TURN
from neuron_scheduler.model.pod import Pod
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
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

log = logs.logger(__name__)
_attempts = log.v(3)  # as upstream's

_LONGEST_IDLE = 5.0
"""Seconds after which an idle loop looks at the queue again, to show that it works."""
_PAUSE = 0.1
"""Seconds between two checks whether a Binding may be started."""


class PodReporter(binding_cycle.PodReporter, queued_attempt.PodReporter, Protocol):
    """Reports the outcome of an attempt to the pod's owner: Event and condition."""


class PreemptionExecutor(Protocol):
    """Preempts pods for one that fits on no node."""

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Carry out preemptions until stopped."""

    def stop(self) -> None:
        """End `run` once all victims have been asked to leave."""

    def adopt(self, queued: QueuedPod, profile: Profile) -> None:
        """Take over the nomination in the pod's status."""

    def recheck(self, node_name: str) -> None:
        """Clear the nominations on a node that cannot be kept any more."""

    async def post_filter(self, queued: QueuedPod, refused: FitError, profile: Profile) -> PostFilter:
        """Search for victims, and begin to ask them to leave."""


_WARM_UP_PODS = 1024  # most waiting pods resemble each other


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
        bind_concurrency: Bindings that are tried for the first time at once.
        errors: reports unexpected exceptions.
        allocate_fence: whether Bindings wait where the device plugin could confuse two pods.
        listeners: called in order with each pod and the decision about it, before that is assumed.
        looked_at: when the loop last looked at the queue, on `clock`; None before it runs.
        timing: times one decision in ten.
        assumptions, binding_cycle: what its decisions go through, which other requesters of nodes share.
        pod_list: what has to wait for the end of a list of pods.
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
    bind_concurrency: int
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    identity: str = ""
    allocate_fence: bool = True
    listeners: list[Callable[[Pod, Decision | FitError], None]] = attrs.field(factory=list)
    looked_at: float | None = attrs.field(default=None, init=False)
    stopping: bool = attrs.field(default=False, init=False)
    _wake: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup, init=False)
    pod_list: PodList = attrs.field(init=False)
    assumptions: Assumptions = attrs.field(init=False)
    binding_cycle: BindingCycle = attrs.field(init=False)
    _attempts: QueuedAttempts = attrs.field(init=False)
    _side_lane: SideLane = attrs.field(init=False)
    timing: PluginTiming = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.queue.on_change = self.wake
        self.timing = PluginTiming(metrics=self.metrics, clock=self.clock)
        self.pod_list = PodList(self.clock)
        self.assumptions = Assumptions(
            cluster=self.cluster,
            queue=self.queue,
            recheck=self._recheck,
            identity=self.identity,
        )
        self._attempts = QueuedAttempts(
            cluster=self.cluster,
            queue=self.queue,
            reporter=self.reporter,
            metrics=self.metrics,
            clock=self.clock,
            errors=self.errors,
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
            crashed=self._attempts.crashed,
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
            commitment = None
            try:
                if self._side_lane.takes(queued):
                    self._side_lane.put(queued)
                else:
                    commitment = await self._schedule_one(queued)
            except Exception as error:  # noqa: BLE001 - it is one pod's error, never the loop's
                self._attempts.crashed(queued, error)
            if commitment is not None:
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
        timed = self.timing.sampled(profile)
        selected = select_node(self.cluster, pod, timed)
        if timed is not profile:
            self.timing.keep(profile)
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
        return self._assume(queued, decision, started)

    def _assume(self, queued: QueuedPod, decision: Decision, started: float) -> Commitment:
        """Take the space in the cluster before the API server knows, and return what is to be written."""
        pod = queued.pod
        annotations = self.assumptions.assume(pod, decision)
        plan = self.volumes.reserve(pod, decision.node_name)
        trusting = self.profiles[pod.scheduler_name].count_unknown_only
        attempt = QueuedAttempt(queued, self._attempts)
        return Commitment(attempt, pod, annotations, decision, started, plan, count_unknown_only=trusting)

    def _recheck(self, node_name: str) -> None:
        """Look at the nominations of a node again, if all its pods are known."""
        if not self.pod_list.defers(node_name):
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
        waited = await self.pod_list.ended()
        for _ in self._warmup.of_refusal(self.cluster, queued.pod, profile):
            waited = True
            await anyio.lowlevel.checkpoint()
        if not waited:
            return fit_error(self.cluster, queued.pod, profile, no_node)
        return schedule_pod(self.cluster, queued.pod, profile) if self.queue.holds(queued) else None

    async def _refused(self, queued: QueuedPod, refused: FitError, profile: Profile, started: float) -> None:
        """Preempt other pods if that helps, and handle the refusal."""
        after = PostFilter()
        if refused.nodes:
            after = await self.preemption_executor.post_filter(queued, refused, profile)
        self._attempts.unschedulable(queued, attrs.evolve(refused, preemption=after.text), after, started)
