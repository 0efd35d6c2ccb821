"""
A decision on its way to the API server, which the parts of the binding cycle pass to each other, and why it may fail.

Refuses to apply an outcome: that is `binding_outcomes`.
"""

from collections.abc import Mapping

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced, Gone, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.recheck import still_takes
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod, matters_for_scheduling
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors


@attrs.frozen
class Commitment:
    """
    A decision that is assumed and waits to be sent.

    Attributes:
        pod: as it was when it was decided; `queued.pod` is its present state.
        annotations: of the Binding, all but NEURON_ALLOC_TIME.
        started: when the attempt began.
        plan: what its volumes need before the Binding.
    """

    queued: QueuedPod
    pod: Pod
    annotations: Mapping[str, str]
    decision: Decision
    started: float
    plan: VolumePlan | None = None

    @property
    def node_name(self) -> str:
        """The node that the pod is to be bound to."""
        return self.decision.node_name


def obstacle(cluster: Cluster, queue: SchedulingQueue, commitment: Commitment) -> BindOutcome | None:
    """Return the outcome of a commitment that waited and cannot be bound as decided any more; None if it can."""
    pod, node_info = commitment.queued.pod, cluster.node(commitment.node_name)
    if pod.uid not in queue:
        return Gone()  # deleted, about to be, or bound by another scheduler
    if node_info is None:
        return Refused(0, f'node "{commitment.node_name}" not found', retryable=True)
    placement = commitment.decision.placement
    cores = NO_CORES if placement is None else placement.cores
    if matters_for_scheduling(commitment.pod, pod) or not still_takes(node_info, pod, cores):
        return Fenced()
    return None


def refused_by(error: Exception, commitment: Commitment, errors: UnexpectedErrors, *, task: str) -> Refused:
    """Report an unexpected exception in the work on a commitment, and return what it means: a refusal."""
    return Refused(0, errors.report(error, task=task, pod=commitment.pod.key), retryable=True)
