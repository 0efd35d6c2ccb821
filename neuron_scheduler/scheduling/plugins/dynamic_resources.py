"""
DynamicResources: pods with claims on devices (Dynamic Resource Allocation).

A pod's claims become its request before it is decided (`cluster.tables.claims`), and NeuronTopology finds devices for
that. What is left: claims that have devices already, and selectors that fail. Where claims are off, such pods are
refused: without an allocation the kubelet never starts them.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_, attrgetter, or_
from typing import cast

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.plugins import neuron_topology
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import (
    Filter,
    NodeHint,
    Plugin,
    PluginName,
    PodRefusal,
    PreFilter,
    Refusal,
)
from neuron_scheduler.scheduling.plugins.node_affinity import any_term
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("DynamicResources")
OFF = "pods with spec.resourceClaims need the component claims, which is off; turn it on, or use default-scheduler"
ELSEWHERE = "resourceclaim not available on the node"
KEPT = "node(s) kept the devices of a resourceclaim for a pod of the same or a higher priority"
CEL_ERROR = "CEL runtime error"
"""How the sentence about a selector begins that fails on a device; upstream's end-to-end tests look for it."""


def pre_filter(view: View, pod: Pod) -> PodRefusal | None:
    """Refuse pods whose claims are not read, and those with a selector that fails on any node, as upstream does."""
    if pod.constraints.resource_claims:
        return PodRefusal(NAME, OFF)
    if pod.neuron is None or pod.neuron.wanted is None:
        return None
    sentences = cast(frozenset[str], view.node_postings(neuron_topology.illegal_counts(pod.neuron)).values)
    failing = min((sentence for sentence in sentences if sentence.startswith(CEL_ERROR)), default="")
    return PodRefusal(NAME, failing) if failing else None


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes where a claim's devices cannot be used, or are kept for a pod that gets them once they are free."""
    fitting = reduce(and_, (any_term(view, terms, among) for terms in pod.constraints.claimed_on), among)
    kept = reduce(or_, (1 << slot for slot in slots_of(fitting) if _are_kept(view.row(slot), pod)), NO_NODES)
    found = ((ELSEWHERE, less(among, fitting)), (KEPT, kept))
    return [Refusal(NAME, reason, nodes, unresolvable=True) for reason, nodes in found if nodes]


def _are_kept(row: NodeInfo, pod: Pod) -> bool:
    """Return whether a nominated pod is to get devices that this pod's claims have: it would never get them."""
    if row.node.published is None:
        return False
    mine = row.node.published.bits_of(pod.devices, row.node.name)
    pods = (pod_info for pod_info in row.pod_infos.values() if (pod_info.cores or NO_CORES) & mine)
    return any(not pod_info.pod.node_name for pod_info in pods)


def fits(claimed_on: tuple[tuple[NodeSelectorTerm, ...], ...], node: Node) -> bool:
    return all(any(term.matches(node.labels, node.name) for term in terms) for terms in claimed_on)


PLUGIN = Plugin(
    name=NAME,
    pre_filter=PreFilter(pre_filter, reads=(PodField.RESOURCE_CLAIMS, PodField.CLAIMS), cause=Cause.POD),
    filters=(Filter(filter_nodes, reads=(PodField.CLAIMED_ON,)),),
    events=neuron_topology.PLUGIN.events | {ClusterEvent.NODE_DELETED},  # on its devices a selector may have failed
    hint=NodeHint(attrgetter("constraints.claimed_on"), fits),
    cause=Cause.POD,
)
