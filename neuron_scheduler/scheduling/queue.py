r"""
The pods that wait: active, in backoff, unschedulable, gated.

    add --> ACTIVE --pop--> IN_FLIGHT --unschedulable--> UNSCHEDULABLE --event, 5 min--> BACKOFF --expiry--> ACTIVE
      \--> GATED --gates gone--> ACTIVE        \\--error--> BACKOFF              (or ACTIVE, if the backoff is over)

Upstream: `pkg/scheduler/backend/queue/scheduling_queue.go`. Time is an argument, in seconds of any clock that never
jumps. Events are only noted when they happen and take effect at the next `pop`, so a burst of deletions moves each
waiting pod once (`noted`). What happens while a long decision is being made is kept for its pod, and a pod for which
others are being asked to leave is held until all of them have been asked.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cause import Cause
from neuron_scheduler.scheduling.events import ClusterEvent
from neuron_scheduler.scheduling.hints import Change
from neuron_scheduler.scheduling.noted import Group, Noted, group_of
from neuron_scheduler.scheduling.queued_pod import Place, QueuedPod, bears_on_scheduling

BINDER = "DefaultBinder"
"""kube-scheduler's name of the plugin that refuses a pod that cannot be bound; only a change of the pod helps."""
_FLUSH_PERIOD = 30.0


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
    _causes: Counter[Cause] = attrs.field(factory=Counter)
    _noted: Noted = attrs.field(factory=Noted)
    _deciding: QueuedPod | None = None
    _meanwhile: Noted = attrs.field(factory=Noted)
    _tickets: int = 0
    _next_flush: float = 0.0
    _paused_until: float = 0.0

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def first(self, most: int) -> list[Pod]:
        """Return some of the pods that wait, those first that came first."""
        return [queued.pod for queued in islice(self._pods.values(), most)]

    def count(self, place: Place) -> int:
        """How many pods wait at a place."""
        return self._counts[place]

    def count_by_cause(self) -> Counter[Cause]:
        """How many pods wait for what, those in flight left out; each pod has one cause."""
        return +self._causes

    def refused_by_plugin(self) -> Counter[tuple[str, str]]:
        """How many unschedulable pods of a scheduler name each plugin refused (`scheduler_unschedulable_pods`)."""
        counts: Counter[tuple[str, str]] = Counter()
        for group, pods in self._waiting.items():
            for plugin in group.plugins:
                counts[plugin, group.scheduler_name] += len(pods)
        return counts

    def add(self, pod: Pod, now: float) -> None:
        """Take a pending pod; one with scheduling gates waits for them to go. A pod that is here is only updated."""
        if pod.uid in self._pods:
            self.update(pod, now)
            return
        queued = QueuedPod(pod, since=now)
        self._pods[pod.uid] = queued
        self._counts[Place.GATED] += 1
        self._causes[queued.counted] += 1
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
        elif queued.place is Place.UNSCHEDULABLE and (bears_on_scheduling(before, pod) or _shrunk(queued, before)):
            self._wake(queued, now, "PodUpdate")
        elif queued.place is Place.IN_FLIGHT:
            queued.missed |= bears_on_scheduling(before, pod)
        elif queued.place is Place.ACTIVE and before.priority != pod.priority:
            self._activate(queued, now, "PodUpdate")

    def remove(self, uid: str) -> None:
        """Forget a pod that is gone, bound, or no longer ours."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave(queued)

    def activate(self, uid: str, now: float) -> None:
        """Give a refused pod another try, after its backoff: what it waited for has changed."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place is Place.UNSCHEDULABLE:
            self._wake(queued, now, "ForceActivate")

    def release(self, uid: str, now: float) -> None:
        """Hold a pod no longer; what could have helped it in the meantime wakes it now."""
        queued = self._pods.get(uid)
        if queued is not None and queued.held:
            queued.held = False
            if queued.missed:
                self.activate(uid, now)

    @property
    def listening(self) -> bool:
        """Whether an event could help any pod: one waits for events, or is being decided."""
        return bool(self._waiting) or self._deciding is not None

    def note(self, event: ClusterEvent, *pods: Pod, on: Change | None = None) -> None:
        """
        Let an event wake, at the next `pop`, the pods it could help.

        `pods` are those it happened to and `on` is the node it happened on, if they are known.
        """
        if self._waiting:
            self._noted.note(event, pods, on)
        if self._deciding is not None:
            self._meanwhile.note(event, pods, on)

    def note_storage(self, event: ClusterEvent, claim: str) -> None:
        """As `note`, for something that concerns only the pods that use a claim; all of them without one."""
        if not claim:
            self.note(event)
            return
        if self._waiting:
            self._noted.note_claim(event, claim)
        if self._deciding is not None:
            self._meanwhile.note_claim(event, claim)

    def pause(self, until: float) -> None:
        """Pop no pod before this time: no attempt can succeed, for any pod."""
        self._paused_until = until

    def pop(self, now: float) -> QueuedPod | None:
        """
        Return the next pod to schedule, now in flight; None if all wait for time or events.

        With nothing active, a backoff after a refusal is cut short, as upstream does; one after an error never is.
        """
        if self._paused_until:
            if now < self._paused_until:
                return None
            self._paused_until = 0.0
        if self._noted:
            self._apply_events(now)
        self._flush(now)
        queued = self._first(self._active) or self._first(self._backoff)
        if queued is None:
            return None
        self._move(queued, Place.IN_FLIGHT)
        queued.attempts += 1
        queued.missed = queued.prepared = False
        return queued

    def keep_events(self, queued: QueuedPod) -> None:
        """Keep what happens from now on for a popped pod whose decision takes a while, until it is put back."""
        self._deciding, self._meanwhile = queued, Noted()

    def unschedulable(
        self,
        queued: QueuedPod,
        plugins: frozenset[str],
        now: float,
        *,
        held: bool = False,
        promised: bool = False,
        cause: Cause = Cause.ERROR,
    ) -> None:
        """
        Put a refused pod back: it waits for an event that could change a refusing plugin's mind.

        Such an event may have come since it was popped. One that is `held` waits for its release first. One that was
        `promised` space waits until it fits: others that could be asked to leave are no help any more.
        """
        if self._pods.get(queued.pod.uid) is not queued:
            return
        queued.refusals += 1
        queued.errors = 0
        queued.cause = cause
        queued.since = now
        queued.group = group_of(queued.pod, plugins, promised=promised)
        queued.held = held
        queued.missed |= self._missed_by(queued)
        self._move(queued, Place.UNSCHEDULABLE)
        self._waiting.setdefault(queued.group, {})[queued.pod.uid] = queued
        if queued.missed:
            self._wake(queued, now, "ScheduleAttemptFailure")

    def failed(self, queued: QueuedPod, now: float) -> None:
        """Put a pod back whose attempt ended in an error: it is tried again after its backoff."""
        if self._pods.get(queued.pod.uid) is not queued:
            return
        queued.errors += 1
        queued.cause = Cause.ERROR
        queued.since = now
        self._into_backoff(queued, "ScheduleAttemptFailure")

    def next_time(self) -> float | None:
        """Return when `pop` could next give something without an event."""
        if self._paused_until:
            return self._paused_until
        times = [heap[0][0] for heap in (self._backoff, self._error_backoff) if heap]
        if self._waiting:
            times.append(self._next_flush)
        return min(times, default=None)

    # Between the places

    def _missed_by(self, queued: QueuedPod) -> bool:
        """Tell whether something happened since the pod was popped that may help it."""
        happened = self._meanwhile.helped((queued.group,)) if self._deciding is queued else ()
        return any(helped.means(queued.pod) for helped in happened)

    def _activate(self, queued: QueuedPod, now: float, event: str) -> None:
        if queued.first_active is None:
            queued.first_active = now
        self._entered(Place.ACTIVE, event)
        self._move(queued, Place.ACTIVE)
        heapq.heappush(self._active, (-queued.pod.priority, queued.since, queued.ticket, queued.pod.uid))

    def _into_backoff(self, queued: QueuedPod, event: str) -> None:
        self._entered(Place.BACKOFF, event)
        self._move(queued, Place.BACKOFF)
        heap = self._error_backoff if queued.errors else self._backoff
        heapq.heappush(heap, (self._expiry(queued), queued.ticket, queued.pod.uid))

    def _wake(self, queued: QueuedPod, now: float, event: str) -> None:
        if queued.held:
            queued.missed = True
        elif self._expiry(queued) <= now:
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
        queued.place, queued.counted = place, queued.cause
        self._causes[queued.counted] += place is not Place.IN_FLIGHT
        self._tickets += 1
        queued.ticket = self._tickets

    def _leave(self, queued: QueuedPod) -> None:
        self._counts[queued.place] -= 1
        self._causes[queued.counted] -= queued.place is not Place.IN_FLIGHT
        queued.ticket = 0
        if self._deciding is queued:
            self._deciding, self._meanwhile = None, Noted()
        if queued.place is Place.UNSCHEDULABLE:
            pods = self._waiting[queued.group]
            del pods[queued.pod.uid]
            if not pods:
                del self._waiting[queued.group]

    def _apply_events(self, now: float) -> None:
        noted, self._noted = self._noted, Noted()
        for helped in noted.helped(self._waiting.keys()):
            for queued in list(self._waiting.get(helped.group, {}).values()):
                if helped.means(queued.pod):
                    self._wake(queued, now, helped.event)

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


def _shrunk(queued: QueuedPod, before: Pod) -> bool:
    """Tell whether a pod that was too large to be bound has lost annotations."""
    return BINDER in queued.group.plugins and queued.pod.annotations_size < before.annotations_size
