"""
NodeUnschedulable: cordoned nodes take only pods that tolerate it. Nodes we could not read take nobody.

Upstream: `plugins/nodeunschedulable/node_unschedulable.go`.
"""

from collections.abc import Sequence

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, Taint, tolerates_all
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, Plugin, Refusal

NAME = "NodeUnschedulable"
CORDONED = "node(s) were unschedulable"
UNREADABLE = "node(s) had an object that could not be read"

_CORDON = Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE)


def _standing(node: Node) -> Values:
    if node.refusal:
        return (UNREADABLE,)
    return (CORDONED,) if node.unschedulable else ()


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse unreadable nodes, and cordoned ones unless the pod tolerates the cordon."""
    standing = view.node_postings(_standing)
    if not standing.keyed & among:
        return NONE_REFUSED
    return [Refusal(NAME, reason, standing.get(reason) & among, unresolvable=True) for reason in _reasons(pod)]


def open_nodes(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes that take new pods, or this one."""
    standing = view.node_postings(_standing)
    return less(among, standing.any_of(_reasons(pod))) if standing.keyed else among


def turns_away(node: Node, pod: Pod) -> bool:
    """Tell whether one node is refused; as `filter_nodes`."""
    return any(reason in _reasons(pod) for reason in _standing(node))


def _reasons(pod: Pod) -> tuple[str, ...]:
    return (UNREADABLE,) if tolerates_all(pod.tolerations, (_CORDON,)) else (UNREADABLE, CORDONED)


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, open_nodes),),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS}),
)
