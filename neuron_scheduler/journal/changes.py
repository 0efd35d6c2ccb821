"""
The changes of a `Cluster` as values: what was changed, and how to make the same change in another cluster.

Refuses to know which change follows which: `recorded_cluster` notices them.
"""

from collections.abc import Hashable
from typing import ClassVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination, SetAside
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    VolumeAttachment,
)
from neuron_scheduler.model.workload import Workload
from neuron_scheduler.neuron.core_mask import CoreMask

Key = tuple[Hashable, ...]


def _key_of(storage: Storage) -> Key:
    """Return what `Volumes` keeps an object under."""
    match storage:
        case PersistentVolumeClaim() | CSIStorageCapacity():
            return type(storage).__name__, storage.key
        case VolumeAttachment():
            return "VolumeAttachment", storage.name, storage.node_name, storage.volume_name
        case _:
            return type(storage).__name__, storage.name


@attrs.frozen
class PutNamespace:
    """A namespace came, or its labels changed."""

    namespace: Namespace
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "namespace", self.namespace.name

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.namespaces.put(self.namespace)


@attrs.frozen
class RemoveNamespace:
    """A namespace went."""

    name: str
    removes: ClassVar = True

    @property
    def key(self) -> Key:
        """What is changed."""
        return "namespace", self.name

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.namespaces.remove(self.name)


@attrs.frozen
class PutWorkload:
    """A Service or a controller came."""

    workload: Workload
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "workload", self.workload.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.workloads.put(self.workload)


@attrs.frozen
class RemoveWorkload:
    """A Service or a controller went."""

    workload: Workload
    removes: ClassVar = True

    @property
    def key(self) -> Key:
        """What is changed."""
        return "workload", self.workload.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.workloads.remove(self.workload)


@attrs.frozen
class PutStorage:
    """A storage object came or changed."""

    storage: Storage
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return _key_of(self.storage)

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.put_storage(self.storage)


@attrs.frozen
class RemoveStorage:
    """A storage object went."""

    storage: Storage
    removes: ClassVar = True

    @property
    def key(self) -> Key:
        """What is changed."""
        return _key_of(self.storage)

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.remove_storage(self.storage)


@attrs.frozen
class AssumeVolume:
    """A claim or volume counts as what was decided about it, before the API server shows it."""

    decided: PersistentVolume | PersistentVolumeClaim
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "assumed", *_key_of(self.decided)

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.volumes.assume(self.decided)


@attrs.frozen
class RestoreVolume:
    """A claim or volume counts as what the API server shows again."""

    decided: PersistentVolume | PersistentVolumeClaim
    removes: ClassVar = True

    @property
    def key(self) -> Key:
        """What is changed."""
        return "assumed", *_key_of(self.decided)

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.volumes.restore(self.decided)


@attrs.frozen
class PutNode:
    """A node came or changed."""

    node: Node
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "node", self.node.name

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.put_node(self.node)


@attrs.frozen
class RemoveNode:
    """A node went."""

    name: str
    removes: ClassVar = True

    @property
    def key(self) -> Key:
        """What is changed."""
        return "node", self.name

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.remove_node(self.name)


@attrs.frozen
class SetNodeAside:
    """A node, or some of its cores, is used last from now on; None ends that."""

    name: str
    aside: SetAside | None

    @property
    def key(self) -> Key:
        """What is changed."""
        return "set aside", self.name

    @property
    def removes(self) -> bool:
        """Whether nothing is left of what was set."""
        return self.aside is None

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.set_aside(self.name, self.aside)


@attrs.frozen
class PutPod:
    """A bound pod came or changed."""

    pod: Pod
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "pod", self.pod.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.put_pod(self.pod)


@attrs.frozen
class PutUnreadablePod:
    """A bound pod of which little could be read."""

    pod: Pod
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "pod", self.pod.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.put_unreadable_pod(self.pod)


@attrs.frozen
class Assume:
    """A pod counts as bound from now on."""

    pod: Pod
    cores: CoreMask
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "pod", self.pod.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.assume(self.pod, self.cores)


@attrs.frozen
class RemovePod:
    """A pod is no longer on a node: it ended, or what was assumed did not happen."""

    uid: str
    removes: ClassVar = True

    @property
    def key(self) -> Key:
        """What is changed."""
        return "pod", self.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.remove_pod(self.uid)


@attrs.frozen
class Nominate:
    """Space on a node is kept for a pending pod."""

    name: str
    nomination: Nomination
    removes: ClassVar = False

    @property
    def key(self) -> Key:
        """What is changed."""
        return "nomination", self.nomination.pod.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.nominate(self.name, self.nomination)


@attrs.frozen
class ClearNomination:
    """Space is no longer kept for a pod."""

    uid: str
    removes: ClassVar = True

    @property
    def key(self) -> Key:
        """What is changed."""
        return "nomination", self.uid

    def apply(self, cluster: Cluster) -> None:
        """Make the same change."""
        cluster.clear_nomination(self.uid)


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
"""
Any change. Each has a `key`, what it changes, and says whether it `removes` that; those of one key are about one thing.
The order is the one in which they can be applied to an empty cluster.
"""
