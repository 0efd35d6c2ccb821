"""
The figures behind a refusal, in one sentence for each node: a row of the table for each plugin.

A reason has no figures, so that equal reasons can be counted; what one node lacks is in its row. Nodes with equal
sentences are one group. A plugin that is not in the table gets its own words; a test finds it. Does not decide: which
nodes are refused, and why, comes from the filters.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.explain import (
    arithmetic_of_nodes,
    arithmetic_of_pods,
    arithmetic_of_resources,
    arithmetic_of_volumes,
)
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins import (
    inter_pod_affinity,
    neuron_topology,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from neuron_scheduler.scheduling.plugins.contract import PluginName

Sentence = Callable[[Slot, NodeInfo, Sequence[str]], str]
"""Returns what one node lacks, without a full stop; the last argument is the plugin's reasons for that node."""

Arithmetic = Callable[[View, Pod], Sentence]
"""Asks the indexes once for all nodes; its result is then asked about each."""

ARITHMETIC: Final[Mapping[PluginName, Arithmetic]] = {
    node_unschedulable.NAME: arithmetic_of_nodes.cordon,
    node_name.NAME: arithmetic_of_nodes.name,
    taint_toleration.NAME: arithmetic_of_nodes.taints,
    node_affinity.NAME: arithmetic_of_nodes.affinity,
    node_declared_features.NAME: arithmetic_of_nodes.features,
    node_ports.NAME: arithmetic_of_resources.ports,
    node_resources_fit.NAME: arithmetic_of_resources.resources,
    neuron_topology.NAME: arithmetic_of_resources.neuron,
    volume_restrictions.NAME: arithmetic_of_volumes.restrictions,
    node_volume_limits.NAME: arithmetic_of_volumes.limits,
    volume_binding.NAME: arithmetic_of_volumes.binding,
    volume_zone.NAME: arithmetic_of_volumes.zone,
    pod_topology_spread.NAME: arithmetic_of_pods.spread,
    inter_pod_affinity.NAME: arithmetic_of_pods.affinity,
}


def sentence_of(plugin: PluginName, view: View, pod: Pod) -> Sentence:
    """Return the function that says what a node lacks for a plugin."""
    return ARITHMETIC.get(plugin, _plain)(view, pod)


def _plain(_view: View, _pod: Pod) -> Sentence:
    return lambda _slot, _node_info, reasons: "; ".join(reasons)
