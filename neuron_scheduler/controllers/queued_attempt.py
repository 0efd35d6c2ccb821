"""
An attempt of the scheduling loop: what its outcome means for the queue, the metrics and the pod's owner.

Upstream: `handleSchedulingFailure` in `pkg/scheduler/schedule_one.go`. Refuses to preempt, and to change the cluster,
but for an attempt that ended in an exception.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.controllers.extension_log import OF_OUR_QUEUE, Lines
from neuron_scheduler.controllers.preemption_executor import PostFilter
from neuron_scheduler.kube.writes.binder import Refused
from neuron_scheduler.model.nomination import NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import BINDER, SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

log = logs.logger(__name__)

NO_FIT: Final = "Unable to schedule pod; no fit; waiting"
NO_NODES: Final = "Unable to schedule pod; no nodes are registered to the cluster; waiting"


class PodReporter(Protocol):
    """Reports to the pod's owner, in its Events and its condition, how an attempt ended."""

    def scheduled(self, pod: Pod, node_name: str, placement: Placement | None) -> None:
        """Report that the pod is bound, and to which ids."""

    def unschedulable(
        self, pod: Pod, message: str, *, new_node_cannot_help: bool, nomination: NominationChange
    ) -> None:
        """Report why no node takes the pod now, and what becomes of its nominated node."""

    def failed(self, pod: Pod, message: str) -> None:
        """Report that an attempt ended in an error."""


@attrs.define(eq=False, kw_only=True)
class QueuedAttempts:
    """
    What the attempts of a scheduling loop have in common.

    Attributes:
        clock: seconds that never jump, the queue's time.
        errors: reports unexpected exceptions.
    """

    cluster: Cluster
    queue: SchedulingQueue
    reporter: PodReporter
    metrics: Metrics
    clock: Callable[[], float]
    errors: UnexpectedErrors

    def unschedulable(self, queued: QueuedPod, refused: FitError, after: PostFilter, started: float) -> None:
        """Put a pod back that no node takes now, and report why; `after` says what preemption has done for it."""
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

    def crashed(self, queued: QueuedPod, error: Exception) -> None:
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


@attrs.frozen(eq=False)
class QueuedAttempt:
    """The requester of a commitment that the scheduling loop has made."""

    queued: QueuedPod
    _shared: QueuedAttempts

    @property
    def pod(self) -> Pod:
        """The pod's present state."""
        return self.queued.pod

    @property
    def waits(self) -> bool:
        """Whether the pod is still in the queue."""
        return self.queued.pod.uid in self._shared.queue

    @property
    def lines(self) -> Lines:
        """The lines about pods of our own queue."""
        return OF_OUR_QUEUE

    def bound(self, commitment: Commitment) -> None:
        """Take the pod out of the queue, and report it."""
        shared, queued, pod = self._shared, self.queued, commitment.pod
        now = shared.clock()
        shared.queue.remove(pod.uid)
        shared.metrics.attempted("scheduled", pod.scheduler_name, now - commitment.started)
        first = queued.since if queued.first_active is None else queued.first_active
        shared.metrics.scheduled(attempts=queued.attempts, seconds=now - first)
        shared.reporter.scheduled(pod, commitment.node_name, commitment.decision.placement)

    def gone(self) -> None:
        """Take the pod out of the queue."""
        self._shared.queue.remove(self.queued.pod.uid)

    def refused(self, commitment: Commitment, refusal: Refused) -> None:
        """Put the pod back, and report why."""
        shared, pod = self._shared, commitment.pod
        now = shared.clock()
        shared.metrics.attempted("error", pod.scheduler_name, now - commitment.started)
        log.error("Error scheduling pod; retrying", pod=pod.key, err=refusal.message)
        if shared.queue.holds(self.queued):  # else it was bound by another scheduler, or deleted, meanwhile
            if refusal.until_changed:
                shared.queue.unschedulable(self.queued, frozenset({BINDER}), now)
            else:
                shared.queue.failed(self.queued, now)
            shared.reporter.failed(pod, refusal.message)

    def fenced(self) -> None:
        """Put the pod back; it is tried again after a backoff."""
        self._shared.queue.failed(self.queued, self._shared.clock())

    def crashed(self, error: Exception) -> None:
        """Handle the exception as the pod's error."""
        self._shared.crashed(self.queued, error)
