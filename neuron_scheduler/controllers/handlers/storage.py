"""
Storage objects of all kinds: what an event means to the cluster, to waiting pods, and to pods whose volumes are being
bound.

An object that was never readable is absent, so no pod is placed by it.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim, Storage
from neuron_scheduler.scheduling.queue import storage_events
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import StorageEvent


@attrs.define(eq=False, kw_only=True)
class StorageHandler(ObjectHandler[Storage]):
    """
    Keeps the storage objects of one kind.

    Attributes:
        noticed: called with the key of a claim or the name of a volume that is new, changed or gone.
    """

    MALFORMED: ClassVar[str] = "Skipping malformed storage object"

    cluster: Cluster
    queue: SchedulingQueue
    noticed: Callable[[str], None]
    resource: str = "storage"

    def added(self, new: Storage) -> None:
        """Keep a new object."""
        self.cluster.put_storage(new)
        self._note(new, storage_events.added(new))

    def updated(self, old: Storage, new: Storage) -> None:
        """Replace an object."""
        self.cluster.put_storage(new)
        self._note(new, storage_events.updated(old, new))

    def deleted(self, old: Storage) -> None:
        """Drop an object."""
        self.cluster.remove_storage(old)
        self._note(old, storage_events.deleted(old))

    def _note(self, storage: Storage, events: Iterable[StorageEvent]) -> None:
        for event in events:
            self.queue.note(event.event, claim=event.claim)
        if isinstance(storage, PersistentVolumeClaim):
            self.noticed(storage.key)
        elif isinstance(storage, PersistentVolume):
            self.noticed(storage.name)
