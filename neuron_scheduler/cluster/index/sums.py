"""
A number of each row, summed up over the node's domain of a label: how many nodes of an UltraServer are wholly free.

A sum is built when it is first asked for, and brought up to date from the log of rows while that covers its changes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic

import attrs

from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.indexes import Row
from neuron_scheduler.cluster.index.nodeset import Slot, by_slot
from neuron_scheduler.cluster.index.rollup import Domains, Rollup

_AT_ONCE: Final = 64
"""Rows, or changes, after which a preparation yields."""
_FEW: Final = 1024
"""Changes that are read from the log at once rather than all rows."""


@attrs.define(eq=False)
class _Sum:
    """A rollup, and the position in the log up to which it is correct."""

    rollup: Rollup
    position: int


@attrs.define(eq=False)
class Sums(Generic[Row]):
    """Sums by definition and label, for the rows whose changes are in a log."""

    _sums: dict[tuple[Callable[[Row], int], str], _Sum] = attrs.field(factory=dict)

    def totals(
        self,
        number_of: Callable[[Row], int],
        domains: Domains,
        log: ChangeLog[tuple[Slot, Row | None, Row | None]],
        rows: Sequence[Row | None],
    ) -> Column:
        known = self._sums.get((number_of, domains.key))
        if known is None or not self._is_near(known, log) or not known.rollup.follow(domains):
            for _ in self.prepare(number_of, lambda: domains, log, rows):
                pass
            return self._sums[number_of, domains.key].rollup.totals
        for slot, old, new in log.changes_since(known.position):
            change = _number(number_of, new) - _number(number_of, old)
            if change:
                known.rollup.add(slot, change, domains)
        known.position = log.end
        return known.rollup.totals

    def is_ready(self, number_of: Callable[[Row], int], key: str, log: ChangeLog[Any]) -> bool:
        """Return whether there is a sum that has few changes to catch up with."""
        known = self._sums.get((number_of, key))
        return known is not None and self._is_near(known, log)

    def prepare(
        self,
        number_of: Callable[[Row], int],
        domains: Callable[[], Domains],
        log: ChangeLog[tuple[Slot, Row | None, Row | None]],
        rows: Sequence[Row | None],
    ) -> Iterator[None]:
        """Sum up all rows, a few at a time; at a yield other tasks may run and change rows."""
        start, numbers = log.end, dict[Slot, int]()
        for count, (slot, row) in enumerate(by_slot(list(rows)), start=1):
            number = _number(number_of, row)
            if number:
                numbers[slot] = number
            if count % _AT_ONCE == 0:
                yield
        now = domains()
        for rollup in Rollup.build(numbers, now):
            summed = _Sum(rollup, start)
            yield
        if log.covers(start):
            self._sums[number_of, now.key] = summed

    def _is_near(self, known: _Sum, log: ChangeLog[Any]) -> bool:
        return log.covers(known.position) and log.end - known.position <= _FEW


def _number(number_of: Callable[[Row], int], row: Row | None) -> int:
    return 0 if row is None else number_of(row)
