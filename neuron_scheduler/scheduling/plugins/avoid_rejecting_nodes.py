"""
AvoidRejectingNodes: nodes whose kubelets have rejected pods lately are used last, and so are the ids of those pods.

A controller recreates a rejected pod at once, and for the filters nothing has changed. `controllers.rejections`, which
has a clock, decides which nodes and ids are set aside, and for how long.
"""

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement, place
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, Preference

NAME = PluginName("AvoidRejectingNodes")


def prefer(view: View, _: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes that are not set aside; all of them if each is."""
    if not view.set_aside & among:
        return among
    return less(among, view.set_aside) or among


def place_on(node_info: NodeInfo, request: NeuronRequest) -> Placement | None:
    """Return the best set of ids for a request on a node, out of the ids that are not set aside if they suffice."""
    if node_info.machine is None:
        return None
    if node_info.set_aside:
        placement = place(node_info.machine, node_info.free_cores & ~node_info.set_aside, request)
        if placement is not None:
            return placement
    return place(node_info.machine, node_info.free_cores, request)


PREFERENCE = Preference(NAME, prefer)
PLUGIN = Plugin(name=NAME, preference=PREFERENCE)
