"""
A `Cluster` that announces each of its changes, so that another cluster can follow.

A change that other changes are part of is announced alone: whoever applies it makes those as well. Changes are
announced after they were made, so one that raised an exception is none. A fork of it announces nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination, SetAside
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.cluster.tables.namespaces import NamespaceTable
from neuron_scheduler.cluster.tables.volumes import Volumes
from neuron_scheduler.cluster.tables.workloads import Workloads
from neuron_scheduler.journal import changes
from neuron_scheduler.journal.changes import Change
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim, Storage
from neuron_scheduler.model.workload import Workload
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask

Announce = Callable[[Change], None]


def ignore(_change: Change) -> None:
    """Do nothing."""


@attrs.define(eq=False)
class _RecordedNamespaces(NamespaceTable):
    announce: Announce = ignore

    def put(self, namespace: Namespace) -> None:
        super().put(namespace)
        self.announce(changes.PutNamespace(namespace))

    def remove(self, name: str) -> None:
        super().remove(name)
        self.announce(changes.RemoveNamespace(name))


@attrs.define(eq=False)
class _RecordedWorkloads(Workloads):
    announce: Announce = ignore

    def put(self, workload: Workload) -> None:
        super().put(workload)
        self.announce(changes.PutWorkload(workload))

    def remove(self, workload: Workload) -> None:
        super().remove(workload)
        self.announce(changes.RemoveWorkload(workload))


@attrs.define(eq=False)
class _RecordedVolumes(Volumes):
    announce: Announce = ignore

    def assume(self, decided: PersistentVolume | PersistentVolumeClaim) -> None:
        super().assume(decided)
        self.announce(changes.AssumeVolume(decided))

    def restore(self, decided: PersistentVolume | PersistentVolumeClaim) -> None:
        super().restore(decided)
        self.announce(changes.RestoreVolume(decided))


def recorded_cluster(announce: Announce) -> Cluster:
    """Return an empty cluster that announces each of its changes."""
    return _RecordedCluster(
        namespaces=_RecordedNamespaces(announce=announce),
        workloads=_RecordedWorkloads(announce=announce),
        volumes=_RecordedVolumes(announce=announce),
        announce=announce,
    )


@attrs.define(eq=False)
class _RecordedCluster(Cluster):
    announce: Announce = ignore
    _within: bool = attrs.field(default=False, init=False)  # another change

    def put_node(self, node: Node) -> NodeInfo:
        with self._announced(changes.PutNode(node)):
            return super().put_node(node)

    def remove_node(self, name: str) -> tuple[Nomination, ...]:
        with self._announced(changes.RemoveNode(name)):
            return super().remove_node(name)

    def set_aside(self, name: str, aside: SetAside | None) -> None:
        with self._announced(changes.SetNodeAside(name, aside)):
            super().set_aside(name, aside)

    def put_pod(self, pod: Pod) -> PodInfo:
        with self._announced(changes.PutPod(pod)):
            return super().put_pod(pod)

    def put_unreadable_pod(self, pod: Pod) -> None:
        with self._announced(changes.PutUnreadablePod(pod)):
            super().put_unreadable_pod(pod)

    def remove_pod(self, uid: str) -> str | None:
        with self._announced(changes.RemovePod(uid)):
            return super().remove_pod(uid)

    def assume(self, pod: Pod, cores: CoreMask = NO_CORES) -> None:
        with self._announced(changes.Assume(pod, cores)):
            super().assume(pod, cores)

    def nominate(self, name: str, nomination: Nomination) -> None:
        with self._announced(changes.Nominate(name, nomination)):
            super().nominate(name, nomination)

    def clear_nomination(self, uid: str) -> str | None:
        with self._announced(changes.ClearNomination(uid)):
            return super().clear_nomination(uid)

    def put_storage(self, storage: Storage) -> None:
        with self._announced(changes.PutStorage(storage)):
            super().put_storage(storage)

    def remove_storage(self, storage: Storage) -> None:
        with self._announced(changes.RemoveStorage(storage)):
            super().remove_storage(storage)

    @contextmanager
    def _announced(self, change: Change) -> Iterator[None]:
        if self._within:
            yield
            return
        self._within = True
        try:
            yield
        finally:
            self._within = False
        self.announce(change)
