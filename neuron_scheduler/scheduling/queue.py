r"""
The pods that wait: active, in backoff, unschedulable, gated.

    add --> ACTIVE --pop--> IN_FLIGHT --unschedulable--> UNSCHEDULABLE --event, 5 min--> BACKOFF --expiry--> ACTIVE
      \--> GATED --gates gone--> ACTIVE        \\--error--> BACKOFF              (or ACTIVE, if the backoff is over)

Upstream: `pkg/scheduler/backend/queue/scheduling_queue.go`. Time is an argument, in seconds of any clock that never
jumps. Events are only noted when they happen and take effect at the next `pop`, so a burst of deletions moves each
waiting pod once. Waiting pods stand in groups of equal (refusing plugins, request): an event looks at groups.
"""

import enum
import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.events import MAY_HELP, ClusterEvent

_FLUSH_PERIOD = 30.0


class Place(enum.Enum):
    """Where a pod waits; the values are the labels of `scheduler_pending_pods`."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in_flight"


Group = tuple[frozenset[str], NeuronRequest | None]
NO_GROUP: Group = (frozenset(), None)


@attrs.define(eq=False)
class QueuedPod:
    """
    A waiting pod and its history.

    Attributes:
        since: when it last came into the queue; ties of equal priority are served in this order.
        first_active: when it could first have been scheduled, gated time left out.
        attempts: scheduling attempts so far.
        refusals, errors: what its backoff is counted from; a refusal forgets the errors.
        group: who refused it last, and what it asks of the silicon.
        ticket: heap entries that carry another number are stale.
    """

    pod: Pod
    since: float
    place: Place = Place.GATED
    first_active: float | None = None
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    group: Group = NO_GROUP
    ticket: int = 0


def _unheard(_queue: str, _event: str) -> None:
    """Stand in where nobody counts."""


@attrs.define(eq=False, kw_only=True)
class SchedulingQueue:
    """
    All waiting pods by uid.

    Attributes:
        initial_backoff, max_backoff: seconds; the backoff doubles with each refusal or error in a row.
        max_unschedulable: seconds after which an unschedulable pod is tried again though nothing happened.
        entered: told (queue, event) for each pod that enters the active queue or the backoff.
    """

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_unschedulable: float = 300.0
    _entered: Callable[[str, str], None] = _unheard
    _pods: dict[str, QueuedPod] = attrs.field(factory=dict)
    _active: list[tuple[int, float, int, str]] = attrs.field(factory=list)
    _backoff: list[tuple[float, int, str]] = attrs.field(factory=list)
    _error_backoff: list[tuple[float, int, str]] = attrs.field(factory=list)
    _waiting: dict[Group, dict[str, QueuedPod]] = attrs.field(factory=dict)
    _counts: Counter[Place] = attrs.field(factory=Counter)
    _events: set[ClusterEvent] = attrs.field(factory=set)
    _tickets: int = 0
    _next_flush: float = 0.0

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def count(self, place: Place) -> int:
        """How many pods wait at a place."""
        return self._counts[place]

    def refused_by_plugin(self) -> Counter[str]:
        """How many unschedulable pods each plugin refused (`scheduler_unschedulable_pods`)."""
        counts: Counter[str] = Counter()
        for (plugins, _), pods in self._waiting.items():
            for plugin in plugins:
                counts[plugin] += len(pods)
        return counts

    def add(self, pod: Pod, now: float) -> None:
        """Take a pending pod; one with scheduling gates waits for them to go. A pod that is here is only updated."""
        if pod.uid in self._pods:
            self.update(pod, now)
            return
        queued = QueuedPod(pod, since=now)
        self._pods[pod.uid] = queued
        self._counts[Place.GATED] += 1
        if not pod.gates:
            self._activate(queued, now, "PodAdd")

    def update(self, pod: Pod, now: float) -> None:
        """Take a pending pod's new state; only a change that bears on scheduling gives it another try."""
        queued = self._pods.get(pod.uid)
        if queued is None:
            self.add(pod, now)
            return
        before, queued.pod = queued.pod, pod
        if queued.place is Place.GATED and not pod.gates:
            queued.since = now
            self._activate(queued, now, "SchedulingGatesEliminated")
        elif queued.place is Place.UNSCHEDULABLE and _bears_on_scheduling(before, pod):
            self._wake(queued, now, "PodUpdate")
        elif queued.place is Place.ACTIVE and before.priority != pod.priority:
            self._activate(queued, now, "PodUpdate")

    def remove(self, uid: str) -> None:
        """Forget a pod that is gone, bound, or no longer ours."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)

    def note(self, event: ClusterEvent) -> None:
        """Let an event wake, at the next `pop`, the pods it could help."""
        if self._waiting:
            self._events.add(event)

    def pop(self, now: float) -> QueuedPod | None:
        """
        Return the next pod to schedule, now in flight; None if all wait for time or events.

        With nothing active, a backoff after a refusal is cut short, as upstream does; one after an error never is.
        """
        self._apply_events(now)
        self._flush(now)
        queued = self._first(self._active) or self._first(self._backoff)
        if queued is None:
            return None
        self._move(queued, Place.IN_FLIGHT)
        queued.attempts += 1
        return queued

    def unschedulable(self, queued: QueuedPod, plugins: frozenset[str], now: float) -> None:
        """Put a refused pod back: it waits for an event that could change a refusing plugin's mind."""
        if self._pods.get(queued.pod.uid) is not queued:
            return
        queued.refusals += 1
        queued.errors = 0
        queued.since = now
        queued.group = (plugins, queued.pod.neuron)
        self._move(queued, Place.UNSCHEDULABLE)
        self._waiting.setdefault(queued.group, {})[queued.pod.uid] = queued

    def failed(self, queued: QueuedPod, now: float) -> None:
        """Put a pod back whose attempt ended in an error: it is tried again after its backoff."""
        if self._pods.get(queued.pod.uid) is not queued:
            return
        queued.errors += 1
        queued.since = now
        self._into_backoff(queued, "ScheduleAttemptFailure")

    def next_time(self) -> float | None:
        """Return when `pop` could next give something without an event."""
        times = [heap[0][0] for heap in (self._backoff, self._error_backoff) if heap]
        if self._waiting:
            times.append(self._next_flush)
        return min(times, default=None)

    # Between the places

    def _activate(self, queued: QueuedPod, now: float, event: str) -> None:
        if queued.first_active is None:
            queued.first_active = now
        self._entered(Place.ACTIVE.value, event)
        self._move(queued, Place.ACTIVE)
        heapq.heappush(self._active, (-queued.pod.priority, queued.since, queued.ticket, queued.pod.uid))

    def _into_backoff(self, queued: QueuedPod, event: str) -> None:
        self._entered(Place.BACKOFF.value, event)
        self._move(queued, Place.BACKOFF)
        heap = self._error_backoff if queued.errors else self._backoff
        heapq.heappush(heap, (self._expiry(queued), queued.ticket, queued.pod.uid))

    def _wake(self, queued: QueuedPod, now: float, event: str) -> None:
        if self._expiry(queued) <= now:
            self._activate(queued, now, event)
        else:
            self._into_backoff(queued, event)

    def _expiry(self, queued: QueuedPod) -> float:
        in_a_row = queued.errors or queued.refusals
        if not in_a_row:
            return queued.since
        return queued.since + min(self.max_backoff, self.initial_backoff * (1 << min(in_a_row - 1, 62)))

    def _move(self, queued: QueuedPod, place: Place) -> None:
        self._leave(queued)
        self._counts[place] += 1
        queued.place = place
        self._tickets += 1
        queued.ticket = self._tickets

    def _leave(self, queued: QueuedPod) -> None:
        self._counts[queued.place] -= 1
        queued.ticket = 0
        if queued.place is Place.UNSCHEDULABLE:
            pods = self._waiting[queued.group]
            del pods[queued.pod.uid]
            if not pods:
                del self._waiting[queued.group]

    def _apply_events(self, now: float) -> None:
        events, self._events = self._events, set()
        for event in sorted(events, key=lambda e: e.value):
            helped = MAY_HELP[event]
            for group in [g for g in self._waiting if not g[0] or g[0] & helped]:
                for queued in list(self._waiting[group].values()):
                    self._wake(queued, now, event.value)

    def _flush(self, now: float) -> None:
        for heap in (self._backoff, self._error_backoff):
            while heap and heap[0][0] <= now:
                queued = self._valid(heapq.heappop(heap))
                if queued is not None:
                    self._activate(queued, now, "BackoffComplete")
        if now >= self._next_flush:
            self._next_flush = now + _FLUSH_PERIOD
            for queued in list(self._long_unschedulable(now)):
                self._wake(queued, now, "UnschedulableTimeout")

    def _long_unschedulable(self, now: float) -> Iterator[QueuedPod]:
        for pods in self._waiting.values():
            for queued in pods.values():
                if now - queued.since < self.max_unschedulable:
                    break  # a group is in the order of `since`
                yield queued

    def _first(self, heap: list[Any]) -> QueuedPod | None:
        while heap:
            queued = self._valid(heapq.heappop(heap))
            if queued is not None:
                return queued
        return None

    def _valid(self, entry: tuple[Any, ...]) -> QueuedPod | None:
        *_, ticket, uid = entry
        queued = self._pods.get(uid)
        return queued if queued is not None and queued.ticket == ticket else None


def _bears_on_scheduling(before: Pod, after: Pod) -> bool:
    """Tell whether anything but status and metadata that no plugin reads has changed."""
    return before != attrs.evolve(
        after,
        resource_version=before.resource_version,
        allocation=before.allocation,
        annotations_size=before.annotations_size,
        scheduled=before.scheduled,
        nominated_node_name=before.nominated_node_name,
        observed_generation=before.observed_generation,
    )
