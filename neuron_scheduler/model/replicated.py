"""A workload as its pods: what a Job, a Deployment or a JobSet would create."""

import attrs

from neuron_scheduler.model.pod import Pod


@attrs.frozen
class PodSet:
    """
    Equal pods of one replica.

    Attributes:
        template: a pod without a node; its name begins the names of its copies.
        count: pods of one replica.
        name: such as `worker`; empty if the replica has only this one.
    """

    template: Pod
    count: int = 1
    name: str = ""


@attrs.frozen
class Replicated:
    """
    Replicas of pods.

    Attributes:
        replicas: how many are wanted; 0 to ask how many there can be.
        pod_sets: the pods of one replica, in the order in which they are placed.
        name: such as `Job train`.
        notes: what could not be read of it, for the answer.
    """

    replicas: int
    pod_sets: tuple[PodSet, ...]
    name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def pods_per_replica(self) -> int:
        return sum(pod_set.count for pod_set in self.pod_sets)
