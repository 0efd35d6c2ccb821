"""
The changes of a `Cluster` as values: what was changed, and how to make the same change in another cluster.

Does not depend on which change follows which: `recorded_cluster` notices them.
"""

from typing import assert_never

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination, SetAside
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim, Storage
from neuron_scheduler.model.workload import Workload
from neuron_scheduler.neuron.core_mask import CoreMask


@attrs.frozen
class PutNamespace:
    """A namespace came, or its labels changed."""

    namespace: Namespace


@attrs.frozen
class RemoveNamespace:
    """A namespace went."""

    name: str


@attrs.frozen
class PutWorkload:
    """A Service or a controller came."""

    workload: Workload


@attrs.frozen
class RemoveWorkload:
    """A Service or a controller went."""

    workload: Workload


@attrs.frozen
class PutStorage:
    """A storage object came or changed."""

    storage: Storage


@attrs.frozen
class RemoveStorage:
    """A storage object went."""

    storage: Storage


@attrs.frozen
class AssumeVolume:
    """A claim or volume counts as what was decided about it, before the API server shows it."""

    decided: PersistentVolume | PersistentVolumeClaim


@attrs.frozen
class RestoreVolume:
    """A claim or volume counts as what the API server shows again."""

    decided: PersistentVolume | PersistentVolumeClaim


@attrs.frozen
class PutNode:
    """A node came or changed."""

    node: Node


@attrs.frozen
class RemoveNode:
    """A node went."""

    name: str


@attrs.frozen
class SetNodeAside:
    """A node, or some of its cores, is used last from now on; None ends that."""

    name: str
    aside: SetAside | None


@attrs.frozen
class PutPod:
    """A bound pod came or changed."""

    pod: Pod


@attrs.frozen
class PutUnreadablePod:
    """A bound pod of which little could be read."""

    pod: Pod


@attrs.frozen
class Assume:
    """A pod counts as bound from now on."""

    pod: Pod
    cores: CoreMask


@attrs.frozen
class RemovePod:
    """A pod is no longer on a node: it ended, or what was assumed did not happen."""

    uid: str


@attrs.frozen
class Nominate:
    """Space on a node is kept for a pending pod."""

    name: str
    nomination: Nomination


@attrs.frozen
class ClearNomination:
    """Space is no longer kept for a pod."""

    uid: str


Change = (
    PutNamespace
    | RemoveNamespace
    | PutWorkload
    | RemoveWorkload
    | PutStorage
    | RemoveStorage
    | AssumeVolume
    | RestoreVolume
    | PutNode
    | RemoveNode
    | SetNodeAside
    | PutPod
    | PutUnreadablePod
    | Assume
    | RemovePod
    | Nominate
    | ClearNomination
)
"""Any change; the order is the one in which they can be made in an empty cluster."""


def make(change: Change, cluster: Cluster) -> None:  # noqa: PLR0912 - a case for each change
    """
    Make the same change in another cluster.

    Raises:
        ValueError, LookupError: it does not fit that cluster.
    """
    match change:
        case PutNamespace(namespace):
            cluster.namespaces.put(namespace)
        case RemoveNamespace(name):
            cluster.namespaces.remove(name)
        case PutWorkload(workload):
            cluster.workloads.put(workload)
        case RemoveWorkload(workload):
            cluster.workloads.remove(workload)
        case PutStorage(storage):
            cluster.put_storage(storage)
        case RemoveStorage(storage):
            cluster.remove_storage(storage)
        case AssumeVolume(decided):
            cluster.volumes.assume(decided)
        case RestoreVolume(decided):
            cluster.volumes.restore(decided)
        case PutNode(node):
            cluster.put_node(node)
        case RemoveNode(name):
            cluster.remove_node(name)
        case SetNodeAside(name, aside):
            cluster.set_aside(name, aside)
        case PutPod(pod):
            cluster.put_pod(pod)
        case PutUnreadablePod(pod):
            cluster.put_unreadable_pod(pod)
        case Assume(pod, cores):
            cluster.assume(pod, cores)
        case RemovePod(uid):
            cluster.remove_pod(uid)
        case Nominate(name, nomination):
            cluster.nominate(name, nomination)
        case ClearNomination(uid):
            cluster.clear_nomination(uid)
        case _:
            assert_never(change)
