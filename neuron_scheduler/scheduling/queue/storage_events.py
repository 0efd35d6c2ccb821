"""
What a change of a storage object may mean to waiting pods.

Upstream: `EventsToRegister` of the volume plugins and their hints. A claim concerns the pods that use it, and so does a
volume that a claim has; what is free concerns all.
"""

from collections.abc import Iterator

import attrs

from neuron_scheduler.model.volumes import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    StorageClass,
    VolumeAttachment,
)
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent


@attrs.frozen
class StorageEvent:
    """Something that may help; `claim` is the key of the only claim that it concerns, empty if it concerns any."""

    event: ClusterEvent
    claim: str = ""


def added(new: Storage) -> Iterator[StorageEvent]:
    """Yield what it may mean that an object has come."""
    match new:
        case PersistentVolumeClaim(key=key):
            yield StorageEvent(ClusterEvent.CLAIM_ADDED, key)
        case PersistentVolume():
            yield StorageEvent(ClusterEvent.VOLUME_ADDED, _claim(new))
        case StorageClass():
            yield StorageEvent(ClusterEvent.CLASS_ADDED)
        case CSINode():
            yield StorageEvent(ClusterEvent.CSI_NODE_ADDED)
        case CSIStorageCapacity(largest=largest):
            if largest is not None:
                yield StorageEvent(ClusterEvent.CAPACITY_CHANGED)


def updated(old: Storage, new: Storage) -> Iterator[StorageEvent]:
    """Yield what it may mean that an object has changed."""
    match old, new:
        case PersistentVolumeClaim(), PersistentVolumeClaim(key=key):
            if attrs.evolve(old, resource_version=new.resource_version) != new:
                yield StorageEvent(ClusterEvent.CLAIM_CHANGED, key)
                yield from _detached(old, new)
        case PersistentVolume(), PersistentVolume():
            if attrs.evolve(old, resource_version=new.resource_version) != new:
                yield StorageEvent(ClusterEvent.VOLUME_CHANGED, _claim(new))
        case StorageClass(), StorageClass():
            if old.allowed_topologies != new.allowed_topologies:
                yield StorageEvent(ClusterEvent.CLASS_CHANGED)
        case CSINode(), CSINode():
            if old.migrated != new.migrated or not new.drivers <= old.drivers or _has_more_room(old, new):
                yield StorageEvent(ClusterEvent.CSI_NODE_CHANGED)
        case CSIDriver(), CSIDriver():
            if (old.storage_capacity and not new.storage_capacity) or (old.required and not new.required):
                yield StorageEvent(ClusterEvent.CSI_DRIVER_CHANGED)
        case CSIStorageCapacity(), CSIStorageCapacity():
            if new.largest is not None and (old.largest is None or new.largest > old.largest):
                yield StorageEvent(ClusterEvent.CAPACITY_CHANGED)


def deleted(old: Storage) -> Iterator[StorageEvent]:
    """Yield what it may mean that an object is gone."""
    match old:
        case VolumeAttachment():
            yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)
        case PersistentVolumeClaim():
            yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)  # what its pods had attached counts no more
        case PersistentVolume():
            if old.claim is not None:
                yield StorageEvent(ClusterEvent.VOLUME_CHANGED, old.claim.key)  # the claim may get another one
            yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)
        case CSINode():
            yield StorageEvent(ClusterEvent.CSI_NODE_CHANGED)  # with it its limits
        case CSIDriver(storage_capacity=storage_capacity, required=required):
            if storage_capacity or required:
                yield StorageEvent(ClusterEvent.CSI_DRIVER_CHANGED)  # with it what it asks of nodes


def taken_back(plan: VolumePlan) -> Iterator[StorageEvent]:
    """Yield what it may mean that a plan is not carried out: volumes are free again, claims concern their pods."""
    if plan.keep:
        yield StorageEvent(ClusterEvent.VOLUME_CHANGED)
    for claim in plan.provision:
        yield StorageEvent(ClusterEvent.CLAIM_CHANGED, claim.key)


def _detached(old: PersistentVolumeClaim, new: PersistentVolumeClaim) -> Iterator[StorageEvent]:
    """Yield that a claim's pods may have something else attached than before."""
    if (old.class_name, old.volume_name) != (new.class_name, new.volume_name):
        yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)


def _claim(volume: PersistentVolume) -> str:
    return volume.claim.key if volume.claim is not None else ""


def _has_more_room(old: CSINode, new: CSINode) -> bool:
    """Tell whether a limit was raised or, which is more than any limit, lifted."""
    return any(driver not in new.limits for driver in old.limits) or any(
        limit > old.limits.get(driver, 0) for driver, limit in new.limits.items()
    )
