"""Short words for a queue in tests: who is in it, who is next, who waits where."""

from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.queued_pod import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod

FIT = frozenset({"NodeResourcesFit"})
AFFINITY = frozenset({"NodeAffinity"})
GONE = ClusterEvent.ASSIGNED_POD_GONE


def queue_of(*names: str, now: float = 0.0) -> SchedulingQueue:
    """Return a queue of pods without a wish."""
    queue = SchedulingQueue()
    for name in names:
        queue.add(pod(name), now)
    return queue


def popped(queue: SchedulingQueue, now: float) -> QueuedPod:
    """Return the next pod, which must be there."""
    queued = queue.pop(now)
    assert queued is not None
    return queued


def drain(queue: SchedulingQueue, now: float) -> list[str]:
    """Return the names of all pods that can be had now, in order."""
    names = []
    while (queued := queue.pop(now)) is not None:
        names.append(queued.pod.name)
    return names


def refuse_all(queue: SchedulingQueue, now: float, plugins: frozenset[str] = FIT) -> None:
    """Try every pod and refuse it."""
    while (queued := queue.pop(now)) is not None:
        queue.unschedulable(queued, plugins, now)


def counts(queue: SchedulingQueue) -> dict[str, int]:
    """Return how many pods wait where, without zeros."""
    return {place.value: count for place in Place if (count := queue.count(place))}
