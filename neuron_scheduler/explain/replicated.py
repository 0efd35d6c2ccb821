"""
The workload that the question "how many more fit?" is about: a template of pods, or several that go together.

Does not depend on where it comes from: flags, a file or a request.
"""

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolumeClaim
from neuron_scheduler.model.workload import Workload


@attrs.frozen
class PodSet:
    """
    Equal pods of one replica.

    Attributes:
        template: a pod without a node; its name begins the names of its copies.
        count: pods of one replica.
        name: such as `worker`; empty if the replica has only this one.
        claims: claims of each pod alone; the name is that of the claim in the template's `volume_claims`.
    """

    template: Pod
    count: int = 1
    name: str = ""
    claims: tuple[PersistentVolumeClaim, ...] = ()


@attrs.frozen
class Replicated:
    """
    Replicas of pods.

    Attributes:
        replicas: how many are wanted; 0 to ask how many there can be.
        pod_sets: the pods of one replica, in the order in which they are placed.
        name: such as `Job train`.
        controller: selects the pods for the default spread constraints; None if nothing is known.
        notes: what could not be read of it, for the answer.
    """

    replicas: int
    pod_sets: tuple[PodSet, ...]
    name: str = ""
    controller: Workload | None = None
    notes: tuple[str, ...] = ()

    @property
    def pods_per_replica(self) -> int:
        """How many pods one replica has."""
        return sum(pod_set.count for pod_set in self.pod_sets)


def replicated(template: Pod, replicas: int) -> Replicated:
    """Return replicas of one pod each."""
    return Replicated(replicas, (PodSet(template),))
