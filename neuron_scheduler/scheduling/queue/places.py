"""
The place of each waiting pod: counts by place, and the order in which pods are tried.

    ACTIVE   tried now, best first
    BACKOFF  tried when the backoff is over, or sooner if no pod is active

Upstream: `pkg/scheduler/backend/queue/active_queue.go` and its metrics recorders. Does not depend on why a pod moves.
"""

from collections import Counter
from collections.abc import Callable

import attrs

from neuron_scheduler.scheduling.queue.backoff_queue import BackoffQueue
from neuron_scheduler.scheduling.queue.pod_heap import PodHeap
from neuron_scheduler.scheduling.queue.queued_pod import Place, QueuedPod


@attrs.define(eq=False)
class Places:
    """
    The active queue, the backoff queue, and the counts.

    Attributes:
        entered: called with (queue, event) for each pod that enters one of the two.
    """

    backoff: BackoffQueue
    entered: Callable[[str, str], None]
    counts: Counter[Place] = attrs.field(factory=Counter)
    _active: PodHeap = attrs.field(factory=PodHeap)

    def admit(self, queued: QueuedPod, now: float, event: str) -> None:
        """Move a pod to the backoff queue, or to the active queue if its backoff is over."""
        if self.backoff.end(queued) <= now:
            self.activate(queued, event)
        else:
            self.back_off(queued, event)

    def activate(self, queued: QueuedPod, event: str) -> None:
        """Move a pod to the active queue."""
        self.entered(Place.ACTIVE, event)
        self.put(queued, Place.ACTIVE)
        self._active.push(queued, queued.rank)

    def back_off(self, queued: QueuedPod, event: str) -> None:
        """Move a pod to the backoff queue."""
        self.entered(Place.BACKOFF, event)
        self.put(queued, Place.BACKOFF)
        self.backoff.add(queued)

    def put(self, queued: QueuedPod, place: Place) -> None:
        """Move a pod from its place to another."""
        self.leave(queued)
        self.counts[place] += 1
        queued.place = place

    def leave(self, queued: QueuedPod) -> None:
        """Remove a pod from its place."""
        self.counts[queued.place] -= 1
        if queued.place is Place.ACTIVE:
            self._active.discard(queued)
        elif queued.place is Place.BACKOFF:
            self.backoff.discard(queued)

    def end_backoffs(self, now: float) -> None:
        """Move the pods whose backoff is over to the active queue."""
        for queued in self.backoff.over(now):
            self.activate(queued, "BackoffComplete")

    def first(self) -> QueuedPod | None:
        """Return the best active pod, or else the best whose backoff may be cut short; it stays in place."""
        return self._active.first() or self.backoff.first()
