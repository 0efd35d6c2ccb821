"""
The refused pods, in lines: what refuses one pod of a line refuses all of them (`scheduling.cycle.signature`).

Upstream: `pkg/scheduler/backend/queue/unschedulable_pods.go`, which wakes all pods that an event may help. Here only
the first pod of a line is tried. If it is refused again, the others would be refused too. If it gets a node, the next
pod is tried, as long as one of the nodes for which the line was woken may still take a pod of the line.

Lines are asked about events in the order of their first pods, and only those that come before the best active pod: the
others could not be tried now. Single pods may be tried in between groups, so their lines are asked before groups, too.
Each line keeps the events that it has not been asked about.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Any, Final
from weakref import ref

import attrs

from neuron_scheduler.cluster.view import View
from neuron_scheduler.scheduling.cycle.signature import Signature
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY
from neuron_scheduler.scheduling.queue.events import MOST_NODES, PendingEvents, RefusalKind, has_acceptable
from neuron_scheduler.scheduling.queue.places import Place, Places, PodHeap, QueuedPod

AT_ONCE: Final = 1024
"""Comparisons of a line with a node or a pod in one step."""
_FILTERS_ASKED: Final = 64
"""Comparisons that take as long as asking filters about one node."""
FEW_STEPS: Final = 16
"""Steps for lines of its own priority that may delay a pod; then one: a tenant may have very many lines."""
MANY_STEPS: Final = 64
"""Likewise, for lines of a higher priority."""
_MOST_LAGS: Final = 32
"""Different sets of events that lines have not been asked about: each event is noted in all of them."""
_LAST: Final = (math.inf,)
_NOTHING: Final = PendingEvents()
_rank_of: Final = attrgetter("rank")


@attrs.define(eq=False)
class RefusedLine:
    """
    Refused pods of one signature.

    Attributes:
        kind: what refused any of them at the latest attempt; events are checked against it.
        cause: what they wait for, by the same attempt.
        pods: all of them, including the one that is ahead.
        ahead: the pod that is tried next; it is active or in backoff.
        woken_by: the event that may have helped; empty if there was none since the latest refusal.
        nodes: names of the nodes that may take one of them; None if unknown or too many.
        unasked: the events that it is to be asked about; shared by the lines that have the same.
        rank: that of its first pod; empty if it is going to be tried in any case, so that it waits for no events.
    """

    signature: Signature
    kind: RefusalKind
    cause: Cause
    pods: PodHeap = attrs.field(factory=PodHeap)
    ahead: QueuedPod | None = None
    woken_by: str = ""
    nodes: list[str] | None = None
    unasked: PendingEvents = _NOTHING
    rank: tuple[Any, ...] = ()

    def wake(self, event: str, nodes: list[str] | None) -> None:
        if not self.woken_by:
            self.woken_by, self.nodes = event, []
        if self.nodes is None or nodes is None or len(self.nodes) + len(nodes) > MOST_NODES:
            self.nodes = None
        else:
            self.nodes = list(dict.fromkeys((*self.nodes, *nodes)))


@attrs.define(eq=False)
class UnschedulablePods:
    """
    All lines, by signature.

    Attributes:
        to_go_on: woken lines whose first pod has left since the last evaluation.
        _waiting: the lines that wait for events, by rank.
        _all_asked, _asked: so many of them, from the first, were asked about all events, or about the earlier ones.
        _listening: how many of them each plugin has refused; "" for those that any event may help.
        _between: rank of the one at which those of single pods are asked next, while groups are tried; empty at first.
        _steps, _steps_above: evaluations since none of them, or none of a higher priority, was left to ask.
        events: what has happened since the last evaluation or refusal.
        _unasked: the events of all lines that wait, most first; of very many, the first two become one.
    """

    _places: Places
    _view: View
    to_go_on: list[RefusedLine] = attrs.field(factory=list)
    _lines: dict[Signature, RefusedLine] = attrs.field(factory=dict)
    _line_of: dict[QueuedPod, RefusedLine] = attrs.field(factory=dict)
    _waiting: list[RefusedLine] = attrs.field(factory=list)
    _all_asked: int = 0
    _asked: int = 0
    _between: tuple[Any, ...] = ()
    _listening: Counter[str] = attrs.field(factory=Counter)
    _steps: int = 0
    _steps_above: int = 0
    events: PendingEvents = attrs.field(factory=PendingEvents)
    _unasked: list[ref[PendingEvents]] = attrs.field(factory=list)

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def is_listening(self) -> bool:
        return bool(self._waiting)

    def hears(self, event: ClusterEvent) -> bool:
        """Return whether an event may help any line that waits."""
        return bool(self._waiting) and any(self._listening[plugin] for plugin in ("", *CONCERNED_BY[event]))

    def line_of(self, queued: QueuedPod) -> RefusedLine | None:
        return self._line_of.get(queued)

    @property
    def is_evaluated(self) -> bool:
        """Whether the best pod may be tried: no line before it is to be asked, or enough of its priority have been."""
        if self._all_asked == len(self._waiting):
            return True
        index, best = self._all_asked, self._best()
        if best is _LAST or not self._is_before(index, best):
            return not self._is_before(index, best)
        return self._steps_above >= MANY_STEPS if self._is_before(index, best[:1]) else self._steps >= FEW_STEPS

    def take_over(self) -> None:
        """Keep the events apart from later ones: a refusal knows of them, and a line is asked about each once."""
        if self.events:
            lags = [unasked for each in self._unasked if (unasked := each()) is not None]
            for unasked in lags:
                unasked.note_all(self.events)
            if len(lags) > _MOST_LAGS:
                lags.pop(1).merged = lags[0]
            self._unasked = [*map(ref, lags), ref(self.events)]
            self.events, self._all_asked = PendingEvents(), 0

    def evaluate(self, now: float) -> None:
        """Ask the next lines; try the first pods of those that an event may help, on behalf of all their pods."""
        if not (self._waiting or self.to_go_on):
            self._steps = self._steps_above = 0
            return
        self._go_on(now)
        self.take_over()
        lines, left, unasked, events, count = self._next_lines(), AT_ONCE, _NOTHING, _NOTHING, 1
        while left > 0 and (line := next(lines, None)) is not None:
            first = line.pods.first()
            lag = line.unasked.merged or line.unasked
            if lag is not unasked:
                unasked = lag
                events, count = unasked.as_of_now(self._view.node), unasked.count
            line.unasked = self.events
            for event, nodes in events.wake_ups(first.pod, line.kind) if first is not None else ():
                line.wake(event, nodes)
                self._send_ahead(line, now)
                left -= _FILTERS_ASKED * line.kind.comparisons
            left -= count * line.kind.comparisons
        index, best = self._all_asked, self._best()
        self._steps = self._steps + 1 if self._is_before(index, best) else 0
        self._steps_above = self._steps_above + 1 if self._is_before(index, best[:1]) else 0

    def _best(self) -> tuple[Any, ...]:
        best = self._places.best_active()
        return _LAST if best is None else best.rank

    def _is_before(self, index: int, rank: tuple[Any, ...]) -> bool:
        return index < len(self._waiting) and self._waiting[index].rank < rank

    def _next_lines(self) -> Iterator[RefusedLine]:
        """Yield the lines before the best active pod; if it is of a group, those of single pods that pass it, too."""
        while self._is_before(index := self._all_asked, best := self._best()):
            if self._steps_above >= MANY_STEPS or not self._is_before(index, best[:1]):
                # Not out of turn, as for a higher priority: each event would begin again with the first.
                index = self._asked = self._asked if self._is_before(self._asked, best) else index
            self._all_asked += index == self._all_asked
            self._asked = max(self._asked, index + 1)
            yield self._waiting[index]
        member = self._places.best_active()
        if member is None or member.pod.group is None:
            return
        start = bisect_left(self._waiting, max(member.rank, self._between), key=_rank_of)
        for index in range(start, start + AT_ONCE):
            single, end = self._places.singles.first(), (member.rank[0], _LAST)
            if not self._is_before(index, end if single is None else min(end, single.rank)):
                self._between = ()
                return
            line = self._waiting[index]
            self._between, first = line.rank, line.pods.first()
            if first is not None and first.pod.group is None and (line.unasked.merged or line.unasked):
                yield line

    def add(self, queued: QueuedPod, signature: Signature, kind: RefusalKind) -> None:
        """Add a pod that has just been refused; the pods that are in its line already wait for the same."""
        line = self._lines.get(signature)
        if line is None:
            line = self._lines[signature] = RefusedLine(signature, kind, queued.cause)
        self._unpost(line)
        line.kind, line.cause = kind, queued.cause
        line.pods.push(queued, queued.rank)
        self._line_of[queued] = line
        self.make_wait(line)

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod from its line, if it has one; if the line was woken, its next pod follows."""
        line = self._line_of.pop(queued, None)
        if line is None:
            return
        line.pods.discard(queued)
        if line.ahead is queued:
            line.ahead = None
        self.put_in_order(line)
        if not line.pods:
            del self._lines[line.signature]
        elif line.woken_by and line.ahead is None:
            self.to_go_on.append(line)

    def _go_on(self, now: float) -> None:
        """Try the next pods of the lines whose first pod has left."""
        lines, self.to_go_on = self.to_go_on, []
        for line in lines:
            if line.woken_by:
                self._send_ahead(line, now)

    def is_worth_a_try(self, queued: QueuedPod) -> bool:
        """Return whether to try a pod now; one that is ahead goes back into its line if the free space is taken."""
        line = self._line_of.get(queued)
        if line is None or self._has_taker(line):
            return True
        self.make_wait(line)
        return False

    def make_wait(self, line: RefusedLine) -> None:
        """Make all pods of a line wait for the next event: none so far helps them."""
        if line.ahead is not None:
            self._places.put(line.ahead, Place.UNSCHEDULABLE)
        line.woken_by, line.nodes, line.ahead = "", None, None
        if not line.rank:
            self._post(line, self.events)

    def _send_ahead(self, line: RefusedLine, now: float) -> None:
        queued = line.pods.first()
        if line.ahead is not None or queued is None:
            return
        if queued.is_preempting or not self._has_taker(line):
            queued.missed |= queued.is_preempting
            self.make_wait(line)
        else:
            line.ahead = queued
            self._places.admit(queued, now, line.woken_by)
            if line.nodes is None or queued.place is Place.BACKOFF:
                line.nodes = None
                self._unpost(line)

    def _has_taker(self, line: RefusedLine) -> bool:
        """Return whether one of the nodes for which a line was woken may still take one of its pods."""
        first = line.pods.first()
        return line.nodes is None or (
            first is not None and has_acceptable(first.pod, line.kind, line.nodes, self._view)
        )

    def cause_of(self, queued: QueuedPod) -> Cause:
        """Return what a pod waits for: the latest cause of any pod of its line."""
        if queued.place is Place.GATED:
            return Cause.GATED if queued.pod.gates else Cause.GROUP
        line = self._line_of.get(queued)
        return queued.cause if line is None else line.cause

    def refused_by_plugin(self) -> Counter[tuple[str, str]]:
        counts: Counter[tuple[str, str]] = Counter()
        for line in self._lines.values():
            for plugin in line.kind.refused_by:
                counts[plugin, line.kind.scheduler_name] += len(line.pods)
        return counts

    def refused_before(self, time: float) -> Iterator[QueuedPod]:
        """Yield the pods that nothing is going to wake and whose last attempt ended at this time or earlier."""
        for line in self._lines.values():
            for queued in line.pods:
                if queued.since > time:
                    break  # they are in the order of their refusals
                if queued is not line.ahead and not (queued.is_preempting and queued.missed):
                    yield queued

    def put_in_order(self, line: RefusedLine) -> None:
        """Let a line that waits be asked when it is its first pod's turn, which may be another one now."""
        if line.rank:
            self._post(line, line.unasked)

    def _post(self, line: RefusedLine, unasked: PendingEvents) -> None:
        self._unpost(line)
        first = line.pods.first()
        if first is not None:
            line.rank, line.unasked = first.rank, unasked
            index = bisect_left(self._waiting, line.rank, key=_rank_of)
            self._waiting.insert(index, line)
            self._listening.update(line.kind.plugins or ("",))
            if unasked is not self.events:
                self._all_asked = min(self._all_asked, index)

    def _unpost(self, line: RefusedLine) -> None:
        if line.rank:
            index = bisect_left(self._waiting, line.rank, key=_rank_of)
            del self._waiting[index]
            self._listening.subtract(line.kind.plugins or ("",))
            self._asked -= index < self._asked
            self._all_asked -= index < self._all_asked
            line.rank, line.unasked = (), _NOTHING
