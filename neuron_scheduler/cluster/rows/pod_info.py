"""A pod on a node with what it holds there, read once when the pod is added."""

from collections.abc import Mapping
from operator import attrgetter

import attrs

from neuron_scheduler.model.annotations import ID_KEYS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import HeldVolume
from neuron_scheduler.neuron.annotations import allocation_of
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask

_holdings = attrgetter(
    *("node_name", "neuron", "neuron_containers", "requests", "host_ports", "priority", "devices"),
    *("constraints.volume_claims", "constraints.disks"),
)
"""The fields of a pod on which what it holds and the sums of a row depend, apart from its allocation."""


@attrs.frozen
class PodInfo:
    """
    A pod on a node, with what it holds there.

    Attributes:
        cores: what it certainly holds; None for an unknown holder, empty for a pod without Neuron.
        problem: why the allocation is unknown, or why its latest change is ignored; empty if neither.
        unreadable: the object could not be decoded, so even the number of devices is unknown.
        volumes: the keys of its claims, and the volumes and disks that are attached for it.
        is_evictable: it can be read, and the API server has not lately refused to delete it.
    """

    pod: Pod
    cores: CoreMask | None = NO_CORES
    problem: str = ""
    unreadable: bool = False
    volumes: tuple[HeldVolume, ...] = ()
    is_evictable: bool = True

    def holds_the_same(self, pod: Pod) -> bool:
        before = self.pod
        if self.unreadable or _holdings(pod) != _holdings(before):
            return False
        return pod.allocation == before.allocation or all(
            pod.allocation.get(key) == before.allocation.get(key) for key in ID_KEYS
        )

    def takes_more_than(self, before: "PodInfo") -> bool:
        """Return whether the pod asks for more of something than before; a resize in place may raise its requests."""
        then, now = before.pod.requests, self.pod.requests
        return now is not then and any(then.get(name, 0) < amount for name, amount in now.items())


NO_POD_INFOS: Mapping[str, PodInfo] = {}


def pod_info_of(pod: Pod, machine: Machine | None) -> PodInfo:
    if pod.claims and machine is not None and machine.published is not None:
        return PodInfo(pod, cores=machine.published.bits_of(pod.devices, pod.node_name))
    cores, problem = allocation_of(pod, machine)
    return PodInfo(pod, cores, problem)
