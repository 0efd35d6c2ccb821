"""
What the definite outcome of an attempt means for the cluster, the log, and the requester of the commitment.

Upstream: the end of `bindingCycle` in `pkg/scheduler/schedule_one.go`. Does not send anything to the API server, and
to know what a requester does with an outcome.
"""

from collections.abc import Callable

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import extension_log
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.kube.writes.binder import BindOutcome, Bound, Fenced, Gone, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.hints import NodeChange
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import taken_back
from neuron_scheduler.telemetry import logs

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class BindingOutcomes:
    """
    Applies outcomes.

    Attributes:
        release: takes back what was assumed for a pod's volumes.
    """

    cluster: Cluster
    queue: SchedulingQueue
    release: Callable[[VolumePlan], None]

    def apply(self, commitment: Commitment, outcome: BindOutcome) -> None:
        """Apply a definite outcome; after an exception a pod that is not bound loses its place."""
        try:
            self._apply(commitment, outcome)
        except Exception as error:  # noqa: BLE001 - it is one pod's error
            commitment.requester.crashed(error)

    def _apply(self, commitment: Commitment, outcome: BindOutcome) -> None:
        requester = commitment.requester
        match outcome:
            case Bound():
                requester.bound(commitment)
                self._log_bound(commitment)
            case Gone():
                requester.gone()
                self._forget(commitment)
            case Refused() as refusal:
                self._forget(commitment)
                requester.refused(commitment, refusal)
            case Fenced():
                self._forget(commitment)
                requester.fenced()

    def _log_bound(self, commitment: Commitment) -> None:
        pod, decision, ids = commitment.pod, commitment.decision, {}
        if decision.placement is not None and pod.neuron is not None:
            ids = {f"{pod.neuron.unit}s": ",".join(map(str, decision.placement.ids))}
        log.info(
            "Successfully bound pod to node",
            v=2,
            pod=pod.key,
            node=decision.node_name,
            evaluatedNodes=decision.evaluated,
            feasibleNodes=decision.feasible,
            **ids,
        )
        extension_log.executed(self.cluster, pod, decision, commitment.requester.lines)

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
