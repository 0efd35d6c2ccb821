"""
TaintToleration: taints keep pods away (NoSchedule, NoExecute) or make a node second choice (PreferNoSchedule).

Upstream: `plugins/tainttoleration/taint_toleration.go`. Nodes are posted under their whole list of taints: a cluster
has few different lists.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import cast

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.index.postings import Postings, Values
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, Taint, Toleration, tolerates_all
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import (
    NONE_REFUSED,
    Filter,
    NodeHint,
    Plugin,
    PluginName,
    Preference,
    Refusal,
)

NAME = PluginName("TaintToleration")
REASON = "node(s) had untolerated taint(s)"


def _forbidding_taints(node: Node) -> Values:
    taints = tuple(t for t in node.taints if t.effect is not Effect.PREFER_NO_SCHEDULE)
    return (taints,) if taints else ()


def fits(tolerations: Sequence[Toleration], node: Node) -> bool:
    """Return whether the NoSchedule and NoExecute taints of one node are tolerated; as `tolerated_nodes`."""
    return tolerates_all(tolerations, (t for t in node.taints if t.effect is not Effect.PREFER_NO_SCHEDULE))


def _discouraging_taints(node: Node) -> Values:
    taints = tuple(t for t in node.taints if t.effect is Effect.PREFER_NO_SCHEDULE)
    return (taints,) if taints else ()


def lists_of_taints(view: View) -> Postings:
    """Return the nodes by their list of NoSchedule and NoExecute taints."""
    return view.node_postings(_forbidding_taints)


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    lists = lists_of_taints(view)
    if not lists.keyed & among:
        return NONE_REFUSED
    return [Refusal(NAME, REASON, untolerated_nodes(view, pod) & among, unresolvable=True)]


def tolerated_nodes(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    return less(among, untolerated_nodes(view, pod)) if lists_of_taints(view).keyed else among


def untolerated_nodes(view: View, pod: Pod) -> NodeSet:
    """Return the nodes that have a NoSchedule or NoExecute taint which the pod does not tolerate."""
    lists = lists_of_taints(view)
    return lists.any_of(
        taints for taints in lists.values if not tolerates_all(pod.tolerations, cast(tuple[Taint, ...], taints))
    )


def prefer(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes with the fewest PreferNoSchedule taints that the pod does not tolerate."""
    lists = view.node_postings(_discouraging_taints)
    if not (lists.keyed and lists.keyed & among):
        return among
    tolerations = [t for t in pod.tolerations if t.effect in (None, Effect.PREFER_NO_SCHEDULE)]
    by_count: dict[int, NodeSet] = {0: less(among, lists.keyed)}
    for taints in lists.values:
        count = sum(not any(t.tolerates(taint) for t in tolerations) for taint in cast(tuple[Taint, ...], taints))
        by_count[count] = by_count.get(count, NO_NODES) | lists.get(taints) & among
    return next(by_count[count] for count in sorted(by_count) if by_count[count])


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, tolerated_nodes),),
    preference=Preference(NAME, prefer),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_TAINTS}),
    hint=NodeHint(attrgetter("tolerations"), fits),
    cause=Cause.TAINTS,
)
