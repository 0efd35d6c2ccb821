"""
AvoidRejectingNodes: nodes whose kubelets have rejected pods lately are used last, and so are the ids of those pods.

A controller recreates a rejected pod at once, and for the filters nothing has changed. This is only a preference: if no
other node takes a pod, the node is used, with other ids if it has any. Which nodes and ids are set aside, and for how
long, is decided in `controllers.rejections`, which has a clock.
"""

from typing import cast

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement, place
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, Preference

NAME = PluginName("AvoidRejectingNodes")


def _level(node_info: NodeInfo) -> Values:
    return () if node_info.set_aside is None else (node_info.set_aside.level,)


def prefer(view: View, _: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes that are not set aside; if all are, those that have rejected pods least often."""
    if not view.set_aside & among:
        return among
    levels = view.postings(_level)  # asked for even if it is not needed, so that a warm-up builds it
    not_set_aside = less(among, view.set_aside)
    if not_set_aside:
        return not_set_aside
    for level in sorted(cast(list[int], levels.values)):
        nodes = levels.get(level) & among
        if nodes:
            return nodes
    return among  # in a warm-up, where every index is empty


def place_on(node_info: NodeInfo, request: NeuronRequest) -> Placement | None:
    """Return the best set of ids for a request on a node, out of the ids that are not set aside if they suffice."""
    if node_info.machine is None:
        return None
    if node_info.set_aside is not None and node_info.set_aside.cores:
        placement = place(node_info.machine, node_info.free_cores & ~node_info.set_aside.cores, request)
        if placement is not None:
            return placement
    return place(node_info.machine, node_info.free_cores, request)


PREFERENCE = Preference(NAME, prefer)
PLUGIN = Plugin(name=NAME, preference=PREFERENCE)
