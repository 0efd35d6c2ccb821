"""
What an event of a namespace means: affinity terms may select other pods than before.
"""

from collections.abc import Callable

import attrs

from neuron_scheduler.cluster.tables.namespaces import NamespaceTable
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.scheduling.queue.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class NamespaceHandler:
    """
    Takes namespace events.

    Attributes:
        wake: called when the scheduling loop may have something to do.
    """

    namespaces: NamespaceTable
    queue: SchedulingQueue
    metrics: Metrics
    wake: Callable[[], None]
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    def added(self, namespace: Namespace) -> None:
        """Take a namespace that was not there before; pods in it may have come first."""
        self._put(namespace)

    def updated(self, _: Namespace, new: Namespace) -> None:
        """Take its new labels."""
        self._put(new)

    def deleted(self, namespace: Namespace) -> None:
        """Take that it is gone; its pods went before it."""
        self.namespaces.remove(namespace.name)

    def malformed(self, report: Malformed) -> None:
        """Take one that cannot be read; its last good state, if any, is kept."""
        self.metrics.malformed("namespaces")
        if self._warned(report.key):
            log.warning("Skipping malformed namespace", namespace=report.key, err=report.reason)

    def mended(self, report: Malformed) -> None:
        """Take that an unreadable object can be read again, or is gone."""
        self._warned.forget(report.key)

    def _put(self, namespace: Namespace) -> None:
        self.namespaces.put(namespace)
        self.queue.note(ClusterEvent.NAMESPACE_LABELS)
        self.wake()
