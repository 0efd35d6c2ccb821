"""
A pod on a node with what it holds there, read once when it comes.

Refuses to take what cannot be read for nothing: its holder is then an unknown one.
"""

from collections.abc import Mapping
from operator import attrgetter

import attrs

from neuron_scheduler.model.annotations import ID_KEYS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import HeldVolume
from neuron_scheduler.neuron.annotations import read
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask


@attrs.frozen
class PodInfo:
    """
    A pod on a node, with what it holds there.

    Attributes:
        cores: mask of the core bits it provably holds; None for an unknown holder; 0 without Neuron.
        problem: why the allocation is unknown, in words; empty otherwise.
        unreadable: the object itself could not be read, so how much it holds is unknown too.
        volumes: its claims and what they attach.
    """

    pod: Pod
    cores: CoreMask | None = NO_CORES
    problem: str = ""
    unreadable: bool = False
    volumes: tuple[HeldVolume, ...] = ()

    def holds_as_before(self, pod: Pod) -> bool:
        """Tell whether the pod's new state is of one that holds on the same node what this tenant holds."""
        mine = self.pod
        if self.unreadable or _held(pod) != _held(mine):
            return False
        return pod.allocation == mine.allocation or all(
            pod.allocation.get(key) == mine.allocation.get(key) for key in ID_KEYS
        )


_held = attrgetter(
    *("node_name", "neuron", "neuron_containers", "requests", "host_ports", "priority"),
    *("constraints.volume_claims", "constraints.disks"),
)
"""All of a pod that a reading of it and the sums of a row depend on, but for its allocation."""

NO_POD_INFOS: Mapping[str, PodInfo] = {}


def pod_info_of(pod: Pod, machine: Machine | None) -> PodInfo:
    """Read what a bound pod holds on a machine."""
    allocation = read(pod, machine)
    return PodInfo(pod, cores=allocation.cores, problem=allocation.problem)
