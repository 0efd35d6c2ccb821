"""
NodeDeclaredFeatures: a pod that needs a feature of the kubelet fits where `status.declaredFeatures` names it.

Upstream: `plugins/nodedeclaredfeatures/nodedeclaredfeatures.go`. `kube.objects.pod_spec` reads which features a
pod needs. A node has only the features that it declares: API servers without them refuse the pods that need them.
"""

from collections.abc import Sequence

from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, NodeHint, Plugin, PluginName, Refusal
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("NodeDeclaredFeatures")
REASON = "node(s) didn't match Pod's required features"


def _declared_features(node: Node) -> Values:
    return node.declared_features


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    needed = pod.constraints.required_features
    if not needed:
        return NONE_REFUSED
    declared = view.node_postings(_declared_features)
    capable = among
    for feature in needed:
        capable &= declared.get(feature)
    return [Refusal(NAME, REASON, among & ~capable, unresolvable=True)]


def fits(needed: tuple[str, ...], node: Node) -> bool:
    return set(needed) <= set(node.declared_features)


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, reads=(PodField.REQUIRED_FEATURES,)),),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_FEATURES}),
    hint=NodeHint(lambda pod: pod.constraints.required_features, fits),
)
