"""A decision on its way to the API server: what the parts of the binding cycle hand to each other."""

from collections.abc import Mapping

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod


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
