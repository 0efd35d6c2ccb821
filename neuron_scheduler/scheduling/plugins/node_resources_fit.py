"""
NodeResourcesFit: what the pod requests must be free, resource by resource; without Neuron, the emptiest node is best.

Upstream: `plugins/noderesources/fit.go`.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, NEURON_NAMES, PODS
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import Filter, Plugin, PluginName, Preference, Refusal, RowHint

NAME = PluginName("NodeResourcesFit")
TOO_MANY_PODS = "Too many pods"
EIGHTHS = 8

_BESIDE_KUBE_SCHEDULER: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, *NEURON_NAMES)


@attrs.frozen(eq=False)
class Free:
    """Index definition: how much of a resource is free on each node."""

    resource: str

    def __call__(self, node_info: NodeInfo) -> int:
        resource = self.resource
        return max(0, node_info.node.allocatable.get(resource, 0) - node_info.used.get(resource, 0))


@attrs.frozen(eq=False)
class Allocatable:
    """Index definition: how much of a resource each node has."""

    resource: str

    def __call__(self, node: Node) -> int:
        return max(0, node.allocatable.get(self.resource, 0))


# An index is looked up by its definition; with one object for each definition, the look-up is by identity.
free_of = lru_cache(maxsize=1024)(Free)
allocatable_of = lru_cache(maxsize=1024)(Allocatable)


def insufficient(resource: str) -> str:
    """Return kube-scheduler's reason for a resource of which too little is free."""
    return f"Insufficient {resource}"


INSUFFICIENT_NEURON: Final = frozenset(map(insufficient, NEURON_NAMES))


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    refusals = []
    full = less(among, view.column(free_of(PODS)).positive)
    if full:
        refusals.append(Refusal(NAME, TOO_MANY_PODS, full))
    for resource, amount in pod.requests.items():
        if amount <= 0:
            continue
        if not view.offers(resource):
            refusals.append(Refusal(NAME, insufficient(resource), among, unresolvable=True))
            continue
        lacking = less(among, view.column(free_of(resource)).at_least(amount, among))
        if lacking:
            never = less(lacking, view.node_column(allocatable_of(resource)).at_least(amount, lacking))
            reason = insufficient(resource)
            refusals.append(Refusal(NAME, reason, never, unresolvable=True))
            refusals.append(Refusal(NAME, reason, less(lacking, never)))
    return refusals


def fitting_nodes(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    among = view.column(free_of(PODS)).at_least(1, among)
    for resource, amount in pod.requests.items():
        if amount > 0 and among:
            if not view.offers(resource):
                return NO_NODES
            among = view.column(free_of(resource)).at_least(amount, among)
    return among


def without_other_resources(pod: Pod) -> Pod:
    """Return a pod with those requests only that every node has, or that we hand out."""
    requests = {name: amount for name, amount in pod.requests.items() if name in _BESIDE_KUBE_SCHEDULER}
    return pod if len(requests) == len(pod.requests) else attrs.evolve(pod, requests=requests)


def _filter_beside(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    return filter_nodes(view, without_other_resources(pod), among)


def _requests(pod: Pod) -> frozenset[tuple[str, int]]:
    return frozenset(pod.requests.items())


def fits(requests: Iterable[tuple[str, int]], node_info: NodeInfo) -> bool:
    """Return whether one node has room for a pod and these requests; as `fitting_nodes`."""
    return node_info.free(PODS) > 0 and all(node_info.free(resource) >= amount for resource, amount in requests)


def free_eighths(node_info: NodeInfo, *resources: str) -> int:
    """Return the smallest free share of the resources the node has, in eighths."""
    allocatable, used = node_info.node.allocatable, node_info.used
    least = None
    for resource in resources:
        whole = allocatable.get(resource, 0)
        if whole > 0:
            share = (whole - used.get(resource, 0)) * EIGHTHS // whole
            least = share if least is None or share < least else least
    return least if least is not None and least > 0 else 0


def _emptiness(node_info: NodeInfo) -> int:
    return free_eighths(node_info, CPU) + free_eighths(node_info, MEMORY)


def prefer_least_allocated(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """
    Return the nodes with the most cpu and memory left, as a sum of shares in eighths (LeastAllocated, coarsely).

    Pods with Neuron are packed instead (`smallest_block`).
    """
    return among if pod.neuron is not None else view.column(_emptiness).highest(among)


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, fitting_nodes),),
    preference=Preference("LeastAllocated", prefer_least_allocated),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_ALLOCATABLE, ClusterEvent.ASSIGNED_POD_GONE}),
    hint=RowHint(_requests, fits),
    cause=Cause.RESOURCES,
)
BESIDE_KUBE_SCHEDULER = attrs.evolve(PLUGIN, filters=(Filter(_filter_beside),))
"""The plugin for pods of kube-scheduler's, whose configuration may ignore other resources, or get them from drivers."""
