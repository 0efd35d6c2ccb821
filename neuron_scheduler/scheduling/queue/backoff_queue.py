"""
The pods that wait for time to pass: after an error, or after several refusals in quick succession.

Upstream: `pkg/scheduler/backend/queue/backoff_queue.go`. A backoff ends with a whole second, so pods whose backoffs end
in the same second enter the active queue together, where the priority decides. Unlike upstream, a pod that was refused
once has no backoff: the event that wakes it may really help (`pending_events`).
"""

import math
from typing import Final

import attrs

from neuron_scheduler.scheduling.queue.pod_heap import PodHeap
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod

_ROW_ENDS_AFTER: Final = 2.0
"""Times the longest backoff; a refusal that comes later than that begins a new row."""


@attrs.define(eq=False, kw_only=True)
class BackoffQueue:
    """
    Pods in backoff, by the second in which it ends.

    Attributes:
        initial, longest: seconds; a backoff doubles with each error, or refusal after the first, in a row.
    """

    initial: float
    longest: float
    _seconds: dict[float, dict[QueuedPod, None]] = attrs.field(factory=dict, init=False)
    _ends: dict[QueuedPod, float] = attrs.field(factory=dict, init=False)
    _refused: PodHeap = attrs.field(factory=PodHeap, init=False)

    def refused(self, queued: QueuedPod, now: float) -> None:
        """Count a refusal; one long after the last begins a new row."""
        in_a_row = now - queued.since <= _ROW_ENDS_AFTER * self.longest
        queued.refusals = queued.refusals + 1 if in_a_row else 1
        queued.errors = 0
        queued.since = now

    def failed(self, queued: QueuedPod, now: float) -> None:
        """Count an error."""
        queued.errors += 1
        queued.since = now

    def failed_after_refusal(self, queued: QueuedPod, now: float) -> None:
        """Count an error in what was done for a refused pod; each refusal before it in a row had one, or the like."""
        queued.errors = queued.refusals
        queued.since = now

    def end(self, queued: QueuedPod) -> float:
        """Return when the pod's backoff is over."""
        in_a_row = queued.errors or queued.refusals - 1
        if in_a_row <= 0 or not self.longest:
            return queued.since
        return math.ceil(queued.since + min(self.longest, self.initial * (1 << min(in_a_row - 1, 62))))

    def add(self, queued: QueuedPod) -> None:
        """Add a pod."""
        end = self._ends[queued] = self.end(queued)
        self._seconds.setdefault(end, {})[queued] = None
        if not queued.errors:
            # By the end first, so that a pod that was tried a moment ago comes last.
            self._refused.push(queued, (end, queued.rank))

    def discard(self, queued: QueuedPod) -> None:
        """Remove a pod, even if its refusals or errors have changed since it was added."""
        self._refused.discard(queued)
        end = self._ends.pop(queued)
        ending = self._seconds[end]
        del ending[queued]
        if not ending:
            del self._seconds[end]

    def first(self) -> QueuedPod | None:
        """Return the best of the pods whose backoff ends first; a backoff after an error is never cut short."""
        return self._refused.first()

    def over(self, now: float) -> list[QueuedPod]:
        """Return the pods whose backoff is over."""
        if not self._seconds or min(self._seconds) > now:
            return []
        return [queued for end in sorted(self._seconds) if end <= now for queued in self._seconds[end]]

    def next_time(self) -> float | None:
        """Return when the next backoff is over."""
        return min(self._seconds, default=None)
