"""
A decision on its way to the API server, which the parts of the binding cycle pass to each other, and why it may fail.

It knows its requester, who is told its outcome: an attempt of the scheduling loop, or a call of kube-scheduler's.
Does not apply an outcome: that is `binding_outcomes`.
"""

from collections.abc import Mapping
from typing import Protocol

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.extension_log import Lines
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced, Gone, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.recheck import still_takes
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.queue.queued_pod import matters_for_scheduling
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors


class Requester(Protocol):
    """Asked for a node for a pod, and gets the outcome of the Binding: exactly one of the last four is called."""

    @property
    def pod(self) -> Pod:
        """The pod's present state."""

    @property
    def waits(self) -> bool:
        """Whether the pod still waits for a node: it is not deleted, nor about to be, nor bound by another process."""

    @property
    def lines(self) -> Lines:
        """Where the log lines in the words of AWS's extension go."""

    def bound(self, commitment: "Commitment") -> None:
        """The pod is bound as decided."""

    def gone(self) -> None:
        """The pod does not exist any more; called before its space is freed."""

    def refused(self, commitment: "Commitment", refusal: Refused) -> None:
        """The pod is not bound, and its space is free again."""

    def fenced(self) -> None:
        """Nothing was sent, or nothing that can succeed, and the pod's space is free again."""

    def crashed(self, error: Exception) -> None:
        """An outcome could not be applied; what was assumed for a pod that is not bound is to be forgotten."""


@attrs.frozen
class Commitment:
    """
    A decision that is assumed and waits to be sent.

    Attributes:
        pod: as it was when it was decided; `requester.pod` is its present state.
        annotations: of the Binding, all but NEURON_ALLOC_TIME.
        started: when the attempt began.
        plan: what its volumes need before the Binding.
        count_unknown_only: as in the profile by which it was decided.
    """

    requester: Requester
    pod: Pod
    annotations: Mapping[str, str]
    decision: Decision
    started: float
    plan: VolumePlan | None = None
    count_unknown_only: bool = attrs.field(default=False, kw_only=True)

    @property
    def node_name(self) -> str:
        """The node that the pod is to be bound to."""
        return self.decision.node_name


def obstacle(cluster: Cluster, commitment: Commitment, errors: UnexpectedErrors) -> BindOutcome | None:
    """Return the outcome of a commitment that waited and cannot be bound as decided any more; None if it can."""
    try:
        return _obstacle(cluster, commitment)
    except Exception as error:  # noqa: BLE001 - it is one pod's error
        return refused_by(error, commitment, errors, task="binding")


def _obstacle(cluster: Cluster, commitment: Commitment) -> BindOutcome | None:
    pod, node_info = commitment.requester.pod, cluster.node(commitment.node_name)
    if not commitment.requester.waits:
        return Gone()
    if node_info is None:
        return Refused(0, f'node "{commitment.node_name}" not found', retryable=True)
    placement = commitment.decision.placement
    cores = NO_CORES if placement is None else placement.cores
    trusting = commitment.count_unknown_only
    if matters_for_scheduling(commitment.pod, pod) or not still_takes(
        node_info, pod, cores, count_unknown_only=trusting
    ):
        return Fenced()
    return None


def refused_by(error: Exception, commitment: Commitment, errors: UnexpectedErrors, *, task: str) -> Refused:
    """Report an unexpected exception in the work on a commitment, and return what it means: a refusal."""
    return Refused(0, errors.report(error, task=task, pod=commitment.pod.key), retryable=True)
