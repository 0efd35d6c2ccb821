"""
A row read anew, because something outside it says otherwise: its node's object, or the storage that its pods refer to.

Pods stay as they are; what they hold of silicon depends on the machine, and what they hold of volumes on claims,
volumes and classes. Refuses to look for the rows that are meant: `cluster` finds them.
"""

import attrs

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, on_node, with_pod, without_pod
from neuron_scheduler.cluster.rows.pod_info import PodInfo, pod_info_of
from neuron_scheduler.cluster.tables.volumes import Volumes
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.volumes import NodeStorage


def claims_on(node_info: NodeInfo) -> Values:
    """Index definition: nodes by the keys of the claims that their pods use."""
    return tuple(held for held in node_info.volumes if isinstance(held, str)) if node_info.volumes else ()


def holding(pod_info: PodInfo, volumes: Volumes) -> PodInfo:
    """Return the tenant with what it holds of volumes by now."""
    held = volumes.held_by(pod_info.pod)
    return pod_info if held == pod_info.volumes else attrs.evolve(pod_info, volumes=held)


def holding_anew(node_info: NodeInfo, volumes: Volumes) -> NodeInfo:
    """Return the row with what all its tenants hold of volumes by now."""
    for uid, pod_info in node_info.pod_infos.items():
        again = holding(pod_info, volumes)
        if again is not pod_info:
            node_info = with_pod(without_pod(node_info, uid), again)
    return node_info


def on_new_node(before: NodeInfo, node: Node, storage: NodeStorage) -> NodeInfo:
    """Return the row of a node's new object; on another machine silicon is read anew, and no promise stands."""
    machine = on_node(node).machine
    if machine == before.machine:
        return attrs.evolve(before, node=node, storage=storage)
    pod_infos = {
        uid: pod_info
        if pod_info.unreadable
        else attrs.evolve(pod_info_of(pod_info.pod, machine), volumes=pod_info.volumes)
        for uid, pod_info in before.pod_infos.items()
    }
    return attrs.evolve(on_node(node, pod_infos), storage=storage)
