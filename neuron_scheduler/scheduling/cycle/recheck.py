"""
Whether a node still takes a pod that was decided for it and waits: to be bound, or for the space that is kept for it.

A Binding may wait for minutes, and the API server does not check whether the pod fits. Only the one node is looked at.
"""

from typing import Final

from neuron_scheduler.cluster.rows.node_info import NodeInfo, without_pod
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.plugins import neuron_topology, node_ports, node_resources_fit
from neuron_scheduler.scheduling.plugins.contract import NodeHint
from neuron_scheduler.scheduling.plugins.registry import PLUGINS

_NODE_HINTS: Final = tuple(plugin.hint for plugin in PLUGINS if isinstance(plugin.hint, NodeHint))
"""Of all plugins that judge a node by its object alone."""


def still_takes(node_info: NodeInfo, pod: Pod, cores: CoreMask) -> bool:
    """Return whether a node would take a pod, in its current state, that is assumed on it with these cores."""
    pod_info = node_info.pod_infos.get(pod.uid)
    if pod_info is None or pod_info.cores != cores:
        return False  # the node's machine has changed
    return takes(without_pod(node_info, pod.uid), pod, cores)


def takes(node_info: NodeInfo, pod: Pod, cores: CoreMask) -> bool:
    """Return whether a node would take a pod that is not on it, with cores that were chosen before."""
    if cores & ~node_info.free_cores:
        return False  # another scheduler has bound a pod to these cores
    if not _is_safe(node_info, pod):
        return False
    has_room = node_resources_fit.fits(pod.requests.items(), node_info) and node_ports.has_free(node_info, pod)
    return has_room and not _keeps_off(node_info, pod)


def _keeps_off(node_info: NodeInfo, pod: Pod) -> bool:
    """Return whether a node refuses a pod, whatever is free on it."""
    if pod.neuron is not None and node_info.node.neuron_fault:
        return True
    return not all(hint.accepts(hint.looks_at(pod), node_info) for hint in _NODE_HINTS)


def _is_safe(node_info: NodeInfo, pod: Pod) -> bool:
    """Return whether no pod whose ids are unknown can use what the pod is to get; one may have come meanwhile."""
    if pod.neuron is None or not node_info.neuron_usage.unknown_devices:
        return True
    return neuron_topology.is_safe(node_info, pod.neuron)
