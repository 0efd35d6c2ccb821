"""AvoidNeuronNodes: pods that ask for no Neuron stay off the nodes that have it, where there is a choice."""

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, Preference
from neuron_scheduler.scheduling.plugins.neuron_topology import machines

NAME = PluginName("AvoidNeuronNodes")


def prefer(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes without Neuron for a pod that asks for none; all if none is without."""
    if pod.neuron is not None:
        return among
    return less(among, machines(view).keyed) or among


PLUGIN = Plugin(name=NAME, preference=Preference(NAME, prefer))
