"""
PodDisruptionBudget of `policy/v1`: how many pods of an application may be missing at once.

Preemption is the only voluntary disruption that may violate one.
"""

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector


@attrs.frozen
class DisruptionBudget:
    """
    One PodDisruptionBudget.

    Attributes:
        selector: None where it is absent or unreadable; then, and where it is empty, it matches no pod.
        allowed: `status.disruptionsAllowed`, by the disruption controller.
        disrupted: names of pods whose eviction the API server has granted; they are already counted.
    """

    uid: str
    namespace: str
    name: str
    selector: LabelSelector | None = None
    allowed: int = 0
    disrupted: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def counts(self, pod: Pod) -> bool:
        """Return whether the pod's end would use up one of the allowed disruptions."""
        return pod.name not in self.disrupted and self.selects(pod)

    def selects(self, pod: Pod) -> bool:
        return (
            pod.namespace == self.namespace
            and bool(pod.labels)
            and self.selector is not None
            and bool(self.selector.requirements)
            and self.selector.matches(pod.labels)
        )
