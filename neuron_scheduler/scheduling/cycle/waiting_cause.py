"""
Why a pod waits, in one word for the metrics (`neuron_scheduler_pods_waiting`).

Every waiting pod has exactly one cause: that of its last attempt. Of several refusals, that of the nodes
that passed the most filters counts, because they lack least. Nodes that are too small even when they are empty, such as
nodes without Neuron for a pod that asks for it, count only if there are no others.
"""

from collections.abc import Iterable
from typing import Final

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins import node_resources_fit
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PodRefusal, Refusal
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient
from neuron_scheduler.scheduling.plugins.registry import PLUGINS

_NEVER_ENOUGH: Final = -1.0
_PLACES: Final = {plugin.name: float(place) for place, plugin in enumerate(PLUGINS)}
_RESOURCES: Final = _PLACES[node_resources_fit.NAME]
_CAUSES: Final = {plugin.name: plugin.cause for plugin in PLUGINS}
_CAUSES_BY_REASON: Final = {
    (plugin.name, reason): cause for plugin in PLUGINS for reason, cause in plugin.causes.items()
}
_CAUSES_OF_PODS: Final = {
    plugin.name: plugin.pre_filter.cause or plugin.cause for plugin in PLUGINS if plugin.pre_filter is not None
}


def cause_of(pod: Pod, refusals: Iterable[Refusal]) -> Cause:
    """Return what keeps a pod from the nodes that came furthest; without any node, the pod lacks capacity."""
    lacking = Cause.RESOURCES if pod.neuron is None else Cause.CAPACITY
    return max((stage(pod, refusal) for refusal in refusals), key=lambda stage: stage[0], default=(0.0, lacking))[1]


def cause_of_pod(refusal: PodRefusal) -> Cause:
    """Return what a pod waits for that was refused whatever the nodes are."""
    return _CAUSES_OF_PODS.get(refusal.plugin, Cause.POD)


def stage(pod: Pod, refusal: Refusal) -> tuple[float, Cause]:
    """Return how far the refused nodes came, and the cause if no nodes came further."""
    lacks_neuron = pod.neuron is not None and refusal.reason == insufficient(pod.neuron.resource)
    if lacks_neuron:
        cause = Cause.CAPACITY
    else:
        cause = _CAUSES_BY_REASON.get((refusal.plugin, refusal.reason)) or _CAUSES.get(refusal.plugin, Cause.OTHER)
    if refusal.plugin == node_resources_fit.NAME:
        # If the nodes lack other resources too, free Neuron devices alone would not help.
        return (_NEVER_ENOUGH if refusal.unresolvable else _RESOURCES) + 0.5 * (not lacks_neuron), cause
    if cause is Cause.INVALID_COUNT:
        return _RESOURCES - 0.5, cause  # the filter of counts comes just before that of resources
    return _PLACES.get(refusal.plugin, float(len(_PLACES))), cause
