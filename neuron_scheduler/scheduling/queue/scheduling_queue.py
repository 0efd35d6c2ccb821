r"""
The pods that wait: active, in backoff, unschedulable, gated.

    add --> ACTIVE --pop--> IN_FLIGHT --refused--> UNSCHEDULABLE --event, 5 min--> ACTIVE   (or BACKOFF, if the
      \--> GATED --gates gone--> ACTIVE        \--error--> BACKOFF --its end--> ACTIVE            last was in vain)

Upstream: `pkg/scheduler/backend/queue/scheduling_queue.go`. Time is an argument, in seconds of any clock that never
jumps. Pods of higher priority come first, then older ones: a refused pod keeps its place. Events take effect at the
next `pop`, so a burst of deletions wakes each line of refused pods once (`events`, `unschedulable_pods`). Events during
a long decision are kept for its pod. A pod preempts while its victims are being evicted. `on_change` says when it is
worth calling `pop` again. `pop` does a part of the work at a time: it returns None where more is left, and `next_time`
says that it is time already.
"""

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.scheduling.cycle.signature import signature_of
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.events import InFlightEvents, refusal_kind_of
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.places import BackoffQueue, Place, Places, QueuedPod, matters_for_scheduling
from neuron_scheduler.scheduling.queue.unschedulable_pods import UnschedulablePods

BINDER = "DefaultBinder"
"""kube-scheduler's name of the plugin that refuses a pod that cannot be bound; only a change of the pod helps."""
_FLUSH_PERIOD = 30.0
AT_ONCE: Final = 64  # pods that are looked at, woken or put off in one step
_SENT_BACK: Final = 4  # such steps for a pod that goes back into its line: filters may have been asked
_FIRST: Final = (-1.0,)
"""What the order of arrival begins with for members of half-bound groups."""


@attrs.define(eq=False, kw_only=True)
class SchedulingQueue:
    """
    All waiting pods by uid.

    Attributes:
        initial_backoff, max_backoff: seconds; the backoff doubles with each refusal or error in a row.
        max_unschedulable: seconds after which an unschedulable pod is tried again without an event.
        on_entered: called with (queue, event) for each pod that enters the active queue or the backoff.
        view: the nodes as they are now.
        groups: which pods of each group wait.
        on_change: called when `pop` may return a pod earlier than before, apart from the end of `max_unschedulable`; it
            must not call the queue.
        _looks: at members of changed groups, by group and whether it has turned; `pop` goes on with them.
    """

    initial_backoff: float
    max_backoff: float
    max_unschedulable: float
    _on_entered: Callable[[str, str], None]
    _view: View
    groups: GroupWaits
    on_change: Callable[[], None]
    _pods: dict[str, QueuedPod] = attrs.field(factory=dict)
    _places: Places = attrs.field(init=False)
    _unschedulable: UnschedulablePods = attrs.field(init=False)
    _in_flight: InFlightEvents = attrs.field(factory=InFlightEvents)
    _looks: dict[tuple[GroupKey, bool], Iterator[None]] = attrs.field(factory=dict)
    _arrivals: int = 0
    _began: bool = False
    _next_flush: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._places = Places(BackoffQueue(initial=self.initial_backoff, longest=self.max_backoff), self._on_entered)
        self._unschedulable = UnschedulablePods(self._places, self._view)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def holds(self, queued: QueuedPod) -> bool:
        """Return whether a pod still waits or is in flight; not if it has left and come again, which is another one."""
        return self._pods.get(queued.pod.uid) is queued

    def first(self, count: int) -> list[Pod]:
        """Return up to so many waiting pods, oldest first."""
        return [queued.pod for queued in islice(self._pods.values(), count)]

    def count(self, place: Place) -> int:
        return self._places.counts[place]

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def pods(self) -> list[QueuedPod]:
        """Return all pods that wait or are in flight, oldest first."""
        return list(self._pods.values())

    def cause_of(self, queued: QueuedPod) -> Cause:
        return self._unschedulable.cause_of(queued)

    def refused_by_plugin(self) -> Counter[tuple[str, str]]:
        """Return how many unschedulable pods each plugin refused, by (plugin, scheduler name)."""
        return self._unschedulable.refused_by_plugin()

    def add(self, pod: Pod, now: float) -> None:
        """Add a pending pod, or update one that is here; a pod with scheduling gates waits until they are removed."""
        queued = self._pods.get(pod.uid)
        if queued is not None:
            self._replace(queued, pod, now)
            return
        queued = self._pods[pod.uid] = QueuedPod(pod, since=now)
        self._places.counts[Place.GATED] += 1
        self._join_group(queued, now)
        self._let_in(queued, now, "PodAdd")

    def _replace(self, queued: QueuedPod, pod: Pod, now: float) -> None:
        """Replace a pending pod; only a change that matters for scheduling gives it another try."""
        before, queued.pod = queued.pod, pod
        matters = matters_for_scheduling(before, pod)
        if before.group != pod.group:
            self._leave_group(before)
            self._join_group(queued, now)
            self._order(queued)
        if queued.place is Place.GATED:
            self._let_in(queued, now, "SchedulingGatesEliminated")
        elif queued.place is Place.UNSCHEDULABLE and (matters or self._has_shrunk(queued, before)):
            self._wake(queued, now, "PodUpdate")
        elif queued.place is Place.IN_FLIGHT:
            queued.missed |= matters
        elif queued.place in (Place.ACTIVE, Place.BACKOFF) and matters:
            self._unschedulable.remove(queued)  # it is not like the others of the line any more
            if (before.priority, before.group) != (pod.priority, pod.group):
                enter = self._places.activate if queued.place is Place.ACTIVE else self._places.back_off
                enter(queued, "PodUpdate")

    def remove(self, uid: str) -> None:
        """Forget a pod that is gone, bound, or no longer ours."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._leave_group(queued.pod)
            self._unschedulable.remove(queued)
            self._places.leave(queued)

    def group_changed(self, key: GroupKey, now: float) -> None:
        """
        Look at a group of which a member has come, changed or gone.

        The waiting members are let in once there are enough, or held again. While some members have a node, but too
        few, the others come first.
        """
        half_bound = self.groups.is_half_bound(key)
        turned = self.groups.update(key, now)
        if turned or self.groups.is_half_bound(key) != half_bound:
            self._looks.pop((key, turned), None)
            self._looks[key, turned] = self._look(key, now, turned=turned)
            self._go_on((key, turned))
            self.on_change()

    def take_companions(self, key: GroupKey, now: float) -> Generator[None, None, list[QueuedPod]]:
        """Take the members of a popped pod's group that could be tried: they are in flight from now on, too."""
        found = list[QueuedPod]()
        self._looks.pop((key, True), None)  # they are let in here
        self.groups.note_try(key, is_refused=False)
        for queued in self.groups.waiting_members(key):
            self._let_in(queued, now, "PodGroupComplete")
            if queued.place not in (Place.GATED, Place.IN_FLIGHT):
                self._take(queued)
                found.append(queued)
            yield
        return found

    def activate(self, uid: str, now: float, event: str = "ForceActivate") -> None:
        """Give a refused pod another try, after its backoff: what it waited for has changed."""
        queued = self._pods.get(uid)
        if queued is None:
            return
        if queued.place is Place.UNSCHEDULABLE:
            self._wake(queued, now, event)
        elif queued.place in (Place.ACTIVE, Place.BACKOFF):
            self._unschedulable.remove(queued)  # it is tried even if its line is not

    def release(self, uid: str, now: float, *, failed: bool = False) -> None:
        """
        Note that a pod preempts no more; what could have helped it in the meantime wakes it now.

        If an eviction has `failed`, it is tried again after a backoff that nothing cuts short. A member of a group may
        still be in flight: its group is put back a few members at a time.
        """
        queued = self._pods.get(uid)
        if queued is None or not queued.is_preempting:
            return
        queued.is_preempting = False
        if failed:
            self._places.backoff.count_error_after_refusal(queued, now)
        queued.missed |= failed
        if queued.missed and queued.place is not Place.IN_FLIGHT:
            self._wake(queued, now, "ForceActivate")

    @property
    def is_listening(self) -> bool:
        """Whether an event could help any pod: one waits for events, or is being decided."""
        return self._unschedulable.is_listening or self._in_flight.queued is not None

    def note(self, event: ClusterEvent, *pods: Pod, on: NodeInfo | None = None, claim: str = "") -> None:
        """
        Note an event; at the next `pop` it wakes the pods that it could help.

        `pods` are those it happened to and `on` is the node it happened on, if known; `claim` is the key of a claim if
        only its pods are concerned.
        """
        self._in_flight.note(event, pods, on, claim)
        if self._unschedulable.hears(event):
            self._unschedulable.events.note(event, pods, on, claim)
            self.on_change()

    def pop(self, now: float) -> QueuedPod | None:
        """
        Return the next pod to schedule, now in flight; None if all wait, or if it is not known yet (`next_time`).

        If no pod is active, a backoff after a refusal is cut short, as upstream does; one after an error never is.
        """
        self._began = True
        self._in_flight.end()
        if self._looks:
            self._go_on(next(iter(self._looks)))
        self._unschedulable.evaluate(now)
        if not self._places.end_backoffs(now):
            return None
        self._flush(now)
        return self._take_best(now)

    def pop_single(self, priority: int, now: float | None = None) -> QueuedPod | None:
        """
        As `pop`, while groups are being placed: the first active pod of no group, if of this priority at least.

        Events are evaluated only between two groups, at `now`: if a group's space is given back, none says that.
        """
        if now is not None:
            self._in_flight.end()
            self._unschedulable.evaluate(now)
        while (queued := self._places.singles.first()) is not None and queued.pod.priority >= priority:
            if now is None or self._unschedulable.is_worth_a_try(queued):
                self._take(queued)
                return queued
        return None

    def keep_events(self, queued: QueuedPod) -> None:
        """Keep the events from now on for an attempt that takes a while, until the next pod is popped."""
        self._in_flight.begin(queued)

    def put_back_refused(
        self,
        queued: QueuedPod,
        plugins: frozenset[str],
        now: float,
        *,
        is_preempting: bool = False,
        has_nomination: bool = False,
        alone: bool = False,
        waits_for: frozenset[str] | None = None,
        together: bool = False,
        cause: Cause = Cause.ERROR,
    ) -> None:
        """
        Put a refused pod back: it waits for an event that may change the answer of a plugin.

        By default that is one that refused it; any event may help if it `waits_for` none. Such an event may have come
        since the pod was popped. One that `is_preempting` waits for its release first. What refuses this pod refuses
        all pods of its signature, unless it is `alone`. Members that are refused `together` are a line for each kind of
        them, those that keep space apart.
        """
        if not self.holds(queued):
            return
        queued.cause = cause
        if together and queued.pod.group is not None:
            self.groups.note_try(queued.pod.group.key, is_refused=True, has_room=has_nomination)
        self._places.backoff.count_refusal(queued, now)
        awaited = plugins if waits_for is None else waits_for
        kind = refusal_kind_of(queued.pod, plugins, awaited, has_nomination=has_nomination)
        self._unschedulable.take_over()  # the events are older than this refusal, or are kept for this pod
        queued.is_preempting = is_preempting
        queued.missed |= self._in_flight.may_help(queued.pod, kind, self._view.node)
        self._move(queued, Place.UNSCHEDULABLE)
        if alone or is_preempting or (has_nomination and not together) or queued.missed or BINDER in plugins:
            self._unschedulable.add(queued, (queued.pod.uid,), kind)
        elif together and queued.pod.group is not None:
            shared = (queued.pod.group, signature_of(queued.pod, frozenset()), has_nomination)
            self._unschedulable.add(queued, shared, kind)
        else:
            self._unschedulable.add(queued, signature_of(queued.pod, awaited), kind)
        if queued.missed:
            self._wake(queued, now, "ScheduleAttemptFailure")

    def put_back_failed(self, queued: QueuedPod, now: float) -> None:
        """Put a pod back whose attempt ended in an error: it is tried again after its backoff."""
        if not self.holds(queued):
            return
        queued.cause = Cause.ERROR
        self._places.backoff.count_error(queued, now)
        if queued.pod.group is not None:  # another member would take it along
            self.groups.put_off(queued.pod.group.key, self._places.backoff.end_of(queued))
        self._places.back_off(queued, "ScheduleAttemptFailure")
        self.on_change()

    def put_back_withdrawn(self, queued: QueuedPod, now: float) -> None:
        """Put a pod back whose decision was withdrawn: if the pod itself has changed, no backoff is due for that."""
        if queued.missed and self.holds(queued):
            self._wake(queued, now, "PodUpdate")
        else:
            self.put_back_failed(queued, now)

    def next_time(self) -> float | None:
        """Return from when `pop` could return a pod without an event; None if never."""
        left = self._looks or self._unschedulable.to_go_on or self._places.counts[Place.ACTIVE]
        if left or not self._unschedulable.is_evaluated:
            return -math.inf
        times = [time for time in (self._places.backoff.next_time(),) if time is not None]
        if self._unschedulable:
            times.append(self._next_flush)
        return min(times, default=None)

    def _look(self, key: GroupKey, now: float, *, turned: bool) -> Iterator[None]:
        """Look at one waiting member of a changed group after the other."""
        for queued in self.groups.waiting_members(key):
            self._order(queued)
            if not turned:
                pass
            elif queued.place is Place.IN_FLIGHT:
                queued.missed = True
            elif self.groups.is_held(key):
                self._move(queued, Place.GATED)
            elif queued.place is Place.GATED:
                self._let_in(queued, now, "PodGroupComplete")
            else:
                self.activate(queued.pod.uid, now, "PodGroupShrunk")
            yield

    def _go_on(self, look: tuple[GroupKey, bool]) -> None:
        if len(list(islice(self._looks[look], AT_ONCE))) < AT_ONCE:
            del self._looks[look]

    def _let_in(self, queued: QueuedPod, now: float, event: str) -> None:
        """Let a pod in if it is gated, unless a gate or its group holds it."""
        pod, is_gated = queued.pod, queued.place is Place.GATED
        if is_gated and not pod.gates and (pod.group is None or not self.groups.is_held(pod.group.key)):
            self._arrive(queued, now, event)

    def _arrive(self, queued: QueuedPod, now: float, event: str) -> None:
        """Let a pod in; those that came before the first `pop` are ordered by their age."""
        if not queued.arrival:
            self._arrivals += 1
            age = (0.0, queued.pod.created) if not self._began else (1.0,)
            queued.arrival = (*age, now, self._arrivals)
            queued.first_active = now
        self._order(queued)
        queued.since = now
        self._places.admit(queued, now, event)
        self.on_change()

    def _order(self, queued: QueuedPod) -> None:
        """Let a member of a half-bound group come first in its priority, and any other pod by its arrival."""
        group, is_first = queued.pod.group, queued.arrival[:1] == _FIRST
        first = group is not None and self.groups.is_half_bound(group.key)
        if queued.arrival and first != is_first:
            queued.arrival = (*_FIRST, *queued.arrival) if first else queued.arrival[1:]
            if queued.place is Place.ACTIVE:
                self._places.activate(queued, "PodUpdate")
            if (line := self._unschedulable.line_of(queued)) is not None:
                self._unschedulable.put_in_order(line)

    def _join_group(self, queued: QueuedPod, now: float) -> None:
        if queued.pod.group is not None:
            self.groups.join(queued, queued.pod.group.key, now)
            self.group_changed(queued.pod.group.key, now)

    def _leave_group(self, pod: Pod) -> None:
        if pod.group is not None:
            key = pod.group.key
            if not self.groups.leave(pod.uid, key):  # nobody is left to look at, and a standby never pops
                self._looks.pop((key, True), None)
                self._looks.pop((key, False), None)

    def _wake(self, queued: QueuedPod, now: float, event: str) -> None:
        """Give a pod another try, even if its line gets none."""
        if queued.is_preempting:
            queued.missed = True
            return
        self._unschedulable.remove(queued)
        self._places.admit(queued, now, event)
        self.on_change()

    def _move(self, queued: QueuedPod, place: Place) -> None:
        """Move a pod from one place to another, and out of its line."""
        self._unschedulable.remove(queued)
        self._places.put(queued, place)

    def _take_best(self, now: float) -> QueuedPod | None:
        """Take the best pod that is worth a try, if there is one; only some in one step are put off."""
        put_off = 0
        while put_off < AT_ONCE and self._unschedulable.is_evaluated and (queued := self._places.first()) is not None:
            # The only member that its group needs takes no turn.
            group = queued.pod.group and self.groups.groups.group_of(queued.pod)
            if group is not None:
                queued.not_before = self.groups.not_before(group.key, now)
            if group is not None and self.groups.is_held(group.key):
                self._move(queued, Place.GATED)  # it was in flight when it was to be held
                put_off += 1
            elif queued.not_before > now:
                self._places.back_off(queued, "PodGroupIncomplete")
                put_off += 1
            elif self._unschedulable.is_worth_a_try(queued):
                self._take(queued)
                return queued
            else:
                put_off += _SENT_BACK
        return None

    def _take(self, queued: QueuedPod) -> None:
        self._move(queued, Place.IN_FLIGHT)
        queued.attempts += 1
        queued.missed = queued.prepared = False

    def _flush(self, now: float) -> None:
        if now >= self._next_flush:
            late = list(islice(self._unschedulable.refused_before(now - self.max_unschedulable), AT_ONCE))
            if len(late) < AT_ONCE:
                self._next_flush = now + _FLUSH_PERIOD
            for queued in late:
                self._wake(queued, now, "UnschedulableTimeout")

    def _has_shrunk(self, queued: QueuedPod, before: Pod) -> bool:
        """Return whether a pod that was too large to be bound has lost annotations."""
        line = self._unschedulable.line_of(queued)
        too_large = line is not None and BINDER in line.kind.plugins
        return too_large and queued.pod.annotations_size < before.annotations_size
