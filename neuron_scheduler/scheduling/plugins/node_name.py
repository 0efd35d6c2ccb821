"""
NodeName: a pod that names its node fits nowhere else.

Upstream: `plugins/nodename/node_name.go`. It refuses nothing in practice: only pods without a node reach a scheduler.
"""

from collections.abc import Sequence

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, Plugin, PluginName, Refusal
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("NodeName")
REASON = "node(s) didn't match the requested node name"


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    if not pod.node_name:
        return NONE_REFUSED
    slot = view.slot(pod.node_name)
    named = NO_NODES if slot is None else 1 << slot
    return [Refusal(NAME, REASON, among & ~named, unresolvable=True)]


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, reads=(PodField.NODE_NAME,)),),
    events=frozenset({ClusterEvent.NODE_ADDED}),
    cause=Cause.AFFINITY,
)
