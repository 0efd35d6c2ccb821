"""
A row after a change outside of it: of its node's object, or of the storage that its pods refer to.

The devices and cores that a pod holds depend on the machine; the volumes that it holds depend on claims, volumes and
classes. Does not look for the rows that are affected: `cluster` finds them.
"""

import attrs

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, on_node, with_only
from neuron_scheduler.cluster.rows.pod_info import PodInfo, pod_info_of
from neuron_scheduler.cluster.tables.volumes import Volumes
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.volumes import NodeStorage
from neuron_scheduler.neuron.catalog import machine_of


def claims_on(node_info: NodeInfo) -> Values:
    """Index definition: nodes by the keys of the claims that their pods use."""
    return tuple(key for key in node_info.volumes if isinstance(key, str)) if node_info.volumes else ()


def pod_with_current_volumes(pod_info: PodInfo, volumes: Volumes) -> PodInfo:
    """Return the pod with the volumes that it holds now."""
    current = volumes.held_by(pod_info.pod)
    return pod_info if current == pod_info.volumes else attrs.evolve(pod_info, volumes=current)


def with_current_volumes(node_info: NodeInfo, volumes: Volumes) -> NodeInfo:
    """Return the row with the volumes that its pods hold now."""
    current = {uid: pod_with_current_volumes(pod_info, volumes) for uid, pod_info in node_info.pod_infos.items()}
    changed = any(current[uid] is not pod_info for uid, pod_info in node_info.pod_infos.items())
    return with_only(node_info, current) if changed else node_info


def with_node(before: NodeInfo, node: Node, storage: NodeStorage) -> NodeInfo:
    """Return the row with a new node object; another machine changes what its pods hold and ends its nominations."""
    machine = machine_of(node)
    if machine == before.machine:
        return attrs.evolve(before, node=node, storage=storage)
    pod_infos = {
        uid: pod_info
        if pod_info.unreadable
        else attrs.evolve(pod_info_of(pod_info.pod, machine), volumes=pod_info.volumes)
        for uid, pod_info in before.pod_infos.items()
    }
    return attrs.evolve(on_node(node, pod_infos), storage=storage)
