"""
A run in virtual time: the real cluster, decision and queue, and a heap of pods that will end.

Actions take no time: the API server answers at once, a pod runs from its decision on. Events are noted as the handlers
and the scheduling loop do, so hints, backoff and the periodic retry have their effect. No clock, no task, no
randomness: the same workload and profile always give the same run.
"""

import heapq
from collections.abc import Iterator

import attrs

from benchmarks.churn.workload import Arrival, Workload
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.turns import LOOK_AT_TURNS, Turns
from neuron_scheduler.model.pod import Pod, assigned_pod
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod
from neuron_scheduler.scheduling.groups.gang import GroupPlan, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import run
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.queueing import new_queue

WARM_UP = 0.25
"""The share of the time that is not looked at: what the run begins with was put together without any churn."""


@attrs.define(eq=False)
class Simulation:
    """
    One run.

    Attributes:
        now: seconds.
        used: cores or devices in use.
        used_seconds: the same, summed over the time since the warm-up.
        placed_at: when each pod, and all others of its job, got a place, by uid.
        attempts: decisions so far.
        turn_after: the bound of the profile's turns; 0 for none.
    """

    workload: Workload
    profile: Profile
    turn_after: float = 0.0
    cluster: Cluster = attrs.field(factory=Cluster, init=False)
    queue: SchedulingQueue = attrs.field(init=False)
    now: float = attrs.field(default=0.0, init=False)
    used: int = attrs.field(default=0, init=False)
    used_seconds: float = attrs.field(default=0.0, init=False)
    placed_at: dict[str, float] = attrs.field(factory=dict, init=False)
    attempts: int = attrs.field(default=0, init=False)
    _by_uid: dict[str, Arrival] = attrs.field(init=False)
    _running: list[tuple[float, str]] = attrs.field(factory=list, init=False)
    _come: int = attrs.field(default=0, init=False)
    _jobs: dict[str, list[str]] = attrs.field(factory=dict, init=False)  # uids of the pods that are placed
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup, init=False)
    _turns: Turns | None = attrs.field(default=None, init=False)
    _looked_at_turns: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.queue = new_queue(view=self.cluster.view, groups=GroupWaits(self.cluster.groups))
        self._by_uid = {arrival.pod.uid: arrival for arrival in self.workload.arrivals}
        for node in self.workload.nodes:
            self.cluster.put_node(node)
        if self.turn_after:
            self._turns = Turns(
                cluster=self.cluster,
                queue=self.queue,
                profiles={self.profile.scheduler_name: self.profile},
                bounds={self.profile.scheduler_name: self.turn_after},
                warmup=self._warmup,
                pod_list=PodList(),
                report=lambda *_: None,
                clock=lambda: self.now,
                errors=UnexpectedErrors(lambda _: None),
            )

    @property
    def begins(self) -> float:
        """The end of the warm-up."""
        return self.workload.end * WARM_UP

    @property
    def utilisation(self) -> float:
        """The share of the devices that were in use after the warm-up, by time."""
        seconds = self.now - self.begins
        return self.used_seconds / (self.workload.capacity * seconds) if seconds > 0 else 0.0

    def run(self) -> None:
        """Run all of it."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Run it, one second with events after the other."""
        while (upcoming := self._next_time()) < self.workload.end:
            self._pass_to(upcoming)
            self._end_pods()
            self._take_arrivals()
            self._schedule()
            if self._turns is not None and self.now >= self._looked_at_turns + LOOK_AT_TURNS:
                self._looked_at_turns = self.now
                run(self._turns.review())
                self._schedule()
            yield
        self._pass_to(self.workload.end)

    def _next_time(self) -> float:
        arrivals, times = self.workload.arrivals, []
        if self._come < len(arrivals):
            times.append(arrivals[self._come].at)
        if self._running:
            times.append(self._running[0][0])
        due = self.queue.next_time()
        if due is not None:
            times.append(due)
        return max(self.now, min(times, default=self.workload.end))

    def _pass_to(self, time: float) -> None:
        self.used_seconds += self.used * max(0.0, time - max(self.now, self.begins))
        self.now = time

    def _end_pods(self) -> None:
        while self._running and self._running[0][0] <= self.now:
            ended = self._by_uid[heapq.heappop(self._running)[1]]
            self.used -= ended.size // ended.members
            self.cluster.groups.remove(ended.pod.uid)
            name = self.cluster.remove_pod(ended.pod.uid)
            if name is not None and self.queue.is_listening:
                self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, ended.pod, on=self.cluster.node(name))

    def _take_arrivals(self) -> None:
        arrivals = self.workload.arrivals
        while self._come < len(arrivals) and arrivals[self._come].at <= self.now:
            pod = arrivals[self._come].pod
            self.cluster.groups.put(pod)
            self.queue.add(pod, self.now)
            self._come += 1

    def _schedule(self) -> None:
        while (queued := self._popped()) is not None:
            self.attempts += 1
            if queued.pod.group is not None:
                self._schedule_group([queued, *run(self.queue.take_companions(queued.pod.group.key, self.now))])
                continue
            decision = schedule_pod(self.cluster, queued.pod, self.profile)
            if isinstance(decision, FitError):
                alone = self.cluster.has_turn(queued.pod.uid)
                self.queue.put_back_refused(queued, decision.plugins, self.now, alone=alone)
            else:
                self._place(queued, decision)

    def _schedule_group(self, members: list[QueuedPod]) -> None:
        gang = gang_of(self.cluster, [member.pod for member in members])
        found = run(plan_group(self.cluster, gang, self.profile, self._warmup))
        if isinstance(found, GroupPlan):
            for taken in found.members:
                self._placed(assigned_pod(taken.pod, taken.decision.node_name, taken.allocation))
        else:
            refused = found.fit_error(gang)
            for member in members:
                waits_for = found.plugins_for(member.pod)
                self.queue.put_back_refused(
                    member, refused.plugins, self.now, waits_for=waits_for, together=True, cause=refused.cause
                )

    def _popped(self) -> QueuedPod | None:
        """Return the next pod; the queue may need several calls to look at the events."""
        queued = self.queue.pop(self.now)
        while queued is None and (time := self.queue.next_time()) is not None and time <= self.now:
            queued = self.queue.pop(self.now)
        return queued

    def _place(self, queued: QueuedPod, decision: Decision) -> None:
        assumed = assigned_pod(queued.pod, decision.node_name, {})
        self.cluster.assume(assumed, decision.placement.cores if decision.placement else NO_CORES)
        self._placed(assumed)

    def _placed(self, assumed: Pod) -> None:
        """Let a pod run if all others of its job are placed, and these, too."""
        arrival = self._by_uid[assumed.uid]
        if self._turns is not None:
            self.cluster.put_pod(attrs.evolve(assumed, started=self.now))  # as the watch does
        self.queue.note(ClusterEvent.ASSIGNED_POD_ADDED, assumed)
        self.queue.remove(assumed.uid)
        job = self._jobs.setdefault(arrival.job, [])
        job.append(assumed.uid)
        if len(job) == arrival.members:
            self.used += arrival.size
            for uid in job:
                self.placed_at[uid] = self.now
                heapq.heappush(self._running, (self.now + arrival.lifetime, uid))
