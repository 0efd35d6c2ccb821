"""Short forms for a queue in tests: fill it, pop from it, count its pods."""

from typing import Any

from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.cluster.view import View
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod

FIT = frozenset({"NodeResourcesFit"})
AFFINITY = frozenset({"NodeAffinity"})
GONE = ClusterEvent.ASSIGNED_POD_GONE


def new_queue(**settings: Any) -> SchedulingQueue:
    """Return an empty queue; without a cluster, nodes are taken as they were at the event."""
    usual: dict[str, Any] = {
        "initial_backoff": 1.0,
        "max_backoff": 10.0,
        "max_unschedulable": 300.0,
        "on_entered": lambda _queue, _event: None,
        "view": View(),
        "groups": GroupWaits(Groups()),
        "on_change": lambda: None,
    }
    return SchedulingQueue(**usual | settings)


def queue_of(*names: str, now: float = 0.0) -> SchedulingQueue:
    """Return a queue of plain pods."""
    queue = new_queue()
    for name in names:
        queue.add(pod(name), now)
    return queue


def popped(queue: SchedulingQueue, now: float) -> QueuedPod:
    """Return the next pod; there must be one."""
    queued = queue.pop(now)
    assert queued is not None
    return queued


def drain(queue: SchedulingQueue, now: float) -> list[str]:
    """Pop all pods that are ready now, and return their names in order."""
    names = []
    while (queued := queue.pop(now)) is not None:
        names.append(queued.pod.name)
    return names


def refuse_all(queue: SchedulingQueue, now: float, plugins: frozenset[str] = FIT) -> None:
    while (queued := queue.pop(now)) is not None:
        queue.put_back_refused(queued, plugins, now)


def counts(queue: SchedulingQueue) -> dict[str, int]:
    """Return the number of pods in each place, without zeros."""
    return {place.value: count for place in Place if (count := queue.count(place))}


def apply_events(queue: SchedulingQueue, now: float) -> None:
    """Wake the best pod that the events so far may help, and pop none."""
    queue._unschedulable.evaluate(now)
