"""
What the definite outcome of an attempt means for the cluster, the queue, the metrics and the pod's owner.

Upstream: the end of `bindingCycle`, and `handleSchedulingFailure`, in `pkg/scheduler/schedule_one.go`. Refuses to send
anything to the API server.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.kube.writes.binder import BindOutcome, Bound, Fenced, Gone, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.hints import NodeChange
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import BINDER, SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import taken_back
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

log = logs.logger(__name__)


class PodReporter(Protocol):
    """Reports to the pod's owner, in its Events and its condition, how its Binding ended."""

    def scheduled(self, pod: Pod, node_name: str, placement: Placement | None) -> None:
        """Report that the pod is bound, and to which ids."""

    def failed(self, pod: Pod, message: str) -> None:
        """Report that an attempt ended in an error."""


@attrs.define(eq=False, kw_only=True)
class BindingOutcomes:
    """
    Applies outcomes.

    Attributes:
        release: takes back what was assumed for a pod's volumes.
        clock: seconds that never jump.
        errors: reports unexpected exceptions.
    """

    cluster: Cluster
    queue: SchedulingQueue
    reporter: PodReporter
    metrics: Metrics
    release: Callable[[VolumePlan], None]
    clock: Callable[[], float]
    errors: UnexpectedErrors

    def apply(self, commitment: Commitment, outcome: BindOutcome) -> None:
        """Apply a definite outcome; after an exception a pod that is not bound is tried again."""
        try:
            self._apply(commitment, outcome)
        except Exception as error:  # noqa: BLE001 - it is one pod's error
            self.crashed(commitment.queued, error)

    def _apply(self, commitment: Commitment, outcome: BindOutcome) -> None:
        match outcome:
            case Bound():
                self._bound(commitment)
            case Gone():
                self.queue.remove(commitment.pod.uid)
                self._forget(commitment)
            case Refused(message=message, until_changed=until_changed):
                self._forget(commitment)
                self._failed(commitment, message, until_changed=until_changed)
            case Fenced():
                self._forget(commitment)
                self.queue.failed(commitment.queued, self.clock())

    def crashed(self, queued: QueuedPod, error: Exception) -> None:
        """
        Handle an exception in an attempt, or in applying its outcome, as the pod's error.

        What the attempt assumed is forgotten unless the pod has left the queue, which it does as soon as it is known to
        be bound. If one of the steps fails too, the others are still done.
        """
        pod, now = queued.pod, self.clock()
        message = self.errors.report(error, task="scheduling", pod=pod.key)
        if pod.uid not in self.queue:
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

    def _bound(self, commitment: Commitment) -> None:
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
        extension_log.executed(self.cluster, commitment.pod, decision)
        self.reporter.scheduled(commitment.pod, decision.node_name, decision.placement)

    def _failed(self, commitment: Commitment, message: str, *, until_changed: bool) -> None:
        now = self.clock()
        self.metrics.attempted("error", commitment.pod.scheduler_name, now - commitment.started)
        log.error("Error scheduling pod; retrying", pod=commitment.pod.key, err=message)
        if commitment.pod.uid in self.queue:  # else it was bound by another scheduler, or deleted, meanwhile
            if until_changed:
                self.queue.unschedulable(commitment.queued, frozenset({BINDER}), now)
            else:
                self.queue.failed(commitment.queued, now)
            self.reporter.failed(commitment.pod, message)

    def _forget(self, commitment: Commitment) -> None:
        """Free what was assumed, and notify the queue: other pods may be waiting for it."""
        self.cluster.forget(commitment.pod.uid)
        if commitment.plan is not None:
            self.release(commitment.plan)
            for event in taken_back(commitment.plan):
                self.queue.note(event.event, claim=event.claim)
        note_freed(self.cluster, self.queue, commitment.pod, commitment.decision.node_name)


def note_freed(cluster: Cluster, queue: SchedulingQueue, pod: Pod, node_name: str) -> None:
    """Note in the queue that a pod leaves its space on a node, or will not take it."""
    node_info = cluster.node(node_name)
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, on=None if node_info is None else NodeChange(node_info))
