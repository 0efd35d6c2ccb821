"""
What can happen in a cluster that may change a refusal.

Upstream: `pkg/scheduler/framework/events.go`. Each plugin lists the events that concern it (`EventsToRegister`).
"""

import enum
from collections.abc import Iterator

from neuron_scheduler.model.node import Node


class ClusterEvent(enum.StrEnum):
    """Something that may let a waiting pod fit; the value is the label in `scheduler_queue_incoming_pods_total`."""

    NODE_ADDED = "NodeAdd"
    NODE_LABELS = "NodeLabelChange"
    NODE_TAINTS = "NodeTaintChange"
    NODE_ALLOCATABLE = "NodeAllocatableChange"
    NODE_HEALTH = "NodeConditionChange"
    NODE_FEATURES = "NodeDeclaredFeatureChange"
    NODE_DELETED = "NodeDelete"
    ASSIGNED_POD_ADDED = "AssignedPodAdd"
    ASSIGNED_POD_LABELS = "AssignedPodLabelChange"
    ASSIGNED_POD_GONE = "AssignedPodDelete"
    NAMESPACE_LABELS = "NamespaceLabelChange"
    CLAIM_ADDED = "PersistentVolumeClaimAdd"
    CLAIM_CHANGED = "PersistentVolumeClaimUpdate"
    VOLUME_ADDED = "PersistentVolumeAdd"
    VOLUME_CHANGED = "PersistentVolumeUpdate"
    CLASS_ADDED = "storage.k8s.io/StorageClassAdd"
    CLASS_CHANGED = "storage.k8s.io/StorageClassUpdate"
    CSI_NODE_ADDED = "storage.k8s.io/CSINodeAdd"
    CSI_NODE_CHANGED = "storage.k8s.io/CSINodeUpdate"
    CSI_DRIVER_CHANGED = "storage.k8s.io/CSIDriverUpdate"
    CAPACITY_CHANGED = "storage.k8s.io/CSIStorageCapacityUpdate"
    DEVICES_CHANGED = "resource.k8s.io/ResourceClaimUpdate"
    ATTACHMENT_GONE = "storage.k8s.io/VolumeAttachmentDelete"


def node_events(old: Node, new: Node) -> Iterator[ClusterEvent]:
    """Yield what happened between two states of a node, as far as it could help a pod."""
    if old.labels != new.labels:
        yield ClusterEvent.NODE_LABELS
    if old.taints != new.taints or (old.unschedulable and not new.unschedulable) or old.refusal != new.refusal:
        yield ClusterEvent.NODE_TAINTS
    if old.allocatable != new.allocatable or old.capacity != new.capacity or old.published is not new.published:
        yield ClusterEvent.NODE_ALLOCATABLE
    if old.neuron_fault and not new.neuron_fault:
        yield ClusterEvent.NODE_HEALTH
    if old.declared_features != new.declared_features:
        yield ClusterEvent.NODE_FEATURES
