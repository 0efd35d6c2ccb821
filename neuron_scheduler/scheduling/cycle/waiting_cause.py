"""
Why a pod waits, in one word for the metrics (`neuron_scheduler_pods_waiting`).

Every waiting pod has exactly one cause: that of its last attempt. Of several reasons it is that of the nodes which came
furthest through the filters, since there the least is missing; nodes that are too small however empty they are, such as
those without Neuron for a pod that asks for it, count only if there are no others.
"""

import enum
from collections.abc import Iterable
from typing import Final

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins import neuron_topology, node_resources_fit
from neuron_scheduler.scheduling.plugins.contract import PodRefusal, Refusal
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient


class Cause(enum.StrEnum):
    """What a pod waits for; the values are labels."""

    UNTRIED = "untried"
    """Its first attempt."""
    GATED = "gated"
    """Its scheduling gates."""
    ERROR = "error"
    """Another attempt: the last one ended in an error, or the API server refused the Binding."""
    CAPACITY = "capacity"
    """Neuron: too little is free, or no node has that much."""
    FRAGMENTATION = "fragmentation"
    """Neuron: enough is free, but in pieces."""
    INVALID_COUNT = "invalid_count"
    """Neuron: no node serves that count."""
    UNKNOWN_HOLDER = "unknown_holder"
    """Neuron: there would be a block but for pods whose ids are unknown."""
    UNHEALTHY = "unhealthy"
    """Neuron: the nodes report a problem."""
    RESOURCES = "resources"
    """Anything else that nodes run out of: cpu, memory, room for pods, host ports."""
    TAINTS = "taints"
    """Nodes that keep it away: taints, cordons, objects that could not be read."""
    AFFINITY = "affinity"
    """Node selector and affinity, pod affinity, topology spread."""
    VOLUMES = "volumes"
    """Its claims and volumes."""
    POD = "pod"
    """A change of the pod itself, which no node could take."""
    OTHER = "other"


_NEVER_ENOUGH: Final = -1
_INVALID: Final = "an illegal count is told before resources"
_STAGES: Final = {
    "NodeUnschedulable": Cause.TAINTS,
    "NodeName": Cause.AFFINITY,
    "TaintToleration": Cause.TAINTS,
    "NodeAffinity": Cause.AFFINITY,
    "NodePorts": Cause.RESOURCES,
    _INVALID: Cause.INVALID_COUNT,
    node_resources_fit.NAME: Cause.RESOURCES,
    neuron_topology.NAME: Cause.FRAGMENTATION,
    "VolumeRestrictions": Cause.VOLUMES,
    "NodeVolumeLimits": Cause.VOLUMES,
    "VolumeBinding": Cause.VOLUMES,
    "VolumeZone": Cause.VOLUMES,
    "PodTopologySpread": Cause.AFFINITY,
    "InterPodAffinity": Cause.AFFINITY,
    "NodeDeclaredFeatures": Cause.OTHER,
}
"""The filters in their order, and what a pod waits for that came so far."""
_RANKS: Final = {name: rank for rank, name in enumerate(_STAGES)}
_OF_SILICON: Final = {
    neuron_topology.UNHEALTHY: Cause.UNHEALTHY,
    neuron_topology.UNKNOWN: Cause.UNKNOWN_HOLDER,
    **dict.fromkeys(neuron_topology.NO_BLOCK.values(), Cause.FRAGMENTATION),
}


def cause_of(pod: Pod, refusals: Iterable[Refusal]) -> Cause:
    """Return what keeps a pod from the nodes that came furthest; nodes that are not there are a lack of them."""
    lacking = Cause.RESOURCES if pod.neuron is None else Cause.CAPACITY
    return max((_stage(pod, refusal) for refusal in refusals), key=lambda stage: stage[0], default=(0, lacking))[1]


def cause_of_pod(refusal: PodRefusal) -> Cause:
    """Return what a pod waits for that no node can take as things stand."""
    if refusal.plugin == neuron_topology.NAME:
        return Cause.POD
    return _STAGES.get(refusal.plugin, Cause.POD)


def _stage(pod: Pod, refusal: Refusal) -> tuple[float, Cause]:
    """Return how far the refused nodes came, and what for they would wait."""
    plugin, reason = refusal.plugin, refusal.reason
    silicon = pod.neuron is not None and reason == insufficient(pod.neuron.resource)
    cause = Cause.CAPACITY if silicon else _STAGES.get(plugin, Cause.OTHER)
    if plugin == node_resources_fit.NAME:
        # Where other resources are short as well, silicon alone would not help.
        return (_NEVER_ENOUGH if refusal.unresolvable else _RANKS[plugin]) + 0.5 * (not silicon), cause
    if plugin == neuron_topology.NAME and not silicon:
        if reason not in _OF_SILICON:
            return _RANKS[_INVALID], Cause.INVALID_COUNT
        cause = _OF_SILICON[reason]
    return _RANKS.get(plugin, len(_RANKS)), cause
