"""
Which of a node's devices and cores are held, computed from its pods.

Two pods that claim one core both hold it until both are gone; an unknown holder counts as the most it may hold. Refuses
to say which cores a pod should get: that is for `neuron.topology`.
"""

from collections.abc import Mapping

import attrs

from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask


@attrs.frozen
class NeuronUsage:
    """
    Which of a node's devices and cores are held, and how certain that is.

    Attributes:
        free: the cores that no pod certainly holds.
        double_booked: the cores that more than one pod claims.
        has_multi_unit_pod: some pod holds more than one unit but not the whole machine.
        unknown_holders: how many pods have ids that cannot be read.
        unknown_devices: the most whole devices that unknown holders may use in part.
        unknown_cores: the most cores that unknown holders may hold.
    """

    free: CoreMask = NO_CORES
    double_booked: CoreMask = NO_CORES
    has_multi_unit_pod: bool = False
    unknown_holders: int = 0
    unknown_devices: int = 0
    unknown_cores: int = 0


NO_NEURON_USAGE = NeuronUsage()


def neuron_usage_with(
    pod_info: PodInfo, before: NeuronUsage, machine: Machine | None, pod_infos: Mapping[str, PodInfo]
) -> NeuronUsage:
    """Return the usage with one more of the pods; the others are read again only if cores are unknown."""
    cores = pod_info.cores
    if cores == 0 or machine is None:
        return before
    if cores is None or before.unknown_holders:
        return neuron_usage_of(machine, pod_infos)
    return NeuronUsage(
        free=before.free & ~cores,
        double_booked=before.double_booked | cores & (machine.all_cores ^ before.free),
        has_multi_unit_pod=before.has_multi_unit_pod or _holds_several_units(pod_info, machine),
    )


def _holds_several_units(pod_info: PodInfo, machine: Machine) -> bool:
    request = pod_info.pod.neuron
    return request is not None and request.total > 1 and pod_info.cores != machine.all_cores


def neuron_usage_of(machine: Machine | None, pod_infos: Mapping[str, PodInfo]) -> NeuronUsage:
    """Return the usage of a machine by these pods."""
    if machine is None:
        return NO_NEURON_USAGE
    held = double_booked = NO_CORES
    unknown_holders = unknown_devices = unknown_cores = 0
    has_multi_unit_pod = False
    for pod_info in pod_infos.values():
        if pod_info.cores is None:
            devices, cores = _may_hold(pod_info, machine)
            unknown_holders += 1
            unknown_devices += devices
            unknown_cores += cores
        elif pod_info.cores:
            double_booked |= held & pod_info.cores
            held |= pod_info.cores
            has_multi_unit_pod |= _holds_several_units(pod_info, machine)
    return NeuronUsage(
        machine.all_cores & ~held, double_booked, has_multi_unit_pod, unknown_holders, unknown_devices, unknown_cores
    )


def _may_hold(pod_info: PodInfo, machine: Machine) -> tuple[int, int]:
    """Return the most devices that an unknown holder may use in part, and the most cores that it may hold."""
    request = pod_info.pod.neuron
    if request is None or pod_info.unreadable:
        return machine.devices, machine.core_count
    if request.unit is Unit.DEVICE:
        return request.total, request.total * machine.cores_per_device
    return request.total, request.total  # at worst every core is on a device of its own
