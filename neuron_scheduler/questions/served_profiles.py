"""With which profile a question about a pod is answered. Does not say that another scheduler would decide alike."""

from collections.abc import Mapping
from typing import Final

import attrs

from neuron_scheduler.scheduling.cycle.profile import Profile

BESIDE_KUBE_SCHEDULER: Final = (
    "kube-scheduler decides this pod: only what it asks neuron-scheduler about is considered here, which is Neuron"
    " devices, their nodes, and the resources of pods that are about to be bound."
)


@attrs.frozen(eq=False)
class ServedProfiles:
    """
    The profiles of this process.

    Attributes:
        by_name: those of its own queue, by scheduler name; the first one also answers for other schedulers' pods.
        extender: for kube-scheduler's pods, where there is no queue.
    """

    by_name: Mapping[str, Profile]
    extender: Profile

    def of(self, scheduler_name: str) -> Profile:
        """Return the profile for pods of a scheduler."""
        return self.by_name.get(scheduler_name) or next(iter(self.by_name.values()), self.extender)

    @property
    def first(self) -> str:
        """The scheduler name of pods that name none."""
        return next(iter(self.by_name), "")

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader has to know of every decision."""
        return () if self.by_name else (BESIDE_KUBE_SCHEDULER,)
