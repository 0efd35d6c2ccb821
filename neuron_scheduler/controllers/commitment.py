"""
A decision that is assumed, on its way to the outcome of its Binding.

    decision --assume--> Commitment --`binding_cycle`--> outcome --settle--> cluster, queue, log, requester

From the assumption on, the pod is on its node for every later decision. Nothing awaits between decision and assumption.
Upstream: `assume` in `pkg/scheduler/schedule_one.go`.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.extension_log import OF_OUR_QUEUE, Lines
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced, Gone, Refused, too_many
from neuron_scheduler.model.annotations import OUR_LEADER
from neuron_scheduler.model.devices import ClaimWrite
from neuron_scheduler.model.pod import Pod, assigned_pod
from neuron_scheduler.scheduling.cycle.recheck import still_takes
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.trial import AssumedPod
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.places import matters_for_scheduling
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors


class Requester(Protocol):
    """Asked for a node for a pod, and gets the outcome of the Binding: exactly one `on_...` is called."""

    @property
    def pod(self) -> Pod: ...

    @property
    def withdrawal(self) -> Gone | Fenced | None:
        """Gone if the pod is deleted, about to be, or bound by another process; Fenced if it is to wait; else None."""

    def on_bound(self, commitment: "Commitment") -> None: ...

    def on_gone(self) -> None:
        """The pod does not exist any more; called before its space is freed."""

    def on_refused(self, commitment: "Commitment", refusal: Refused) -> None: ...

    def on_fenced(self, commitment: "Commitment") -> None:
        """Nothing was sent, or nothing that can succeed, and the pod's space is free again."""

    def on_crashed(self, error: Exception) -> None:
        """An outcome could not be applied; what was assumed for a pod that is not bound is to be forgotten."""


@attrs.frozen
class Commitment:
    """
    A decision that is assumed and waits to be sent.

    Attributes:
        pod: as it was when it was decided; `requester.pod` is its present state.
        annotations: of the Binding, all but NEURON_ALLOC_TIME.
        started: when the attempt began.
        plan, claims: what has to be written to volumes, and to claims, before the Binding.
        lines: where the log lines in the words of AWS's extension go.
    """

    requester: Requester
    pod: Pod
    annotations: Mapping[str, str]
    decision: Decision
    started: float
    plan: VolumePlan | None = None
    claims: tuple[ClaimWrite, ...] = ()
    lines: Lines = OF_OUR_QUEUE

    @property
    def refusal(self) -> Refused | None:
        """A refusal that is known before the Binding is sent."""
        return too_many(self.annotations, already=self.pod.annotations_size)

    @property
    def node_name(self) -> str:
        return self.decision.node_name


def obstacle(cluster: Cluster, commitment: Commitment, errors: UnexpectedErrors) -> BindOutcome | None:
    """Return the outcome of a commitment that waited and cannot be bound as decided any more; None if it can."""
    try:
        return _obstacle(cluster, commitment)
    except Exception as error:  # noqa: BLE001 - it is one pod's error
        return refused_by(error, commitment, errors, task="binding")


def _obstacle(cluster: Cluster, commitment: Commitment) -> BindOutcome | None:
    pod, node_info = commitment.requester.pod, cluster.node(commitment.node_name)
    withdrawal = commitment.requester.withdrawal
    if withdrawal is not None:
        return withdrawal
    if node_info is None:
        return Refused(0, f'node "{commitment.node_name}" not found')
    if matters_for_scheduling(commitment.pod, pod) or not still_takes(node_info, pod, commitment.decision.cores):
        return Fenced()
    return None


def has_place(cluster: Cluster, commitment: Commitment) -> bool:
    """Return whether the pod still has on its node what was decided; it has not if the node is another machine now."""
    node_info = cluster.node(commitment.node_name)
    pod_info = None if node_info is None else node_info.pod_infos.get(commitment.pod.uid)
    return pod_info is not None and pod_info.cores == commitment.decision.cores


def refused_by(error: Exception, commitment: Commitment, errors: UnexpectedErrors, *, task: str) -> Refused:
    """Report an unexpected exception in the work on a commitment, and return what it means: a refusal."""
    return Refused(0, errors.report(error, task=task, pod=commitment.pod.key))


@attrs.frozen(eq=False, kw_only=True)
class Announcer:
    """
    Lets the others know that a pod is assumed.

    Attributes:
        recheck: `PreemptionExecutor.recheck`: drops the nominations on a node that cannot be kept any more.
        identity: the holder of the Lease, for the fence at the API server; empty without leader election.
    """

    cluster: Cluster
    queue: SchedulingQueue
    recheck: Callable[[str], None]
    identity: str = ""

    def announce(self, taken: AssumedPod) -> Mapping[str, str]:
        """Let the others know of an assumption, and return the annotations of its Binding."""
        self.queue.note(
            ClusterEvent.ASSIGNED_POD_ADDED, assigned_pod(taken.pod, taken.decision.node_name, taken.allocation)
        )
        node_info = self.cluster.node(taken.decision.node_name)
        if node_info is not None and node_info.nominations:
            self.recheck(taken.decision.node_name)
        if taken.nominated is not None:  # the nominated space may be free for other pods
            note_freed(self.cluster, self.queue, taken.pod, taken.nominated[0])
        return {**taken.allocation, OUR_LEADER: self.identity} if self.identity else taken.allocation


def note_freed(cluster: Cluster, queue: SchedulingQueue, pod: Pod, node_name: str) -> None:
    queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, on=cluster.node(node_name))
