"""
What a watch event about a storage object means: to the cluster, to pods that wait in the queue, and to pods whose
volumes are being bound.
"""

from collections.abc import Callable, Iterable

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim, Storage
from neuron_scheduler.scheduling.queue import storage_events
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import StorageEvent
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class StorageHandler:
    """
    Takes events about storage objects of any kind.

    Attributes:
        noticed: told the key of a claim or the name of a volume that is new, other or gone.
    """

    cluster: Cluster
    queue: SchedulingQueue
    metrics: Metrics
    wake: Callable[[], None]
    noticed: Callable[[str], None]
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    def added(self, new: Storage) -> None:
        """Take an object that was not there before."""
        self.cluster.put_storage(new)
        self._tell(new, storage_events.added(new))

    def updated(self, old: Storage, new: Storage) -> None:
        """Take an object's new state."""
        self.cluster.put_storage(new)
        self._tell(new, storage_events.updated(old, new))

    def deleted(self, old: Storage) -> None:
        """Take that an object is gone."""
        self.cluster.remove_storage(old)
        self._tell(old, storage_events.deleted(old))

    def malformed(self, report: Malformed) -> None:
        """Take an object that cannot be read: it counts as absent, so that no pod is placed by it."""
        self.metrics.malformed("storage")
        if self._warned((report.kind, report.key)):
            log.warning("Skipping malformed storage object", kind=report.kind, key=report.key, err=report.reason)

    def mended(self, report: Malformed) -> None:
        """Take that an unreadable object can be read again, or is gone."""
        self._warned.forget((report.kind, report.key))

    def _tell(self, about: Storage, events: Iterable[StorageEvent]) -> None:
        for found in events:
            self.queue.note_storage(found.event, found.claim)
            self.wake()
        if isinstance(about, PersistentVolumeClaim):
            self.noticed(about.key)
        elif isinstance(about, PersistentVolume):
            self.noticed(about.name)
