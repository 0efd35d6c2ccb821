"""
The refused pods, in lines: what refuses one pod of a line refuses all of them (`scheduling.cycle.signature`).

Upstream: `pkg/scheduler/backend/queue/unschedulable_pods.go`, which wakes all pods that an event may help. Here only
the first pod of a line is tried. If it is refused again, the others would be refused too. If it gets a node, the next
pod is tried, as long as one of the nodes for which the line was woken may still take a pod of the line.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.scheduling.cycle.signature import Signature
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.events import (
    MOST_NODES,
    LineWakeUp,
    PendingEvents,
    RefusalKind,
    RowOf,
    has_acceptable,
)
from neuron_scheduler.scheduling.queue.places import Place, Places, PodHeap, QueuedPod

AT_ONCE: Final = 64
"""Kinds of refusal that are asked, or lines of a kind that are woken, in one step; of many nodes, eight kinds."""
FEW_STEPS: Final = 8
"""Up to so many steps, every event is evaluated before the next pod is popped: some five hundred kinds."""
_FEW_NODES: Final = 32
_LOWEST: Final = -(1 << 31)


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
        batch: the number of the last batch of events that had begun before the latest refusal of any of them.
    """

    signature: Signature
    kind: RefusalKind
    cause: Cause
    pods: PodHeap = attrs.field(factory=PodHeap)
    ahead: QueuedPod | None = None
    woken_by: str = ""
    nodes: list[str] | None = None
    batch: int = 0

    def wake(self, wake_up: LineWakeUp) -> None:
        if not self.woken_by:
            self.woken_by, self.nodes = wake_up.event, []
        if self.nodes is None or wake_up.nodes is None or len(self.nodes) + len(wake_up.nodes) > MOST_NODES:
            self.nodes = None
        else:
            self.nodes = list(dict.fromkeys((*self.nodes, *wake_up.nodes)))


@attrs.define(eq=False)
class UnschedulablePods:
    """
    All lines, by signature and by kind of refusal.

    Attributes:
        to_go_on: woken lines whose first pod has left since the last `go_on`.
        highest: the highest priority of those that were refused before that batch, or since.
        steps: how many the evaluation of the latest batch has taken.
        _by_kind: the lines that wait for events; without those whose first pod is going to be tried in any case.
    """

    _places: Places
    _row: RowOf
    to_go_on: list[RefusedLine] = attrs.field(factory=list)
    highest: int = _LOWEST
    steps: int = 0
    _lines: dict[Signature, RefusedLine] = attrs.field(factory=dict)
    _by_kind: dict[RefusalKind, dict[Signature, RefusedLine]] = attrs.field(factory=dict)
    _line_of: dict[QueuedPod, RefusedLine] = attrs.field(factory=dict)
    _batches: int = 0
    _wake_ups: Iterator[tuple[LineWakeUp, RefusedLine] | None] | None = None
    _at_once: int = AT_ONCE

    def __bool__(self) -> bool:
        return bool(self._lines)

    @property
    def is_listening(self) -> bool:
        return bool(self._by_kind)

    def line_of(self, queued: QueuedPod) -> RefusedLine | None:
        return self._line_of.get(queued)

    @property
    def is_evaluated(self) -> bool:
        """Whether all events that were taken over have been evaluated."""
        return self._wake_ups is None

    def take_over(self, events: PendingEvents) -> None:
        """Begin to evaluate a batch of events; the one before must have been evaluated."""
        self._batches += 1
        self.steps = 0
        firsts = filter(None, (line.pods.first() for line in self._lines.values()))
        self.highest = max((first.pod.priority for first in firsts), default=_LOWEST)
        self._wake_ups = self._lines_to_wake(events.wake_ups(tuple(self._by_kind), self._row))
        self._at_once = AT_ONCE * _FEW_NODES // max(_FEW_NODES, events.most_nodes)

    def evaluate(self, now: float) -> None:
        """
        Ask about the next kinds, and wake the lines that an event of the batch may help.

        Only the lines that were refused before the batch began are woken: a later refusal knows of its events.
        """
        if self._wake_ups is None:
            return
        self.steps += 1
        asked = list(islice(self._wake_ups, self._at_once))
        for wake_up, line in filter(None, asked):
            if line.batch < self._batches and line.signature in self._by_kind.get(wake_up.kind, {}):
                self._wake(line, wake_up, now)
        if len(asked) < self._at_once:
            self._wake_ups = None

    def _lines_to_wake(self, wake_ups: Iterator[LineWakeUp | None]) -> Iterator[tuple[LineWakeUp, RefusedLine] | None]:
        """Yield each line that may be woken, and None for each kind that has none."""
        for wake_up in wake_ups:
            lines = [] if wake_up is None else list(self._by_kind.get(wake_up.kind, {}).values())
            if wake_up is None or not lines:
                yield None
                continue
            for line in lines:
                yield wake_up, line

    def add(self, queued: QueuedPod, signature: Signature, kind: RefusalKind) -> None:
        """Add a pod that has just been refused; the pods that are in its line already wait for the same."""
        line = self._lines.get(signature)
        if line is None:
            line = self._lines[signature] = RefusedLine(signature, kind, queued.cause)
        self._unpost(line)
        line.kind, line.cause, line.batch = kind, queued.cause, self._batches
        line.pods.push(queued, queued.rank)
        self._line_of[queued] = line
        self.highest = max(self.highest, queued.pod.priority)
        self.make_wait(line)

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod from its line, if it has one; if the line was woken, its next pod follows."""
        line = self._line_of.pop(queued, None)
        if line is None:
            return
        line.pods.discard(queued)
        if line.ahead is queued:
            line.ahead = None
        if not line.pods:
            self._unpost(line)
            del self._lines[line.signature]
        elif line.woken_by and line.ahead is None:
            self.to_go_on.append(line)

    def _wake(self, line: RefusedLine, wake_up: LineWakeUp, now: float) -> None:
        """Try the first pod of a line, on behalf of all of them, if the event may help it."""
        first = line.pods.first()
        if first is not None and wake_up.concerns(first.pod):
            line.wake(wake_up)
            self._send_ahead(line, now)

    def go_on(self, now: float) -> None:
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
        self._by_kind.setdefault(line.kind, {})[line.signature] = line

    def _send_ahead(self, line: RefusedLine, now: float) -> None:
        queued = line.pods.first()
        if line.ahead is not None or queued is None:
            return
        if queued.is_preempting:
            queued.missed = True
            self.make_wait(line)
        elif not self._has_taker(line):
            self.make_wait(line)
        else:
            line.ahead = queued
            self._places.admit(queued, now, line.woken_by)
            if line.nodes is None or queued.place is Place.BACKOFF:
                line.nodes = None
                self._unpost(line)

    def _has_taker(self, line: RefusedLine) -> bool:
        """Return whether one of the nodes for which a line was woken may still take one of its pods."""
        return line.nodes is None or has_acceptable(line.kind, line.nodes, self._row)

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

    def _unpost(self, line: RefusedLine) -> None:
        lines = self._by_kind.get(line.kind, {})
        if lines.pop(line.signature, None) is not None and not lines:
            del self._by_kind[line.kind]
