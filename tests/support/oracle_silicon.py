"""
The oracle's part about devices and cores: what pods leave of them, whether a request fits, and how good a fit is.

It shares with the code which sets are legal (`neuron.topology`) and how annotations are read, and nothing else.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, floor

import attrs

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_CORE
from neuron_scheduler.neuron.annotations import allocation_of
from neuron_scheduler.neuron.catalog import Machine, machine_of
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import illegal_count, place, whole_free_devices
from tests.support.oracle_node import domain_of


@attrs.frozen
class Machinery:
    """One node's silicon as its pods leave it."""

    machine: Machine
    free: CoreMask
    unknown_devices: int
    unknown_cores: int
    in_between: bool


def illegal(node: Node, pod: Pod) -> list[str]:
    """Return the sentence about a count that the type never serves, unless the node is too small for it anyway."""
    machine, request = machine_of(node), pod.neuron
    if machine is None or request is None or node.allocatable.get(request.resource, 0) < request.total:
        return []
    sentence = illegal_count(machine, request)
    return [sentence] if sentence else []


def free_amounts(node: Node, here: Sequence[Pod]) -> Mapping[str, int]:
    """Return what is left of each resource, never below 0."""
    return {
        name: max(0, amount - sum(p.requests.get(name, 0) for p in here)) for name, amount in node.allocatable.items()
    }


def silicon(node: Node, here: Sequence[Pod]) -> Machinery | None:
    """Return what the pods leave of a node's silicon."""
    machine = machine_of(node)
    if machine is None:
        return None
    free, unknown_devices, unknown_cores, in_between = machine.all_cores, 0, 0, False
    for pod in here:
        cores = allocation_of(pod, machine)[0]
        if cores is not None:
            free &= ~cores
            in_between |= bool(cores) and pod.neuron is not None and pod.neuron.total > 1 and cores != machine.all_cores
        elif pod.neuron is None:
            unknown_devices += machine.devices
            unknown_cores += machine.core_count
        else:
            in_cores = pod.neuron.unit is Unit.CORE
            elsewhere = pod.requests[NEURON_CORE] if NEURON_CORE in pod.requests and not in_cores else 0
            unknown_devices += pod.neuron.total + elsewhere
            unknown_cores += pod.neuron.total * (1 if in_cores else machine.cores_per_device) + elsewhere
    return Machinery(machine, free, unknown_devices, unknown_cores, in_between)


def wholeness(nodes: Sequence[Node], bound: Sequence[Pod], node: Node) -> int:
    """Return the class of a node: 0 if it is in no UltraServer, then broken pair, broken four, intact one."""
    found = 0
    for size, broken in ((2, 1), (4, 2)):
        key = f"neuron.amazonaws.com/ultraserver-server-id-{size}"
        domain = domain_of(node, key)
        if domain is not None:
            found = 3
            if sum(is_whole(each, bound) for each in nodes if domain_of(each, key) == domain) < size:
                return broken
    return found


def is_whole(node: Node, bound: Sequence[Pod]) -> bool:
    """Return whether a pod can take all of a node's silicon."""
    left = silicon(node, [pod for pod in bound if pod.node_name == node.name])
    if left is None or left.unknown_devices or left.free != left.machine.all_cores:
        return False
    return not (node.unschedulable or node.neuron_fault)


def no_block(node: Node, here: Sequence[Pod], pod: Pod) -> list[str]:
    """Return why the free devices and cores are not enough."""
    request, left = pod.neuron, silicon(node, here)
    if request is None:
        return []
    by_core = request.unit is Unit.CORE
    free = doubtful = 0
    if left is not None:
        free = left.free.bit_count() if by_core else whole_free_devices(left.machine, left.free)
        doubtful = left.unknown_cores if by_core else left.unknown_devices
    reason = ""
    if node.neuron_fault:
        reason = f"node(s) had an unhealthy Neuron device ({node.neuron_fault})"
    elif left is None or free < request.total:
        reason = f"Insufficient {request.resource}"
    elif doubtful and (request.total > 1 or free <= doubtful):
        reason = "node(s) had a pod with an unknown Neuron allocation"
    elif place(left.machine, left.free, request) is None:
        reason = f"node(s) didn't have a free block of Neuron {'cores' if by_core else 'devices'}"
    return [reason] if reason else []


def of_silicon(node: Node, here: Sequence[Pod], pod: Pod, left: Machinery | None) -> tuple[int, ...]:
    """Return the part that differs between pods with and without Neuron."""
    free = free_amounts(node, here)
    eighths = [free[name] * 8 // node.allocatable[name] for name in (CPU, MEMORY) if node.allocatable.get(name)]
    if pod.neuron is None or left is None:
        return (left is not None, -sum(eighths))
    placement = place(left.machine, left.free, pod.neuron)
    if placement is None:
        raise AssertionError("a feasible node has a placement")
    crowded = left.in_between and pod.neuron.total == 1
    return (placement.level, crowded, stranded(node, free, pod, left, placement.cores.bit_count()))


def stranded(node: Node, free: Mapping[str, int], pod: Pod, left: Machinery, taken: int) -> int:
    """Return by how much |share of cpu left - share of silicon left|, and of memory, grows: 16ths times devices."""
    grown = 0
    for name in (CPU, MEMORY):
        whole, size = node.allocatable.get(name, 0), left.machine.core_count
        if whole > 0:
            surplus = floor((Fraction(free[name], whole) - Fraction(left.free.bit_count(), size)) * 16)
            alike = int(f"{whole:b}"[:6].ljust(len(f"{whole:b}"), "0"), 2)  # nodes of one type differ slightly
            more = (Fraction(pod.requests.get(name, 0), alike) - Fraction(taken, size)) * 16
            grown += abs(surplus - (ceil(more) if more > 0 else floor(more))) - abs(surplus)
    return grown * left.machine.devices
