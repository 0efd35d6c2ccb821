"""What is used up on a node: host ports, resources, Neuron devices and cores (see `arithmetic`)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.memo import memoised
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS, PODS
from neuron_scheduler.model.wording import clipped, counted, few, few_names, listed, quantity
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.topology import free_blocks
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked, serves, unknown_holder
from neuron_scheduler.scheduling.plugins import neuron_topology, node_ports, node_resources_fit
from neuron_scheduler.scheduling.plugins.neuron_topology import free_units_of, largest_block_of
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient

_TOO_FEW: Final = (neuron_topology.UNHEALTHY, neuron_topology.UNKNOWN, *neuron_topology.NO_BLOCK.values())
_Sentence = Callable[[Slot, NodeInfo, Sequence[str]], str]


def ports(_view: View, pod: Pod) -> _Sentence:
    """Return which of the pod's host ports are taken, and by whom."""

    def sentence(_slot: Slot, node_info: NodeInfo, _reasons: Sequence[str]) -> str:
        taken = []
        for port in pod.host_ports:
            users = [user.key for user in node_ports.users(port, node_info)]
            if users:
                taken.append(f"host port {port.port}/{port.protocol} is used by {few_names(users)}")
        return few(taken)

    return sentence


def resources(view: View, pod: Pod) -> _Sentence:
    """Return how much of each lacking resource the pod needs, and how much is allocatable, used and free."""
    reasons_of = {insufficient(name): name for name in pod.requests}
    unknown = {name for name in pod.requests if not view.offers(name)}

    def sentence(_slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        parts = []
        for reason in reasons:
            name = PODS if reason == node_resources_fit.TOO_MANY_PODS else reasons_of[reason]
            if name in unknown:
                parts.append(f"needs {quantity(name, pod.requests[name])} {clipped(name)}; no node has any")
                continue
            allocatable, used = node_info.node.allocatable.get(name, 0), node_info.used.get(name, 0)
            parts.append(resource_text(name, pod.requests.get(name, 0) if name != PODS else 1, allocatable, used))
            if pod.neuron is not None and name == pod.neuron.resource:
                parts[-1] += _by_ids(pod.neuron, node_info, max(0, allocatable - used))
        return "; ".join(parts)

    return sentence


def _by_ids(request: NeuronRequest, node_info: NodeInfo, free: int) -> str:
    """Return how many devices or cores are free, if not as many as the kubelet counts; empty otherwise."""
    really = free_units_of(request.resource)(node_info)
    if node_info.machine is None or really == free:
        return ""
    units = counted(really, f"whole {Unit.DEVICE}" if request.unit is Unit.DEVICE else Unit.CORE)
    return f"; by the ids that pods hold, {units} {'is' if really == 1 else 'are'} free"


@memoised(maxsize=1 << 12)
def resource_text(name: str, needed: int, allocatable: int, used: int) -> str:
    """Return how much of a resource is needed and free on a node."""
    needs = f"needs {quantity(name, needed)} {clipped(name)}" if name != PODS else "needs room for 1 pod"
    if allocatable <= 0:
        return f"{needs}; the node has none"
    free = max(0, allocatable - used)
    return (
        f"{needs}; allocatable {quantity(name, allocatable)}, used {quantity(name, used)}, free {quantity(name, free)}"
    )


def neuron(_view: View, pod: Pod) -> _Sentence:
    """Return which devices or cores are free, in which blocks, or which counts the machine serves."""
    request = pod.neuron

    def sentence(_slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        if request is None or node_info.machine is None:
            return "; ".join(reasons)
        known = {*_TOO_FEW, insufficient(request.resource)}
        parts = [] if known.issuperset(reasons) else [_illegal(node_info.machine, request)]
        if neuron_topology.UNHEALTHY in reasons:
            parts.append("the node's condition NeuronHealth reports a problem")
        if neuron_topology.UNKNOWN in reasons:
            parts.append(f"{_free(request, node_info)}, but {_unknown(node_info)}")
        elif not parts:
            parts.append(_free(request, node_info))
        return "; ".join(parts)

    return sentence


def _unknown(node_info: NodeInfo) -> str:
    holders = node_info.neuron_usage.unknown_holders
    return f"{counted(holders, 'pod')} with unknown ids may hold some of them: {unknown_holder(node_info)}"


def _free(request: NeuronRequest, node_info: NodeInfo) -> str:
    machine, free = node_info.machine, free_units_of(request.resource)(node_info)
    if machine is None:
        return ""
    blocks = (
        free_blocks(machine, node_info.free_cores, free)
        if request.unit is Unit.DEVICE
        else (largest_block_of(request.resource)(node_info),)
    )
    return free_text(request, free, machine.size(request.unit), blocks)


@memoised(maxsize=1 << 12)
def free_text(request: NeuronRequest, free: int, size: int, blocks: tuple[int, ...]) -> str:
    """Return how many devices or cores of a machine are free, and in which blocks; of cores, the largest one."""
    needs = f"needs {asked(request)}; {free} of {size} free"
    if request.unit is Unit.CORE:
        return f"{needs}, the largest free block has {max(blocks, default=0)}" if free else needs
    return f"{needs}{in_blocks(blocks)}"


def in_blocks(blocks: Iterable[int]) -> str:
    """Return `, in 1 block of 8 and 4 blocks of 1`; empty without blocks."""
    counts = [f"{counted(count, 'block')} of {size}" for size, count in sorted(Counter(blocks).items(), reverse=True)]
    return f", in {listed(counts)}" if counts else ""


def _illegal(machine: Machine, request: NeuronRequest) -> str:
    kind = clipped(machine.instance_type) or "this machine"
    if request.unit not in machine.units:
        return f"needs {asked(request)}; {kind} serves no {request.unit}s: its capacity does not say which it has"
    return f"needs {asked(request)}; {kind} {serves(machine, request)}"


def taking(_view: View, pod: Pod) -> _Sentence:
    """Return what is free on a node that takes the pod; nothing if the pod asks for no Neuron."""
    request = pod.neuron
    if request is None:
        return lambda _slot, _node_info, _reasons: ""
    return lambda _slot, node_info, _reasons: _free(request, node_info)


def free_on(node_info: NodeInfo) -> str:
    """Return what is free of a node's devices and cores; empty without Neuron."""
    machine = node_info.machine
    if machine is None:
        return ""
    parts = []
    if Unit.DEVICE in machine.units:
        name = NEURON_DEVICE if node_info.node.allocatable.get(NEURON_DEVICE) else NEURON_DEVICE_ALIAS
        free = free_units_of(name)(node_info)
        blocks = in_blocks(free_blocks(machine, node_info.free_cores, free))
        parts.append(f"{free} of {counted(machine.devices, 'device')} free{blocks}")
    if Unit.CORE in machine.units:
        parts.append(f"{free_units_of(NEURON_CORE)(node_info)} of {counted(machine.core_count, 'core')} free")
    if node_info.neuron_usage.unknown_holders:
        parts.append(_unknown(node_info))
    return "; ".join(parts)
