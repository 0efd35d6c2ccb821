"""
The waiting pods, the place of each, and the order in which they are tried.

    ACTIVE   tried now, best first
    BACKOFF  tried when the backoff is over, or sooner if no pod is active

Upstream: `active_queue.go`, `backoff_queue.go` in `pkg/scheduler/backend/queue`, and its metrics recorders;
`QueuedPodInfo` and `PodSchedulingPropertiesChange` in `pkg/scheduler/framework`.
"""

import enum
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.signature import IDENTITY_AND_STATUS
from neuron_scheduler.scheduling.plugins.cause import Cause

_read_by_plugins: Final = attrgetter(
    *(field.name for field in attrs.fields(Pod) if field.name not in IDENTITY_AND_STATUS)
)
_SLACK: Final = 64
"""Stale entries for which a small heap is not rebuilt."""
_ROW_ENDS_AFTER: Final = 2.0
"""Times the longest backoff; a refusal that comes later than that begins a new row."""
_AT_ONCE: Final = 512  # backoffs that end in one step


class Place(enum.StrEnum):
    """Where a pod waits; the values are the labels of `scheduler_pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


@attrs.define(eq=False)
class QueuedPod:
    """
    A waiting pod and its history.

    Attributes:
        since: when it came, or its last attempt ended; seconds on the queue's clock, like `first_active`.
        arrival: the order in which pods came; smaller is earlier.
        first_active: when it could first have been scheduled, without gated time.
        attempts: scheduling attempts so far.
        refusals, errors: how many in a row; the backoff is computed from them. A refusal resets the errors.
        is_preempting: its victims are being evicted; nothing wakes it before its release.
        missed: an event that could have helped, or a change of it, came while it was in flight or preempting.
        prepared: the indexes for it have just been built (`side_lane`).
        cause: what it waits for since its last attempt.
        given_up: the node whose space is not kept for it any more; its status may name it still.
        not_before: when more members of its group may have been created; it is not tried earlier.
    """

    pod: Pod
    since: float
    arrival: tuple[float, ...] = ()
    place: Place = Place.GATED
    first_active: float | None = None
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    is_preempting: bool = False
    missed: bool = False
    prepared: bool = False
    cause: Cause = Cause.UNTRIED
    given_up: str = ""
    not_before: float = 0.0

    @property
    def rank(self) -> tuple[int, tuple[float, ...]]:
        """Sort key: higher priority first, then the earlier arrival, however often the pod was refused."""
        return -self.pod.priority, self.arrival


def matters_for_scheduling(before: Pod, after: Pod) -> bool:
    """Return whether anything has changed that a plugin may read."""
    return bool(_read_by_plugins(before) != _read_by_plugins(after))


@attrs.define(eq=False)
class PodHeap:
    """
    Pods by a comparable key; of equal keys the pod that was pushed first is the better.

    The entry of a removed pod stays until it comes to the top. A standby replica never asks for the best pod, so the
    heap is rebuilt when it has more stale entries than pods, plus a few: memory stays proportional to the pods.
    """

    _entries: list[tuple[Any, int, QueuedPod]] = attrs.field(factory=list)
    _tickets: dict[QueuedPod, int] = attrs.field(factory=dict)
    _pushed: int = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, queued: QueuedPod) -> bool:
        return queued in self._tickets

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield the pods in the order in which they were pushed."""
        return iter(self._tickets)

    def push(self, queued: QueuedPod, key: Any) -> None:
        self._pushed += 1
        self._tickets[queued] = self._pushed
        heapq.heappush(self._entries, (key, self._pushed, queued))

    def first(self) -> QueuedPod | None:
        """Return the best pod, without removing it."""
        while self._entries:
            _, ticket, queued = self._entries[0]
            if self._tickets.get(queued) == ticket:
                return queued
            heapq.heappop(self._entries)
        return None

    def discard(self, queued: QueuedPod) -> None:
        if self._tickets.pop(queued, None) is None or len(self._entries) <= 2 * len(self._tickets) + _SLACK:
            return
        self._entries = [entry for entry in self._entries if self._tickets.get(entry[2]) == entry[1]]
        heapq.heapify(self._entries)


@attrs.define(eq=False, kw_only=True)
class BackoffQueue:
    """
    The pods that wait for time to pass, after an error or after several refusals in quick succession.

    A backoff ends with a whole second, so pods whose backoffs end in the same second enter the active queue together,
    where the priority decides. Unlike upstream, a pod that was refused once has no backoff: the event that wakes it may
    really help (`events`).

    Attributes:
        initial, longest: seconds; a backoff doubles with each error, or refusal after the first, in a row.
    """

    initial: float
    longest: float
    _seconds: dict[float, dict[QueuedPod, None]] = attrs.field(factory=dict, init=False)
    _ends: dict[QueuedPod, float] = attrs.field(factory=dict, init=False)
    _refused: PodHeap = attrs.field(factory=PodHeap, init=False)

    def count_refusal(self, queued: QueuedPod, now: float) -> None:
        """Count a refusal; one long after the last begins a new row."""
        in_a_row = now - queued.since <= _ROW_ENDS_AFTER * self.longest
        queued.refusals = queued.refusals + 1 if in_a_row else 1
        queued.errors = 0
        queued.since = now

    def count_error(self, queued: QueuedPod, now: float) -> None:
        queued.errors += 1
        queued.since = now

    def count_error_after_refusal(self, queued: QueuedPod, now: float) -> None:
        """Count an error after a refusal; every refusal in the row counts as an error."""
        queued.errors = queued.refusals
        queued.since = now

    def end_of(self, queued: QueuedPod) -> float:
        in_a_row = queued.errors or queued.refusals - 1
        if queued.not_before > queued.since:
            return queued.not_before
        if in_a_row <= 0 or not self.longest:
            return queued.since
        return math.ceil(queued.since + min(self.longest, self.initial * (1 << min(in_a_row - 1, 62))))

    def add(self, queued: QueuedPod) -> None:
        end = self._ends[queued] = self.end_of(queued)
        self._seconds.setdefault(end, {})[queued] = None
        if not queued.errors and queued.refusals and queued.not_before <= queued.since:
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

    def pods_over(self, now: float) -> list[QueuedPod]:
        if not self._seconds or min(self._seconds) > now:
            return []
        return [queued for end in sorted(self._seconds) if end <= now for queued in self._seconds[end]]

    def next_time(self) -> float | None:
        return min(self._seconds, default=None)


@attrs.define(eq=False)
class Places:
    """
    The active queue, the backoff queue, and the counts.

    Attributes:
        on_entered: called with (queue, event) for each pod that enters one of the two.
        singles, members: active pods of no group, and of one.
    """

    backoff: BackoffQueue
    on_entered: Callable[[str, str], None]
    counts: Counter[Place] = attrs.field(factory=Counter)
    singles: PodHeap = attrs.field(factory=PodHeap)
    members: PodHeap = attrs.field(factory=PodHeap)

    def admit(self, queued: QueuedPod, now: float, event: str) -> None:
        """Move a pod to the backoff queue, or to the active queue if its backoff is over."""
        if self.backoff.end_of(queued) <= now:
            self.activate(queued, event)
        else:
            self.back_off(queued, event)

    def activate(self, queued: QueuedPod, event: str) -> None:
        self.on_entered(Place.ACTIVE, event)
        self.put(queued, Place.ACTIVE)
        (self.singles if queued.pod.group is None else self.members).push(queued, queued.rank)

    def back_off(self, queued: QueuedPod, event: str) -> None:
        self.on_entered(Place.BACKOFF, event)
        self.put(queued, Place.BACKOFF)
        self.backoff.add(queued)

    def put(self, queued: QueuedPod, place: Place) -> None:
        self.leave(queued)
        self.counts[place] += 1
        queued.place = place

    def leave(self, queued: QueuedPod) -> None:
        self.counts[queued.place] -= 1
        if queued.place is Place.ACTIVE:
            self.singles.discard(queued)
            self.members.discard(queued)
        elif queued.place is Place.BACKOFF:
            self.backoff.discard(queued)

    def end_backoffs(self, now: float) -> bool:
        """End backoffs that are over, some of thousands; return whether no other is."""
        over = self.backoff.pods_over(now)
        for queued in over[:_AT_ONCE]:
            self.activate(queued, "BackoffComplete")
        return len(over) <= _AT_ONCE

    def best_active(self) -> QueuedPod | None:
        single, member = self.singles.first(), self.members.first()
        if single is None or member is None:
            return single or member
        return single if single.rank <= member.rank else member

    def first(self) -> QueuedPod | None:
        """Return the best active pod, or else the best whose backoff may be cut short; it stays in place."""
        return self.best_active() or self.backoff.first()
