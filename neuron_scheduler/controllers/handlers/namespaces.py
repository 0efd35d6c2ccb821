"""Namespaces: when labels change, the namespace selectors of affinity terms may select other pods than before."""

from typing import Any, ClassVar

import attrs

from neuron_scheduler.cluster.tables.namespaces import NamespaceTable
from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue


@attrs.define(eq=False, kw_only=True)
class NamespaceHandler(ObjectHandler[Namespace]):
    """Keeps the labels of namespaces."""

    MALFORMED: ClassVar[str] = "Skipping malformed namespace"

    namespaces: NamespaceTable
    queue: SchedulingQueue
    resource: str = "namespaces"

    def added(self, new: Namespace) -> None:
        """Keep a new namespace's labels; pods in it may have been seen first."""
        self._put(new)

    def updated(self, _: Namespace, new: Namespace) -> None:
        """Replace a namespace's labels."""
        self._put(new)

    def deleted(self, old: Namespace) -> None:
        """Drop a namespace; its pods were deleted before it."""
        self.namespaces.remove(old.name)

    def identity(self, malformed: Malformed) -> dict[str, Any]:
        """Return the keys of the log line that name the namespace."""
        return {"namespace": malformed.key}

    def _put(self, namespace: Namespace) -> None:
        self.namespaces.put(namespace)
        self.queue.note(ClusterEvent.NAMESPACE_LABELS)
