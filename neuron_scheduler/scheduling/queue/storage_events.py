"""
The cluster events that follow from a change of a storage object.

Upstream: `EventsToRegister` of the volume plugins, with one of its hints: room that shrinks, as with each new volume,
helps nobody. Few pods wait for volumes, so else a needless attempt costs less than a rule for each field. A claim, or a
volume bound to it, concerns only the pods that use the claim; a free volume concerns all pods. What counts as attached
to a node is ATTACHMENT_GONE there (`StorageChanged.nodes`).
"""

from collections.abc import Iterator, Mapping
from typing import Final

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


@attrs.frozen
class _Events:
    """What follows when an object of a kind comes, changes or goes; None where that helps no pod."""

    added: ClusterEvent | None = None
    changed: ClusterEvent | None = None
    deleted: ClusterEvent | None = None


_EVENTS: Final[Mapping[type[Storage], _Events]] = {
    PersistentVolumeClaim: _Events(ClusterEvent.CLAIM_ADDED, ClusterEvent.CLAIM_CHANGED),
    PersistentVolume: _Events(ClusterEvent.VOLUME_ADDED, ClusterEvent.VOLUME_CHANGED, ClusterEvent.VOLUME_CHANGED),
    StorageClass: _Events(ClusterEvent.CLASS_ADDED, ClusterEvent.CLASS_CHANGED),
    CSINode: _Events(ClusterEvent.CSI_NODE_ADDED, ClusterEvent.CSI_NODE_CHANGED, ClusterEvent.CSI_NODE_CHANGED),
    CSIDriver: _Events(changed=ClusterEvent.CSI_DRIVER_CHANGED, deleted=ClusterEvent.CSI_DRIVER_CHANGED),
    CSIStorageCapacity: _Events(ClusterEvent.CAPACITY_CHANGED, ClusterEvent.CAPACITY_CHANGED),
    VolumeAttachment: _Events(),
}


def storage_events(before: Storage | None, after: Storage | None) -> Iterator[StorageEvent]:
    """Yield the events that follow from an object that has come, changed or gone; None for the missing state."""
    storage = after or before
    if storage is not None:
        events = _EVENTS[type(storage)]
        happened = events.added if before is None else events.changed if after is not None else events.deleted
        if happened is not None and not _is_no_larger(before, after):
            # The claim that a volume was kept for may take another one now.
            is_kept = before is None or _claim(before) in ("", _claim(storage))
            yield StorageEvent(happened, _claim(storage) if is_kept else "")


def _is_no_larger(before: Storage | None, after: Storage | None) -> bool:
    """Return whether both are room, of the same nodes then, and none of it is new."""
    match before, after:
        case CSIStorageCapacity(), CSIStorageCapacity():
            return (after.available, after.capacity) <= (before.available, before.capacity)
    return False


def events_of_release(plan: VolumePlan) -> Iterator[StorageEvent]:
    """Yield the events of a plan that is not carried out: its volumes are free again, its claims unchanged."""
    if plan.keep:
        yield StorageEvent(ClusterEvent.VOLUME_CHANGED)
    for claim in plan.provision:
        yield StorageEvent(ClusterEvent.CLAIM_CHANGED, claim.key)


def _claim(storage: Storage) -> str:
    if isinstance(storage, PersistentVolumeClaim):
        return storage.key
    return storage.claim.key if isinstance(storage, PersistentVolume) and storage.claim is not None else ""
