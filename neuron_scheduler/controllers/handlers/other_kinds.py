"""
What is watched beside nodes and pods, and what an event of it means.

A new kind is one entry in `other_kinds`: its informer and its right to be listed and watched follow from it. All are
needed, and all are stable APIs of every supported Kubernetes: without one of them decisions would be wrong without a
sign, because a budget, a volume's limit or a pod's siblings would not count. So a replica is not ready until each has
been listed, and says which one is missing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.cluster.tables.selecting_kinds import NamespaceTable, Workloads
from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES, WORKLOADS
from neuron_scheduler.kube.objects.storage import STORAGE
from neuron_scheduler.kube.watch.object_store import Handler
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod_group import PodGroupObject
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim, Storage
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue import storage_events
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import StorageEvent
from neuron_scheduler.telemetry.metrics import Metrics


@attrs.define(eq=False, kw_only=True)
class DisruptionBudgetHandler(ObjectHandler[DisruptionBudget]):
    """
    Keeps the last good state of each budget.

    An event wakes no pod: a budget only decides which of several pods is evicted, never whether a pod fits.
    """

    MALFORMED: ClassVar[str] = "Skipping malformed PodDisruptionBudget"
    NAMED: ClassVar[str] = "budget"

    resource: str = "poddisruptionbudgets"
    _budgets: dict[tuple[str, str], DisruptionBudget] = attrs.field(factory=dict, init=False)
    _sorted: tuple[DisruptionBudget, ...] | None = attrs.field(default=(), init=False)

    def all(self) -> tuple[DisruptionBudget, ...]:
        """Return all budgets, by namespace and name."""
        if self._sorted is None:
            self._sorted = tuple(self._budgets[key] for key in sorted(self._budgets))
        return self._sorted

    def added(self, new: DisruptionBudget) -> None:
        """Keep a budget, in place of its earlier state."""
        self._budgets[new.namespace, new.name] = new
        self._sorted = None

    def deleted(self, old: DisruptionBudget) -> None:
        """Drop a budget."""
        self._budgets.pop((old.namespace, old.name), None)
        self._sorted = None


@attrs.define(eq=False, kw_only=True)
class NamespaceHandler(ObjectHandler[Namespace]):
    """Keeps the labels of namespaces: when they change, affinity terms may select other pods than before."""

    MALFORMED: ClassVar[str] = "Skipping malformed namespace"
    NAMED: ClassVar[str] = "namespace"

    namespaces: NamespaceTable
    queue: SchedulingQueue
    resource: str = "namespaces"

    def added(self, new: Namespace) -> None:
        """Keep a namespace's labels; pods in it may have been seen first."""
        self.namespaces.put(new)
        self.queue.note(ClusterEvent.NAMESPACE_LABELS)

    def deleted(self, old: Namespace) -> None:
        """Drop a namespace; its pods were deleted before it."""
        self.namespaces.remove(old.name)


@attrs.define(eq=False, kw_only=True)
class StorageHandler(ObjectHandler[Storage]):
    """
    Keeps the storage objects of one kind. One that was never readable is absent, so no pod is placed by it.

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

    def updated(self, _: Storage, new: Storage) -> None:
        """Replace an object."""
        self.cluster.put_storage(new)
        self._note(new, storage_events.changed(new))

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


@attrs.define(eq=False, kw_only=True)
class WorkloadHandler(ObjectHandler[Workload]):
    """
    Keeps the selectors of one kind of workload: which pods belong together.

    An event wakes no pod: only preferences depend on it, and a waiting pod was refused by filters.
    """

    workloads: Workloads

    def added(self, new: Workload) -> None:
        """Keep a new workload's selector."""
        self.workloads.put(new)

    def updated(self, old: Workload, new: Workload) -> None:
        """Replace a workload's selector."""
        self.workloads.remove(old)
        self.workloads.put(new)

    def deleted(self, old: Workload) -> None:
        """Drop a workload's selector."""
        self.workloads.remove(old)


@attrs.define(eq=False, kw_only=True)
class PodGroupHandler(ObjectHandler[PodGroupObject]):
    """
    Keeps what PodGroups say of their groups, which are tried then, or held again. Not needed, so not in `other_kinds`.

    An object that was never readable is absent, so its pods wait if they say no count of their own.
    """

    groups: Groups
    queue: SchedulingQueue
    clock: Callable[[], float]
    resource: str = "podgroups"

    def added(self, new: PodGroupObject) -> None:
        """Keep an object, in place of its earlier state."""
        self.groups.declare(new.group)
        self.queue.group_changed(new.group.key, self.clock())

    def deleted(self, old: PodGroupObject) -> None:
        """Drop an object; members that have a node stay."""
        self.groups.withdraw(old.group.key)
        self.queue.group_changed(old.group.key, self.clock())


def other_kinds(
    cluster: Cluster,
    queue: SchedulingQueue,
    metrics: Metrics,
    *,
    budgets: DisruptionBudgetHandler,
    noticed: Callable[[str], None],
) -> Iterator[tuple[Resource[Any], Handler[Any]]]:
    """Yield every other watched resource with its handler; `noticed` is that of `StorageHandler`."""
    yield BUDGETS, budgets
    yield NAMESPACES, NamespaceHandler(namespaces=cluster.namespaces, queue=queue, metrics=metrics)
    for resource in WORKLOADS:
        yield resource, WorkloadHandler(workloads=cluster.workloads, metrics=metrics, resource=resource.name)
    for resource in STORAGE:
        yield resource, StorageHandler(cluster=cluster, queue=queue, metrics=metrics, noticed=noticed)
