"""
NeuronTopology: a legal, contiguous, free set of devices or cores, out of the smallest block that suffices.

Whether free devices are connected does not follow from their count: {0, 2, 4} is three devices and no ring. So nodes
are posted, per request, under the *level* of the block that a placement would cut (`neuron.topology`). There are three
refusals: the instance type has no such count, too few are free, or enough are free but not in one block.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final, cast

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.index.postings import Postings, Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.devices import NEVER
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import ACCELERATED_HARDWARE, BOTH_ROADS, NEURON_HEALTH, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_NAMES
from neuron_scheduler.neuron.catalog import KIND_BITS, Machine, machine_of
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import illegal_count, largest_free_block, place, served_counts, whole_free_devices
from neuron_scheduler.scheduling.plugins import node_resources_fit
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import (
    EVERY_PLUGIN,
    NONE_REFUSED,
    Filter,
    Plugin,
    PluginName,
    PodRefusal,
    PreFilter,
    Refusal,
    RowHint,
)
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("NeuronTopology")
UNHEALTHY = {
    condition: f"node(s) had an unhealthy Neuron device ({condition})"
    for condition in (NEURON_HEALTH, ACCELERATED_HARDWARE)
} | {BOTH_ROADS: "node(s) gave their Neuron devices both by counts and by claims"}
UNKNOWN = "node(s) had a pod with an unknown Neuron allocation"
NO_BLOCK = {
    Unit.DEVICE: "node(s) didn't have a free block of Neuron devices",
    Unit.CORE: "node(s) didn't have a free block of Neuron cores",
}


CANNOT_ALLOCATE = "cannot allocate all claims"


@attrs.frozen(eq=False)
class BlockLevel:
    """
    Index definition: nodes by the level of the block that a request would cut, and the kind of machine.

    The level is an even number. A request for one unit gets the odd number above it on a node with pods of several
    units: it would break up the space that they leave. The kind is in the lower `KIND_BITS`; 0 where the level alone
    counts: for a block of at most one device, which is of no use to pods that need several, and for requests in cores
    (decision 10).
    """

    request: NeuronRequest
    is_slow: bool = attrs.field(init=False, default=attrs.Factory(lambda self: self.request.asks_much, takes_self=True))

    def __call__(self, node_info: NodeInfo) -> Values:
        machine, neuron_usage = node_info.machine, node_info.neuron_usage
        if machine is None or not neuron_usage.free:
            return ()
        placement = place(machine, neuron_usage.free, self.request)
        if placement is None or (neuron_usage.unknown_devices and not is_safe(node_info, self.request)):
            return ()
        level = 2 * placement.level + (neuron_usage.has_multi_unit_pod and self.request.total == 1)
        weighed = placement.level > 1 and self.request.unit is Unit.DEVICE
        return (level << KIND_BITS | (machine.kind if weighed else 0),)


block_level = lru_cache(maxsize=1024)(BlockLevel)


@attrs.frozen(eq=False)
class IllegalCount:
    """Index definition: nodes that have as much as a request is for, and never serve it, by the reason."""

    request: NeuronRequest
    is_slow: bool = attrs.field(init=False, default=attrs.Factory(lambda self: self.request.asks_much, takes_self=True))

    def __call__(self, node: Node) -> Values:
        machine, request = machine_of(node), self.request
        if request.wanted and not request.total and node.published is None:
            return (NEVER,)
        if machine is None:
            return ()
        if (machine.published is None) != (request.wanted is None):  # the node is on the other road
            has_room = machine.has_neuron and 0 < request.total <= machine.size(request.unit)
        else:
            has_room = request.total <= node.allocatable.get(request.resource, 0)
        if not has_room:
            return ()
        sentence = illegal_count(machine, self.request)
        return () if sentence is None else (sentence,)


illegal_counts = lru_cache(maxsize=1024)(IllegalCount)


def is_safe(node_info: NodeInfo, request: NeuronRequest) -> bool:
    """
    Return whether there is certainly room for the request beside the pods whose ids are unknown.

    For one unit the count is enough, as it is for the device plugin; for more, it must be known which units are free.
    """
    if node_info.machine is None or not request.is_one_unit:
        return False
    if request.unit is Unit.DEVICE:
        return whole_free_devices(node_info.machine, node_info.free_cores) > node_info.neuron_usage.unknown_devices
    return node_info.free_cores.bit_count() > node_info.neuron_usage.unknown_cores


def _machine(node: Node) -> Values:
    machine = machine_of(node)
    return () if machine is None else (machine,)


def _neuron_fault(node: Node) -> Values:
    return (node.neuron_fault,) if node.neuron_fault else ()


def _has_unknown(node_info: NodeInfo) -> Values:
    return (True,) if node_info.neuron_usage.unknown_devices else ()


@attrs.frozen(eq=False)
class FreeUnits:
    """Index definition: how many whole devices, or cores, a pod could get by a resource's name, connected or not."""

    resource: str

    def __call__(self, node_info: NodeInfo) -> int:
        """Return the whole devices or the cores that no pod holds, at most as many as the kubelet would hand out."""
        machine = node_info.machine
        if machine is None:
            return 0
        by_core = self.resource == NEURON_CORE
        free = node_info.free_cores.bit_count() if by_core else whole_free_devices(machine, node_info.free_cores)
        return min(free, node_info.free(self.resource))


@attrs.frozen(eq=False)
class LargestBlock:
    """Index definition: the largest count that one container could get under a resource's name, perhaps with pairs."""

    resource: str
    pairs: bool = False

    def __call__(self, node_info: NodeInfo) -> int:
        machine = node_info.machine
        if machine is None:
            return 0
        machine = machine.with_pairs() if self.pairs else machine
        unit = Unit.CORE if self.resource == NEURON_CORE else Unit.DEVICE
        return largest_block(machine, node_info.free_cores, unit, node_info.free(self.resource))


def largest_block(machine: Machine, cores: CoreMask, unit: Unit, most: int) -> int:
    block = largest_free_block(machine, cores, unit)
    return (
        block if block <= most else max((count for count in served_counts(machine, unit) if count <= most), default=0)
    )


free_units_of = lru_cache(maxsize=len(NEURON_NAMES))(FreeUnits)
largest_block_of = lru_cache(maxsize=2 * len(NEURON_NAMES))(LargestBlock)


def machines(view: View) -> Postings:
    return view.node_postings(_machine)


def free_units(view: View, resource: str) -> Column:
    """Return how many whole devices, or cores, a pod could get on each node, connected or not."""
    return view.column(free_units_of(resource))


def largest_blocks(view: View, request: NeuronRequest) -> Column:
    """Return the largest count that one container could get on each node, by the name and the profile of a request."""
    return view.column(largest_block_of(request.resource, pairs=request.pairs))


def unhealthy_nodes(view: View) -> NodeSet:
    return view.node_postings(_neuron_fault).keyed


def nodes_with_unknown(view: View) -> NodeSet:
    return view.postings(_has_unknown).keyed


def pre_filter(_: View, pod: Pod) -> PodRefusal | None:
    """Refuse pods that can never be bound (`Pod.refusal`), such as those that ask for devices and for cores."""
    return PodRefusal(NAME, pod.refusal) if pod.refusal else None


def filter_counts(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """
    Refuse nodes whose type does not support the count, whatever is in use on them.

    A count beyond the node's allocatable is left to NodeResourcesFit: that node is too small, the count may be fine.
    """
    request = pod.neuron
    if request is None:
        return NONE_REFUSED
    illegal = view.node_postings(illegal_counts(request))
    return [
        Refusal(NAME, cast(str, sentence), illegal.get(sentence) & among, unresolvable=True)
        for sentence in illegal.values
    ]


def fits(request: NeuronRequest | None, node_info: NodeInfo) -> bool:
    """Return whether a node has a free block, or may have one, if pods whose ids are unknown hold nothing."""
    if request is None or node_info.machine is None or node_info.node.neuron_fault:
        return False
    return request.asks_much or place(node_info.machine, node_info.free_cores, request) is not None


def nodes_with_block(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    if pod.neuron is None:
        return among
    return less(view.postings(block_level(pod.neuron)).keyed & among, unhealthy_nodes(view))


def filter_blocks(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes without a free block for the request, for lack of capacity or because of fragmentation."""
    request = pod.neuron
    if request is None:
        return NONE_REFUSED
    faults = view.node_postings(_neuron_fault)
    bad = faults.keyed & among
    lacking = less(among, bad | view.postings(block_level(request)).keyed)
    if not (bad or lacking):
        return NONE_REFUSED
    free = free_units(view, request.resource)
    exhausted = less(lacking, free.at_least(request.total, lacking))
    doubtful = nodes_with_unknown(view) & less(lacking, exhausted)
    return [
        *(Refusal(NAME, UNHEALTHY[cast(str, c)], faults.get(c) & among, unresolvable=True) for c in faults.values),
        Refusal(NAME, insufficient(request.resource), exhausted),
        Refusal(NAME, UNKNOWN, doubtful),
        Refusal(
            NAME, CANNOT_ALLOCATE if request.wanted else NO_BLOCK[request.unit], less(lacking, exhausted | doubtful)
        ),
    ]


PLUGIN: Final = Plugin(
    name=NAME,
    pre_filter=PreFilter(pre_filter, reads=(PodField.REFUSAL,), before=EVERY_PLUGIN, cause=Cause.POD),
    filters=(
        # Before resources: a pod with an illegal count does not wait for free devices.
        Filter(filter_counts, reads=(PodField.NEURON,), before=node_resources_fit.NAME),
        Filter(filter_blocks, nodes_with_block, reads=(PodField.NEURON,), narrows=True),
    ),
    events=frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.NODE_HEALTH,
            ClusterEvent.DEVICES_CHANGED,
            ClusterEvent.ASSIGNED_POD_GONE,
        }
    ),
    hint=RowHint(attrgetter("neuron"), fits),
    cause=Cause.INVALID_COUNT,
    causes={
        **dict.fromkeys(UNHEALTHY.values(), Cause.UNHEALTHY),
        UNKNOWN: Cause.UNKNOWN_HOLDER,
        **dict.fromkeys(NO_BLOCK.values(), Cause.FRAGMENTATION),
        CANNOT_ALLOCATE: Cause.FRAGMENTATION,
    },
)
