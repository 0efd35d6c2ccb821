"""
Whether a node still takes a pod that was decided for it and waits to be bound.

A Binding may wait for minutes, and the API server binds whatever it is told to: what a kubelet would reject, or a node
that is being emptied, must be found out before. Only what is known of the one node is looked at. Refuses to look for
another node, and to take back a decision for anything that kube-scheduler ignores during execution.
"""

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.plugins import node_unschedulable, taint_toleration


def still_takes(node_info: NodeInfo, pod: Pod, cores: CoreMask) -> bool:
    """
    Tell whether a node would take a pod that is assumed on it.

    Args:
        node_info: the node, with the pod.
        pod: as it is now.
        cores: what it was given.
    """
    pod_info = node_info.pod_infos.get(pod.uid)
    if pod_info is None or pod_info.cores != cores or cores & node_info.neuron_usage.double_booked:
        return False  # the machine is another one, or somebody else has bound a pod to these cores
    return not _keeps_off(node_info.node, pod) and not any(
        node_info.used.get(name, 0) > node_info.node.allocatable.get(name, 0) for name in (PODS, *pod.requests)
    )


def _keeps_off(node: Node, pod: Pod) -> bool:
    """Return whether a node is closed to a pod, whatever is free on it."""
    if pod.neuron is not None and node.neuron_unhealthy:
        return True
    return not (node_unschedulable.fits(pod.tolerations, node) and taint_toleration.fits(pod.tolerations, node))
