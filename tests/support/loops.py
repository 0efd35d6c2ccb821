"""A scheduling loop, and what a watch is handed to, around the stand-ins of a test; as `wiring` builds them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from neuron_scheduler.cluster.changes import (
    AssumedPodChanged,
    Change,
    GroupChanged,
    Kinds,
    NamespaceChanged,
    NodeChanged,
    NodeGone,
    PodBound,
    PodDoubted,
    PodGone,
    PodPending,
    SpaceChanged,
    StorageChanged,
)
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.allocate_fence import AllocateFence
from neuron_scheduler.controllers.binding_cycle import BindingCycle
from neuron_scheduler.controllers.commitment import Announcer
from neuron_scheduler.controllers.group_attempt import GroupAttempts
from neuron_scheduler.controllers.observers import Observers, PodList
from neuron_scheduler.controllers.pod_attempt import PodAttempts
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.controllers.side_lane import SideLane
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.queue.queue_observer import QueueObserver
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

EVERY_KIND: Final[Kinds] = (
    *(GroupChanged, PodPending, AssumedPodChanged, PodBound, PodGone, SpaceChanged, PodDoubted),
    *(NodeChanged, NodeGone, NamespaceChanged, StorageChanged),
)


@attrs.define(eq=False)
class Recorder:
    """An observer that remembers all changes."""

    OBSERVES = EVERY_KIND

    changes: list[Change] = attrs.field(factory=list)

    def observe(self, change: Change) -> None:
        self.changes.append(change)

    def spaces(self) -> list[str]:
        """Return the nodes whose space has changed, and forget all changes."""
        names = [change.node_name for change in self.changes if isinstance(change, SpaceChanged)]
        self.changes.clear()
        return names


def loop_of(
    *,
    cluster: Cluster,
    queue: SchedulingQueue,
    profiles: Mapping[str, Profile],
    parts: Any,
    executor: Callable[[AllocateFence], Any],
    clock: Callable[[], float],
    pod_list: PodList,
    wall_clock: Callable[[], int] = lambda: 1,
    may_bind: Callable[[], bool] = lambda: True,
    errors: UnexpectedErrors | None = None,
    concurrency: int = 2,
    fenced: bool = True,
) -> SchedulingLoop:
    """Return a loop; `parts` stands in for the binder, the volumes and the reporter."""
    metrics, wake_up, warmup = Metrics(), asyncio.Event(), IndexWarmup()
    errors = errors or UnexpectedErrors(metrics.count_unexpected_error)
    queue.on_change = wake_up.set
    shared: dict[str, Any] = {"cluster": cluster, "queue": queue, "clock": clock}
    cycle = BindingCycle(
        **shared, binder=parts, volumes=parts, reporter=parts, metrics=metrics, wall_clock=wall_clock,
        may_bind=may_bind, errors=errors, concurrency=concurrency, fenced=fenced,
    )  # fmt: skip
    preemption_executor = executor(cycle.fence)
    attempts = PodAttempts(
        **shared, profiles=profiles, preemption_executor=preemption_executor, reporter=parts, metrics=metrics,
        announcer=Announcer(cluster=cluster, queue=queue, recheck=preemption_executor.recheck),
        pod_list=pod_list, warmup=warmup, errors=errors,
    )  # fmt: skip
    side_lane = SideLane(
        **shared, profiles=profiles, warmup=warmup, on_ready=wake_up.set, on_crash=attempts.handle_crash
    )  # fmt: skip
    return SchedulingLoop(
        **shared, attempts=attempts, group_attempts=GroupAttempts(**shared, attempts=attempts, fence=cycle.fence),
        side_lane=side_lane, binding_cycle=cycle, preemption_executor=preemption_executor, may_bind=may_bind,
        wake_up=wake_up,
    )  # fmt: skip


@attrs.define(eq=False)
class Watches:
    """What the watches of a test are handed to: the queue, and then the other observers."""

    cluster: Cluster
    observers: Observers
    metrics: Metrics = attrs.field(factory=Metrics)

    def of(self, resource: Resource[Any]) -> WatchHandler[Any]:
        return WatchHandler(resource, self.cluster, self.observers, self.metrics)


def watches_of(
    cluster: Cluster,
    queue: SchedulingQueue,
    *observers: Any,
    clock: Callable[[], float],
    scheduler_names: Iterable[str] = ("my-scheduler",),
    pod_list: PodList | None = None,
) -> Watches:
    """Return what watches are handed to."""
    first = QueueObserver(cluster=cluster, queue=queue, scheduler_names=frozenset(scheduler_names), clock=clock)
    errors = UnexpectedErrors(Metrics().count_unexpected_error)
    return Watches(cluster, Observers((first, *observers), pod_list or PodList(), errors))
