"""
Noted events that are being evaluated, a few groups of waiting pods at a time.

With thousands of different pods this takes longer than other tasks should wait, so it may be continued later. Only the
lines that were refused before the batch began are woken: a later refusal knows of its events. Refuses to say which
events help: `pending_events` does.
"""

from collections.abc import Iterator
from itertools import islice

import attrs

from neuron_scheduler.scheduling.queue.pending_events import PendingEvents, RowOf, WakeUp
from neuron_scheduler.scheduling.queue.unschedulable_pods import UnschedulablePods

AT_ONCE = 64
"""Groups that are asked in one step."""


@attrs.define(eq=False)
class EventBatch:
    """The events of one evaluation, from `begin` until `finished`."""

    _unschedulable: UnschedulablePods
    _row: RowOf
    _left: Iterator[WakeUp | None] | None = None
    _number: int = 0

    @property
    def finished(self) -> bool:
        """Whether nothing is left to evaluate."""
        return self._left is None

    def begin(self, events: PendingEvents) -> None:
        """Take events over; the batch before must be finished."""
        self._number = self._unschedulable.begin_batch()
        self._left = events.wake_ups(tuple(self._unschedulable.groups), self._row)

    def proceed(self, now: float) -> None:
        """Ask the next groups, and wake the lines that an event may help."""
        if self._left is None:
            return
        asked = list(islice(self._left, AT_ONCE))
        for wake_up in filter(None, asked):
            for line in self._unschedulable.lines(wake_up.group):
                if line.batch < self._number:
                    self._unschedulable.wake(line, wake_up, now)
        if len(asked) < AT_ONCE:
            self._left = None
