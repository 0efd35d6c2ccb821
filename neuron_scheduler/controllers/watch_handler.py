"""
What is done with the objects of one kind that a watch shows: they are folded into the cluster, observers are told.

An object that cannot be read is counted and logged once. The cluster keeps its last state that could be read. The
devices of a pod on a node are unknown then.
"""

from typing import Generic, TypeVar

import attrs

from neuron_scheduler.cluster import fold
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.observers import Observers
from neuron_scheduler.kube.objects.base import Malformed, Resource
from neuron_scheduler.kube.objects.pods import unreadable_pod
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

T = TypeVar("T", bound=fold.Watched)

log = logs.logger(__name__)


@attrs.define(eq=False)
class WatchHandler(Generic[T]):
    """Handles the watch events of one resource."""

    resource: Resource[T]
    cluster: Cluster
    observers: Observers
    metrics: Metrics
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    def on_added(self, new: T, /) -> None:
        self.observers.tell(fold.put(self.cluster, None, new))

    def on_updated(self, old: T, new: T, /) -> None:
        self.observers.tell(fold.put(self.cluster, old, new))

    def on_deleted(self, old: T, /) -> None:
        self.observers.tell(fold.remove(self.cluster, old))

    def on_malformed(self, malformed: Malformed, /) -> None:
        self.metrics.count_malformed(self.resource.name)
        if self._warned(malformed.key):
            _warn(malformed)
        if malformed.node_name and malformed.uid:
            self.observers.tell(fold.put_unreadable(self.cluster, unreadable_pod(malformed)))

    def on_malformed_gone(self, malformed: Malformed, /) -> None:
        self._warned.forget(malformed.key)
        self.observers.tell(fold.remove_unreadable(self.cluster, malformed.uid))


def _warn(malformed: Malformed) -> None:
    match malformed.kind:
        case "Pod":
            log.warning("Skipping malformed pod", pod=malformed.key, node=malformed.node_name, err=malformed.reason)
        case "Node":
            log.warning("Skipping malformed node", node=malformed.key, err=malformed.reason)
        case "PodDisruptionBudget":
            log.warning("Skipping malformed PodDisruptionBudget", budget=malformed.key, err=malformed.reason)
        case "Namespace":
            log.warning("Skipping malformed namespace", namespace=malformed.key, err=malformed.reason)
        case _:
            log.warning("Skipping malformed object", kind=malformed.kind, key=malformed.key, err=malformed.reason)
