"""
IntactUltraServers: a single pod that cuts a whole machine leaves intact UltraServers whole.

The rule of the smallest sufficient block goes on above the machine: nodes outside of any UltraServer come first, then
those of a broken pair, then those of a broken four, then intact ones. The number of nodes left does not count, which
was measured (`benchmarks.placement`). An UltraServer is broken if a node of it is in use, cordoned or not there.
"""

from functools import reduce
from operator import or_
from typing import Final

from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import ULTRASERVER_PLACES, ULTRASERVER_SIZES
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.contract import Plugin, PluginName, Prefer, Preference
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("IntactUltraServers")


def whole_free(node_info: NodeInfo) -> int:
    """Index definition: 1 for a node of which a pod can take the whole machine, else 0."""
    machine, usage = node_info.machine, node_info.neuron_usage
    if machine is None or usage.free != machine.all_cores or usage.unknown_holders:
        return 0
    return 0 if node_info.node.unschedulable or node_info.node.neuron_fault else 1


def prefer(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes of the first class that has any."""
    if pod.neuron is None or not view.has_label(*ULTRASERVER_SIZES):
        return among
    labelled = {key: view.domains(key).keyed & among for key in ULTRASERVER_SIZES}
    whole = {key: view.sums(whole_free, key) for key in ULTRASERVER_SIZES}  # asked for in any case, to be warmed up
    outside = less(among, reduce(or_, labelled.values()))
    if outside:
        return outside
    for key, size in ULTRASERVER_SIZES.items():
        broken = less(labelled[key], whole[key].at_least(size, labelled[key]))
        if broken:
            return broken
    return among


def by_place(key: str) -> Prefer:
    """Return the preference for the lowest place in an UltraServer, so that ranks follow the links."""

    def prefer(view: View, _: Pod, among: NodeSet) -> NodeSet:
        places = view.integer_postings(ULTRASERVER_PLACES[key])
        numbers = sorted(place for place in places.values if isinstance(place, int))
        return next((here for place in numbers if (here := places.get(place) & among)), among)

    return prefer


PLUGIN: Final = Plugin(name=NAME, preference=Preference(NAME, prefer, reads=(PodField.NEURON,)))
