"""
NodeUnschedulable: cordoned nodes take only pods that tolerate it, and nodes that could not be read take no pod.

Upstream: `plugins/nodeunschedulable/node_unschedulable.go`.
"""

from collections.abc import Sequence
from operator import attrgetter

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, Taint, Toleration, tolerates_all
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, NodeHint, Plugin, PluginName, Refusal

NAME = PluginName("NodeUnschedulable")
CORDONED = "node(s) were unschedulable"
UNREADABLE = "node(s) had an object that could not be read"

CORDON = Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE)
"""The taint that Kubernetes adds to a cordoned node; to tolerate it is to tolerate the cordon."""


def _state(node: Node) -> Values:
    if node.refusal:
        return (UNREADABLE,)
    return (CORDONED,) if node.unschedulable else ()


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    states = view.node_postings(_state)
    if not states.keyed & among:
        return NONE_REFUSED
    return [
        Refusal(NAME, reason, states.get(reason) & among, unresolvable=True) for reason in _reasons(pod.tolerations)
    ]


def open_nodes(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes that take new pods, or at least this one."""
    states = view.node_postings(_state)
    return less(among, states.any_of(_reasons(pod.tolerations))) if states.keyed else among


def fits(tolerations: Sequence[Toleration], node: Node) -> bool:
    """Return whether one node takes new pods, or at least those with these tolerations; as `open_nodes`."""
    state = _state(node)
    return not state or state[0] not in _reasons(tolerations)


def _reasons(tolerations: Sequence[Toleration]) -> tuple[str, ...]:
    return (UNREADABLE,) if tolerates_all(tolerations, (CORDON,)) else (UNREADABLE, CORDONED)


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, open_nodes),),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS}),
    hint=NodeHint(attrgetter("tolerations"), fits),
    cause=Cause.TAINTS,
)
