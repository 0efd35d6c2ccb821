"""
What a change of the cluster means to the pods that wait.

A pod without a node belongs to the queue if its scheduler name is ours. All other changes are events, which may let
refused pods fit. Upstream: `pkg/scheduler/eventhandlers.go`.
"""

from collections.abc import Callable, Collection, Container
from typing import ClassVar

import attrs

from neuron_scheduler.cluster.changes import (
    AssumedPodChanged,
    Change,
    DevicesChanged,
    GroupChanged,
    Kinds,
    NamespaceChanged,
    NodeChanged,
    NodeGone,
    PodBound,
    PodGone,
    PodPending,
    StorageChanged,
)
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent, node_events
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import storage_events


@attrs.frozen(eq=False, kw_only=True)
class QueueObserver:
    """
    Keeps the queue up to date.

    Attributes:
        scheduler_names: pods with one of these are ours to schedule.
        clock: seconds that never jump, the queue's time.
        unserved: the pending pods with Neuron of other schedulers, by uid; only answers read them.
    """

    OBSERVES: ClassVar[Kinds] = (
        *(GroupChanged, PodPending, AssumedPodChanged, PodBound, PodGone),
        *(NodeChanged, NodeGone, NamespaceChanged, StorageChanged, DevicesChanged),
    )

    cluster: Cluster
    queue: SchedulingQueue
    scheduler_names: Container[str]
    clock: Callable[[], float]
    unserved: dict[str, Pod] = attrs.field(factory=dict, init=False)

    def observe(self, change: Change) -> None:
        match change:
            case PodBound():
                self._remove_bound(change)
            case PodPending(pod, freed):
                self._put_pending(pod)
                self._note_freed(pod, freed)
            case AssumedPodChanged(pod) if pod.uid in self.queue:
                self._put_pending(pod)  # one that is being deleted is not tried again if its Binding fails
            case PodGone(pod, _, freed):
                self._remove(pod.uid)
                self._note_freed(pod, freed)
            case GroupChanged(key):
                self.queue.group_changed(key, self.clock())
            case NodeChanged(before, after):
                for event in (ClusterEvent.NODE_ADDED,) if before is None else node_events(before, after.node):
                    self.queue.note(event, on=after)
            case NodeGone():
                self.queue.note(ClusterEvent.NODE_DELETED)
            case NamespaceChanged():
                self.queue.note(ClusterEvent.NAMESPACE_LABELS)
            case StorageChanged():
                for happened in storage_events(change.before, change.after):
                    self.queue.note(happened.event, claim=happened.claim)
                self._note_on(change.nodes, ClusterEvent.ATTACHMENT_GONE)
            case DevicesChanged():
                self._note_on(change.nodes, ClusterEvent.DEVICES_CHANGED)

    def _note_on(self, nodes: Collection[str], event: ClusterEvent) -> None:
        for name in nodes if self.queue.is_listening else ():
            self.queue.note(event, on=self.cluster.node(name))

    def _put_pending(self, pod: Pod) -> None:
        is_ours = pod.scheduler_name in self.scheduler_names
        if is_ours and not pod.terminating:
            self.queue.add(pod, self.clock())
            return
        self._remove(pod.uid)
        if pod.neuron is not None and not (is_ours or pod.terminating):
            self.unserved[pod.uid] = pod

    def _remove(self, uid: str) -> None:
        self.queue.remove(uid)
        self.unserved.pop(uid, None)

    def _remove_bound(self, change: PodBound) -> None:
        pod, before = change.after.pod, change.before
        self._remove(pod.uid)
        if not self.queue.is_listening:
            return
        self._note_freed(pod, change.freed)
        if before is not None and before.pod.node_name == pod.node_name:
            self._note_changes(before, change.after)
            return
        if before is not None:
            self._note_freed(before.pod, before.pod.node_name)
        self.queue.note(ClusterEvent.ASSIGNED_POD_ADDED, pod, on=self.cluster.node(pod.node_name))

    def _note_changes(self, before: PodInfo, after: PodInfo) -> None:
        old, new = before.pod, after.pod
        if (old.labels, old.terminating) != (new.labels, new.terminating):
            self.queue.note(ClusterEvent.ASSIGNED_POD_LABELS, old, new, on=self.cluster.node(new.node_name))
        if (before.cores is None and after.cores is not None) or before.takes_more_than(after):
            self._note_freed(new, new.node_name)

    def _note_freed(self, pod: Pod, node_name: str) -> None:
        """Note that there is space on a node, if one is named."""
        if node_name and self.queue.is_listening:
            self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, on=self.cluster.node(node_name))
