"""
The cluster events that follow from a change of a storage object.

Upstream: `EventsToRegister` of the volume plugins and their hints. A claim, or a volume that is bound to it, concerns
only the pods that use the claim; a free volume concerns all pods. ATTACHMENT_GONE stands for any change of what counts
as attached to a node: it may leave room for all pods, or include a volume that a waiting pod needs too.
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
    """An event that may help pods; `claim` is the key of the only claim that it concerns, empty if it concerns all."""

    event: ClusterEvent
    claim: str = ""


def added(new: Storage) -> Iterator[StorageEvent]:
    """Yield the events that follow from a new object."""
    match new:
        case PersistentVolumeClaim(key=key):
            yield StorageEvent(ClusterEvent.CLAIM_ADDED, key)
            if new.volume_name:
                yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)  # a pod with the claim may be on a node already
        case PersistentVolume():
            yield StorageEvent(ClusterEvent.VOLUME_ADDED, _claim(new))
            if new.claim is not None:
                yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)  # as for a claim
        case StorageClass():
            yield StorageEvent(ClusterEvent.CLASS_ADDED)
        case CSINode():
            yield StorageEvent(ClusterEvent.CSI_NODE_ADDED)
        case CSIStorageCapacity(largest=largest):
            if largest is not None:
                yield StorageEvent(ClusterEvent.CAPACITY_CHANGED)


def updated(old: Storage, new: Storage) -> Iterator[StorageEvent]:
    """Yield the events that follow from a changed object."""
    match old, new:
        case PersistentVolumeClaim(), PersistentVolumeClaim(key=key):
            if attrs.evolve(old, resource_version=new.resource_version) != new:
                yield StorageEvent(ClusterEvent.CLAIM_CHANGED, key)
                yield from _detached(old, new)
        case PersistentVolume(), PersistentVolume():
            if attrs.evolve(old, resource_version=new.resource_version) != new:
                yield StorageEvent(ClusterEvent.VOLUME_CHANGED, _claim(new))
                yield from _reattached(old, new)
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
    """Yield the events that follow from a deleted object."""
    match old:
        case VolumeAttachment():
            yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)
        case PersistentVolumeClaim():
            yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)  # the attached volumes of its pods do not count any more
        case PersistentVolume():
            if old.claim is not None:
                yield StorageEvent(ClusterEvent.VOLUME_CHANGED, old.claim.key)  # the claim may get another volume
            yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)
        case StorageClass():
            yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)  # claims without a volume do not count any more
        case CSINode():
            yield StorageEvent(ClusterEvent.CSI_NODE_CHANGED)  # its limits are gone too
        case CSIDriver(storage_capacity=storage_capacity, required=required):
            if storage_capacity or required:
                yield StorageEvent(ClusterEvent.CSI_DRIVER_CHANGED)  # what it requires of nodes is gone too


def taken_back(plan: VolumePlan) -> Iterator[StorageEvent]:
    """Yield the events of a plan that is not carried out: its volumes are free again, its claims unchanged."""
    if plan.keep:
        yield StorageEvent(ClusterEvent.VOLUME_CHANGED)
    for claim in plan.provision:
        yield StorageEvent(ClusterEvent.CLAIM_CHANGED, claim.key)


def _detached(old: PersistentVolumeClaim, new: PersistentVolumeClaim) -> Iterator[StorageEvent]:
    """Yield an event if other volumes than before may count as attached for a claim's pods."""
    if (old.class_name, old.volume_name) != (new.class_name, new.volume_name):
        yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)


def _reattached(old: PersistentVolume, new: PersistentVolume) -> Iterator[StorageEvent]:
    """Yield an event if a volume may count as another one for its claim's pods, or in the attachments of nodes."""
    if (old.driver, old.handle, old.plugin, _claim(old)) != (new.driver, new.handle, new.plugin, _claim(new)):
        yield StorageEvent(ClusterEvent.ATTACHMENT_GONE)


def _claim(volume: PersistentVolume) -> str:
    return volume.claim.key if volume.claim is not None else ""


def _has_more_room(old: CSINode, new: CSINode) -> bool:
    """Return whether a limit was raised or removed."""
    return any(driver not in new.limits for driver in old.limits) or any(
        limit > old.limits.get(driver, 0) for driver, limit in new.limits.items()
    )
