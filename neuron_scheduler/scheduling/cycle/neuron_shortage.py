"""
Why the devices or cores of the nodes do not suffice for a pod, in one sentence with the figures.

A pod with Neuron waits for one of three reasons, each with its own remedy: too little is free (wait, or add nodes);
enough is free, but in pieces (wait, or make room); or the instance type has no such count (ask for another one). Only
nodes that would take the same pod without Neuron are counted. If pods with unknown ids are the reason, a second
sentence names some of them.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Final, cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import INSTANCE_TYPE_LABELS
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.model.selectors import NodeSelectorTerm
from neuron_scheduler.model.wording import count_text
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine
from neuron_scheduler.neuron.topology import illegal_count, place, served_counts, whole_free_devices
from neuron_scheduler.scheduling.cycle.filters import nodes_that_fit, view_with_nominated
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins import neuron_topology
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import Refusal
from neuron_scheduler.scheduling.plugins.node_resources_fit import INSUFFICIENT_NEURON, allocatable_of

_NAME: Final = re.compile(r"[-\w.]{1,63}", re.ASCII)  # the API server accepts any text, of any length
_MOST_NAMED: Final = 3  # nodes with unknown holders that a refusal names
MOST_PARTS: Final = 8
"""Containers whose counts are listed one by one."""
_MOST_LOOKED_AT: Final = 32  # nodes that are looked at to find them: a refusal must not cost more in a larger fleet
_MACHINES = tuple(
    Machine(row.name, row.shape, row.devices, cores)
    for row in INSTANCE_TYPES.values()
    for cores in row.cores_per_device
)


@attrs.frozen
class NeuronShortage:
    """What a pod lacks of devices or cores: the cause, and a sentence."""

    cause: Cause
    sentence: str


def _cores_in_pieces(node_info: NodeInfo) -> int:
    """Index definition: the free cores of devices that other pods use in part; they are no free devices."""
    machine, free = node_info.machine, node_info.free_cores
    if machine is None or machine.published is not None:
        return 0
    return free.bit_count() - whole_free_devices(machine, free) * machine.cores_per_device


def warm_up_neuron_shortage(view: View, request: NeuronRequest) -> None:
    """Ask for every index that the sentence may need, so that they are built before."""
    neuron_topology.machines(view)
    neuron_topology.unhealthy_nodes(view)
    neuron_topology.nodes_with_unknown(view)
    neuron_topology.free_units(view, request.resource)
    neuron_topology.largest_blocks(view, request)
    view.node_column(allocatable_of(request.resource))
    if request.unit is Unit.DEVICE:
        view.column(_cores_in_pieces)


def neuron_shortage(cluster: Cluster, pod: Pod, profile: Profile, refusals: Iterable[Refusal]) -> NeuronShortage | None:
    """Return what a pod with these refusals lacks; None if devices or cores are not the reason."""
    request, view = pod.neuron, cluster.view
    if request is None:
        return None
    machines = neuron_topology.machines(view)
    among = machines.keyed & view.live
    for refusal in refusals:
        if refusal.plugin != neuron_topology.NAME and refusal.reason not in INSUFFICIENT_NEURON:
            among = less(among, refusal.nodes)
    nodes = nodes_that_fit_without_neuron(cluster, pod, profile, among) if among else NO_NODES
    large = view.node_column(allocatable_of(request.resource)).at_least(request.total, nodes)
    if not large:
        return NeuronShortage(Cause.CAPACITY, _too_large_text(view, request, nodes)) if nodes else None
    illegal = view.node_postings(neuron_topology.illegal_counts(request)).keyed & large
    unserved = [each for each in cast(frozenset[Machine], machines.values) if machines.get(each) & illegal]
    large = less(large, illegal)
    if not large:
        sentence = _invalid_count_text(unserved, request)
        return NeuronShortage(Cause.INVALID_COUNT, sentence) if sentence else None
    certain = less(large, neuron_topology.unhealthy_nodes(view) | neuron_topology.nodes_with_unknown(view))
    return _too_little_or_in_pieces(view_with_nominated(cluster, pod.priority), request, certain) if certain else None


def unknown_holders(cluster: Cluster, pod: Pod, refusals: Iterable[Refusal], meant: NodeSet) -> str:
    """
    Name the pods whose unknown ids keep the pod from nodes meant that have a free block for it; empty if none do.

    A reader of the pod's condition may not be allowed to see the pods of other namespaces: they are not named.
    `model.wording.shape` knows the first words: other names alone do not make another message.
    """
    blocked = NO_NODES
    for refusal in refusals:
        if refusal.reason == neuron_topology.UNKNOWN:
            blocked |= refusal.nodes & meant
    if not blocked:
        return ""
    looked_at = map(cluster.view.row, islice(slots_of(blocked), _MOST_LOOKED_AT))
    named = list(
        islice((node_info for node_info in looked_at if neuron_topology.fits(pod.neuron, node_info)), _MOST_NAMED)
    )
    if not named:
        return ""
    sentences = ", ".join(
        f"{node_info.node.name} is blocked by {unknown_holder(node_info, pod.namespace)}" for node_info in named
    )
    more = blocked.bit_count() - len(named)
    rest = f"; {count_text(more, 'more node has', 'more nodes have')} such pods" if more else ""
    return f"Unknown ids: {sentences}{rest}."


def unknown_holder(node_info: NodeInfo, namespace: str | None = None) -> str:
    """Name the oldest of a node's pods with unknown ids, out of a namespace if one is given, and its schedulerName."""
    unknown = [pod_info for pod_info in node_info.pod_infos.values() if pod_info.cores is None]
    first = min(unknown, key=lambda i: (namespace not in (None, i.pod.namespace), i.pod.created, i.pod.key))
    name = first.pod.scheduler_name if _NAME.fullmatch(first.pod.scheduler_name) else "unusual"
    scheduler = "unreadable" if first.unreadable else f"schedulerName {name}"
    shown = first.pod.key if namespace in (None, first.pod.namespace) else "a pod of another namespace"
    return f"{shown} ({scheduler})" + (f" and {len(unknown) - 1} more" if len(unknown) > 1 else "")


def nodes_that_fit_without_neuron(cluster: Cluster, pod: Pod, profile: Profile, among: NodeSet) -> NodeSet:
    requests = {resource: amount for resource, amount in pod.requests.items() if resource not in NEURON_NAMES}
    without = attrs.evolve(pod, neuron=None, requests=requests)
    return nodes_that_fit(cluster, without, profile.steps_for(without), among)


def _too_large_text(view: View, request: NeuronRequest, nodes: NodeSet) -> str:
    """Return the sentence for a request above what any node has, or any node that passes the other filters."""
    offered = view.node_column(allocatable_of(request.resource))
    most = offered.maximum(nodes)
    which = " that passes the other filters" if offered.maximum(view.live) > most else ""
    return f"Capacity: {_needs_text(request)}, the largest node{which} has {most}."


def _too_little_or_in_pieces(view: View, request: NeuronRequest, nodes: NodeSet) -> NeuronShortage | None:
    free = neuron_topology.free_units(view, request.resource)
    total, block = free.total(nodes), neuron_topology.largest_blocks(view, request).maximum(nodes)
    if block >= request.total and len(request.widest) == 1:
        return None  # another reason keeps the pod from the node, and the sentence would be false
    cause = Cause.CAPACITY if total < request.total else Cause.FRAGMENTATION
    holding = (free.at_least(1, nodes) or nodes).bit_count()
    return NeuronShortage(
        cause,
        f"{cause.capitalize()}: {amount(total, request.unit)} free on {count_text(holding, 'node')},"
        f" largest free block {block}, {_needs_text(request, unit=False)}{_pieces_text(view, request, nodes, total)}.",
    )


def _pieces_text(view: View, request: NeuronRequest, nodes: NodeSet, total: int) -> str:
    """Return the part about free cores that are no free devices: on the nodes they look free."""
    if request.unit is not Unit.DEVICE or total >= request.total:
        return ""
    cores = view.column(_cores_in_pieces).total(nodes)
    return f"; {amount(cores, Unit.CORE)} more on devices that others use in part" if cores else ""


def _invalid_count_text(machines: Iterable[Machine], request: NeuronRequest) -> str:
    """Return the sentence with the counts that the types serve; machines of one type may differ (LNC)."""
    unit = request.unit
    by_type: dict[str, dict[str, Machine]] = {}
    for machine in sorted(machines, key=lambda machine: (machine.size(unit), machine.devices, str(machine))):
        counts_served = served_counts_text(machine, request)
        if counts_served:
            by_type.setdefault(machine.instance_type or "unknown", {}).setdefault(counts_served, machine)
    counts = [
        f"{name}{f' with {machine.size(unit)} {unit}s' if len(alike) > 1 else ''} {counts_served}"
        for name, alike in sorted(by_type.items())
        for counts_served, machine in alike.items()
    ]
    return f"Invalid count: {_needs_text(request)}, {'; '.join(counts)}." if counts else ""


def served_counts_text(machine: Machine, request: NeuronRequest) -> str:
    """Return which counts a machine serves; it may serve each count of the request, but not all at once."""
    counts = served_counts(machine, request.unit, pairs=request.pairs)
    if not request.units <= machine.units:
        return ""
    if request.cores_each not in (0, machine.cores_per_device):
        return f"has {machine.cores_per_device} cores per device and not {request.cores_each}"
    if {*request.counts, *request.init_counts} <= {*counts}:
        return "has no sets for all its containers at once"
    return f"serves {_either_of(counts)}" if counts else ""


def _either_of(counts: tuple[int, ...]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{', '.join(map(str, counts[:-1]))} or {counts[-1]}"


def _needs_text(request: NeuronRequest, *, unit: bool = True) -> str:
    return f"pod needs {request_text(request, unit=unit)}"


def request_text(request: NeuronRequest | None, *, unit: bool = True) -> str:
    """
    Return what a pod asks for, by container if they are few: `8 Neuron devices (4 + 4)`; empty without Neuron.

    Init containers are listed, too, as what asks for too much may be one of them: `16 Neuron devices (2, init 16)`.
    """
    if request is None:
        return ""
    total = amount(request.total, request.unit) if unit else str(request.total)
    parts, inits = request.counts, request.init_counts
    if len(parts) + len(inits) > MOST_PARTS:
        return f"{total} in {len(parts) + len(inits)} containers"
    listed = [" + ".join(map(str, parts)), *(f"init {count}" for count in inits)]
    return f"{total} ({', '.join(filter(None, listed))})" if inits or len(parts) > 1 else total


def amount(count: int, unit: Unit) -> str:
    """Return `1 Neuron device` or `2 Neuron cores`."""
    return count_text(count, f"Neuron {unit.value}")


def new_node_could_help(pod: Pod) -> bool:
    """
    Return whether an empty node of some instance type that the pod allows has room for its Neuron request.

    This is the line between `Unschedulable` and `SchedulerError`: Karpenter and Cluster Autoscaler add nodes for pods
    whose condition has the first as its reason. For a pod that asks for 7 devices and requires trn1.32xlarge they would
    buy accelerators in a loop. Only what the pod requires of the instance type is read.
    """
    if pod.neuron is None:
        return True
    unknown = ("", *(named_types(pod.constraints) - INSTANCE_TYPES.keys()))
    fitting = (*unknown, *_types_with_room(pod.neuron))
    return any(allows_type(pod.constraints, name) for name in fitting)


@lru_cache(maxsize=1024)
def _types_with_room(request: NeuronRequest) -> tuple[str, ...]:
    """Return the known types on which the request fits if the node is empty."""
    return tuple(
        machine.instance_type
        for machine in _MACHINES
        if illegal_count(machine, request) is None and place(machine, machine.all_cores, request) is not None
    )


def named_types(constraints: Constraints) -> set[str]:
    """Return the instance types that a pod's node selector and required node affinity name, without `ml.`."""
    named = {constraints.node_selector.get(key, "") for key in INSTANCE_TYPE_LABELS}
    for term in constraints.required_terms or ():
        named |= {value for r in term.expressions if r.key in INSTANCE_TYPE_LABELS for value in r.values}
    return {name.removeprefix("ml.") for name in named}


def allows_type(constraints: Constraints, name: str) -> bool:
    """Return whether a node of the type, also called `ml.NAME`, may match; empty stands for one that is not named."""
    return _allows_label(constraints, name) or _allows_label(constraints, f"ml.{name}")


def _allows_label(constraints: Constraints, value: str) -> bool:
    labels = dict.fromkeys(INSTANCE_TYPE_LABELS, value)
    if any(constraints.node_selector.get(key, value) != value for key, value in labels.items()):
        return False
    terms = constraints.required_terms
    return terms is None or any(_may_match(term, labels) for term in terms)


def _may_match(term: NodeSelectorTerm, labels: dict[str, str]) -> bool:
    if term.unreadable or not (term.expressions or term.fields):
        return False
    return all(r.matches(labels) for r in term.expressions if r.key in labels)
