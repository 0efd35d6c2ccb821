"""
One pod's attempt: decide, assume, and what follows if that does not end in a node.

The decision and its assumption are one synchronous step, so no event can come in between. An exception in an attempt is
that pod's error: what was assumed is forgotten, and the pod is tried again after a backoff.

Upstream: `schedulingCycle` and `handleSchedulingFailure` in `pkg/scheduler/schedule_one.go`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.controllers.commitment import Announcer, Commitment
from neuron_scheduler.controllers.extension_log import OF_OUR_QUEUE
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.preemption_executor import PostFilter, PreemptionExecutor
from neuron_scheduler.kube.writes.binder import Fenced, Gone, Refused
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
from neuron_scheduler.scheduling.cycle.trial import AssumedPod, take_with_volumes
from neuron_scheduler.scheduling.preemption.nominations import turn_text
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import BINDER, SchedulingQueue
from neuron_scheduler.steps import LONGEST_TURN
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

if TYPE_CHECKING:
    from neuron_scheduler.controllers.claim_binder import ClaimBinder

NO_FIT: Final = "Unable to schedule pod; no fit; waiting"
NO_NODES: Final = "Unable to schedule pod; no nodes are registered to the cluster; waiting"
LONGEST_LIST: Final = 5.0
"""Seconds for which a refusal waits for the end of a list of pods; ten thousand changed pods take about one."""
_LOOK_AT_LIST: Final = 0.001
"""Seconds between two looks."""
_WARM_UP_PODS: Final = 1024  # most waiting pods resemble each other

Listener: TypeAlias = Callable[[Pod, Decision | FitError], None]

log = logs.logger(__name__)
_attempts = log.v(3)  # as upstream's


@attrs.frozen(eq=False)
class QueuedAttempt:
    """The requester of a commitment that an attempt has made."""

    queued: QueuedPod
    _attempts: "PodAttempts"

    @property
    def pod(self) -> Pod:
        return self.queued.pod

    @property
    def withdrawal(self) -> Gone | Fenced | None:
        """Gone if the pod has left the queue; Fenced if its group has too few members by now, and none is bound."""
        group, waits = self.queued.pod.group, self._attempts.queue.groups
        if self.queued.pod.uid not in self._attempts.queue:
            return Gone()
        is_held = group is not None and waits.is_held(group.key) and not waits.groups.placed_count(group.key)
        return Fenced() if is_held else None

    def on_bound(self, commitment: Commitment) -> None:
        attempts, queued, pod = self._attempts, self.queued, commitment.pod
        now = attempts.clock()
        attempts.queue.remove(pod.uid)
        attempts.metrics.count_attempt("scheduled", pod.scheduler_name, now - commitment.started)
        first = queued.since if queued.first_active is None else queued.first_active
        attempts.metrics.count_scheduled_pod(attempts=queued.attempts, seconds=now - first)
        attempts.reporter.report_scheduled(pod, commitment.node_name, commitment.decision.placement)

    def on_gone(self) -> None:
        self._attempts.queue.remove(self.queued.pod.uid)

    def on_refused(self, commitment: Commitment, refusal: Refused) -> None:
        attempts, pod = self._attempts, commitment.pod
        now = attempts.clock()
        attempts.metrics.count_attempt("error", pod.scheduler_name, now - commitment.started)
        log.error("Error scheduling pod; retrying", pod=pod.key, err=refusal.message)
        if attempts.queue.holds(self.queued):  # else it was bound by another scheduler, or deleted, meanwhile
            if refusal.until_changed:  # it may never change, so nothing is kept for it
                attempts.queue.put_back_refused(self.queued, frozenset({BINDER}), now)
            else:
                self._keep(commitment)
                attempts.queue.put_back_failed(self.queued, now)
            attempts.reporter.report_failure(pod, refusal.message)

    def on_fenced(self, commitment: Commitment) -> None:
        self._keep(commitment)
        self._attempts.queue.put_back_withdrawn(self.queued, self._attempts.clock())

    def _keep(self, commitment: Commitment) -> None:
        """Keep the space of a member of a group of which others have a node: without it the group stays half bound."""
        pod, cluster = self.queued.pod, self._attempts.cluster
        members = () if pod.group is None else cluster.groups.members(pod.group.key)
        held = pod.group is not None and self._attempts.queue.groups.is_held(pod.group.key)
        placed = any(cluster.node_of(uid) is not None for uid in members if uid != pod.uid)
        if pod.uid in self._attempts.queue and placed and not held:
            cluster.nominate(commitment.node_name, Nomination(pod, commitment.decision.cores))

    def on_crashed(self, error: Exception) -> None:
        self._attempts.handle_crash(self.queued, error)


@attrs.define(eq=False, kw_only=True)
class PodAttempts:
    """
    Tries pods.

    Attributes:
        profiles: by scheduler name.
        pod_list: no pod is refused or preempted while it is open, for what may only look full.
        claims: is told of pods with claims that are decided; None where claims are off.
        listeners: called in order with each pod and the decision about it, before that is assumed.
    """

    cluster: Cluster
    queue: SchedulingQueue
    profiles: Mapping[str, Profile]
    announcer: Announcer
    preemption_executor: PreemptionExecutor
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    pod_list: PodList
    warmup: IndexWarmup
    errors: UnexpectedErrors
    listeners: tuple[Listener, ...] = ()
    claims: "ClaimBinder | None" = None

    async def warm_up(self) -> None:
        typical = [attrs.evolve(TYPICAL, scheduler_name=name) for name in self.profiles]
        for pod in (*typical, *self.queue.first(_WARM_UP_PODS)):
            with self.errors.contain(task="warm-up", pod=pod.key):  # its attempt reports it again
                profile = self.profiles[pod.scheduler_name]
                for _ in self.warmup.prepare(self.cluster, pod, profile):
                    await anyio.lowlevel.checkpoint()

    async def attempt(self, queued: QueuedPod, aside: deque[QueuedPod] | None = None) -> Commitment | None:
        """
        Decide and assume in one step; None if there is nothing to commit.

        Other tasks may run before that step, if indexes are missing, and after it, if no node takes the pod. It is then
        put aside, if it is not to be refused.
        """
        profile = self.profiles[queued.pod.scheduler_name]
        waited = await self._build(self.warmup.prepare(self.cluster, queued.pod, profile))
        if waited and not self.queue.holds(queued):
            return None
        if self.claims is not None:
            self.claims.settle(queued.pod.uid)
        pod, started = queued.pod, self.clock()
        if _attempts.is_enabled:
            _attempts.info("Attempting to schedule pod", pod=pod.key)
        if pod.nominated_node_name:
            self.preemption_executor.adopt(queued, profile)
        selected = select_node(self.cluster, pod, profile)
        if aside is not None and not isinstance(selected, Decision):
            aside.append(queued)
            return None
        decision = selected if isinstance(selected, Decision) else await self._explain(queued, profile, selected)
        if decision is None:
            return None
        pod = queued.pod  # it may have changed before it was decided
        decided = self.clock()
        self.metrics.observe_decision(decided - started)
        chosen = "" if isinstance(decision, FitError) else decision.node_name
        if OF_OUR_QUEUE.steps.is_enabled:
            # Before the assumption: the lines show what is free.
            extension_log.write_filter(self.cluster, pod, profile, chosen)
        for listener in self.listeners:
            listener(pod, decision)
        if isinstance(decision, FitError):
            await self._handle_refusal(queued, decision, profile, started)
            return None
        taken = take_with_volumes(self.cluster, pod, decision)
        return self.commit(queued, taken, started)

    def commit(self, queued: QueuedPod, taken: AssumedPod, started: float) -> Commitment:
        """Let the others know of an assumption, and return what is to be sent."""
        if taken.claims and self.claims is not None:
            self.claims.on_decided(taken.pod, taken.claims)
        annotations, requester = self.announcer.announce(taken), QueuedAttempt(queued, self)
        return Commitment(
            requester, taken.pod, annotations, taken.decision, started, plan=taken.volumes, claims=taken.claims
        )

    async def _build(self, steps: Iterator[None]) -> bool:
        """Build missing indexes, in turns with other tasks; return whether these have run."""
        waited, turn_ends = False, 0.0
        for _ in steps:
            if not turn_ends:
                turn_ends = self.clock() + LONGEST_TURN
            elif self.clock() >= turn_ends:
                waited, turn_ends = True, 0.0
                await anyio.lowlevel.checkpoint()
        return waited

    async def _explain(self, queued: QueuedPod, profile: Profile, no_node: NoNode) -> Decision | FitError | None:
        """
        Return why no node takes the pod, or a new decision if other tasks have run since; None if the pod is gone.

        In the middle of a list deleted pods still count beside new ones: no pod is preempted for that.
        """
        waited = await self.wait_for_list()
        if not await self._build(self.warmup.prepare_refusal(self.cluster, queued.pod, profile)) and not waited:
            return fit_error(self.cluster, queued.pod, profile, no_node)
        await self._build(self.warmup.prepare(self.cluster, queued.pod, profile))
        return schedule_pod(self.cluster, queued.pod, profile) if self.queue.holds(queued) else None

    async def wait_for_list(self) -> bool:
        """Wait for the end of a list of pods, but not for long; return whether there was anything to wait for."""
        waited, until = False, self.clock() + LONGEST_LIST
        while self.pod_list.is_open and self.clock() < until:
            waited = True
            await anyio.sleep(_LOOK_AT_LIST)
        return waited

    async def _handle_refusal(self, queued: QueuedPod, refused: FitError, profile: Profile, started: float) -> None:
        after = PostFilter()
        if refused.nodes:
            after = await self.preemption_executor.post_filter(queued, refused, profile)
        self.handle_unschedulable(queued, attrs.evolve(refused, preemption=after.text), after, started)

    def handle_unschedulable(self, queued: QueuedPod, refused: FitError, after: PostFilter, started: float) -> None:
        """Put a pod back that no node takes now, and report why; `after` says what preemption has done for it."""
        pod, now = queued.pod, self.clock()
        if not self.queue.holds(queued):
            return  # gone, or bound by another scheduler, in the meantime
        if self.cluster.has_turn(pod.uid):
            refused = attrs.evolve(refused, turn=turn_text(self.cluster, pod))
        self.queue.put_back_refused(
            queued,
            refused.plugins,
            now,
            is_preempting=after.held,
            has_nomination=self.cluster.is_nominated(pod.uid),
            alone=after.alone or self.cluster.has_turn(pod.uid),
            cause=refused.cause,
            waits_for=after.plugins or refused.plugins,
        )
        self.metrics.count_attempt("unschedulable", pod.scheduler_name, now - started)
        log.info(NO_FIT if refused.nodes else NO_NODES, v=2, pod=pod.key, err=refused.text)
        self.reporter.report_unschedulable(
            pod, refused.text, new_node_cannot_help=refused.new_node_cannot_help, nomination=after.nomination
        )

    def handle_crash(self, queued: QueuedPod, error: Exception) -> None:
        """
        Handle an exception in an attempt, or in applying its outcome, as the pod's error.

        What the attempt assumed is forgotten unless the pod has left the queue: it is known to be bound then. If one of
        the steps fails too, the others are still done.
        """
        pod, now = queued.pod, self.clock()
        message = self.errors.report(error, task="scheduling", pod=pod.key)
        if not self.queue.holds(queued):
            return
        for step in (
            partial(self.cluster.forget, pod.uid),
            partial(self.queue.put_back_failed, queued, now),
            partial(self.metrics.count_attempt, "error", pod.scheduler_name, 0.0),
            partial(self.reporter.report_failure, pod, message),
        ):
            with self.errors.contain(task="scheduling", pod=pod.key):
                step()
