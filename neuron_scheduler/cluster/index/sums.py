"""
Numbers of slots, summed up over domains: how many pods match a selector, how many nodes of an UltraServer are free.

They are counted in steps, and then kept up to date from a log of changes; they are counted again if that is less work.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import Final, Generic, Self, TypeVar

import attrs

from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.indexes import Row, evict_if_full
from neuron_scheduler.cluster.index.nodeset import Slot, by_slot
from neuron_scheduler.cluster.index.rollup import Domains, Rollup, larger

_Definition = TypeVar("_Definition", bound=Hashable)
_Change = TypeVar("_Change")
_MOST: Final = 2048
AT_ONCE: Final = 64
"""Rows, pods or changes that are read in a step."""
_WORTH_READING: Final = 16
"""Changes that are read from the log even if there is less to count again."""


@attrs.define(eq=False)
class _Total:
    """A rollup, and the position in the log up to which it is correct, which is when it was last asked for."""

    rollup: Rollup
    last_used: int
    is_shared: bool = False  # with another table: it is copied before it changes


@attrs.define(eq=False, kw_only=True)
class Totals(Generic[_Definition, _Change]):
    """Totals by definition and label, `""` for the numbers of the nodes themselves."""

    _log: ChangeLog[_Change]
    _totals: dict[tuple[_Definition, str], _Total] = attrs.field(factory=dict)
    _preparing: int = 0

    def _count(self, definition: _Definition) -> Generator[None, None, dict[Slot, int]]:
        """Return the numbers above 0 as they are now; yields when other tasks may run."""
        raise NotImplementedError

    def _work(self, definition: _Definition) -> int:
        """Return how many rows or pods are counted."""
        raise NotImplementedError

    def _changes(self, definition: _Definition, logged: Iterable[_Change]) -> Iterable[tuple[Slot, int]]:
        """Return how logged changes change the numbers."""
        raise NotImplementedError

    def most_compared(self, _: _Definition) -> int:
        """Return how many comparisons of pods with requirements a count takes at most."""
        return 0

    def share(self, original: Self) -> None:
        """Take the totals of the table that this one was copied from; each of the two copies one before it changes."""
        for key, known in original._totals.items():
            known.is_shared = True
            self._totals[key] = _Total(known.rollup, known.last_used, is_shared=True)

    def totals(self, definition: _Definition, domains: Domains | None = None) -> Column:
        """Return the number of each node, or the sum of its domain; 0 where it has none."""
        if domains is not None and not domains.postings.keyed:
            return Column()
        within = larger(domains)
        known = self._total_of(definition, within)
        lag = 0 if known is None else self._log.end - known.last_used - _WORTH_READING
        if known is None or (lag > 0 and lag > self._work(definition)):
            for _ in self._build(definition, lambda: within):
                pass
            known = self._totals[definition, "" if within is None else within.key]
        self._catch_up(known, definition, within)
        return known.rollup.totals_in(domains)

    def is_ready(self, definition: _Definition, domains: Domains | None) -> bool:
        """Return whether `totals` has few changes to catch up with."""
        if domains is not None and not domains.postings.keyed:
            return True
        known = self._total_of(definition, larger(domains))
        return known is not None and self._log.end - known.last_used <= AT_ONCE

    def prepare(self, definition: _Definition, domains: Callable[[], Domains | None]) -> Iterator[None]:
        """
        Bring the totals up to date, a few changes at a time; at a yield other tasks may run and change more.

        If too much changes meanwhile, what was counted is dropped, and `totals` counts all in one step.
        """
        if self._total_of(definition, larger(domains())) is None:
            yield from self._build(definition, domains)
        while (known := self._total_of(definition, within := larger(domains()))) is not None:
            if known.last_used == self._log.end:
                return
            self._catch_up(known, definition, within, most=AT_ONCE)
            yield

    def _catch_up(
        self, known: _Total, definition: _Definition, within: Domains | None, *, most: int | None = None
    ) -> None:
        """Apply the changes that are not read yet, or the first of them."""
        if known.is_shared and not (known.last_used == self._log.end and known.rollup.has_followed(within)):
            known.rollup, known.is_shared = known.rollup.copy(), False
        known.rollup.follow(within)
        if known.last_used != self._log.end:
            logged = self._log.changes_since(known.last_used, most)
            for slot, change in self._changes(definition, logged):
                known.rollup.add(slot, change, within)
            known.last_used += len(logged)

    def _build(self, definition: _Definition, domains: Callable[[], Domains | None]) -> Iterator[None]:
        self._preparing += 1
        try:
            start, numbers = self._log.end, (yield from self._count(definition))
            within = larger(domains())
            for rollup in Rollup.build(numbers, within):
                total = _Total(rollup, start)
                yield
        finally:
            self._preparing -= 1
        if self._log.covers(start):
            evict_if_full(self._totals, _MOST)
            self._totals[definition, "" if within is None else within.key] = total

    def _total_of(self, definition: _Definition, within: Domains | None) -> _Total | None:
        """Return what is known if the logs cover all that has changed since."""
        known = self._totals.get((definition, "" if within is None else within.key))
        is_covered = known is not None and self._log.covers(known.last_used) and known.rollup.can_follow(within)
        return known if is_covered else None


@attrs.define(eq=False, kw_only=True)
class Sums(Totals[Callable[[Row], int], tuple[Slot, Row | None, Row | None]], Generic[Row]):
    """Sums of a number of each row."""

    _rows: Sequence[Row | None]

    def _count(self, definition: Callable[[Row], int]) -> Generator[None, None, dict[Slot, int]]:
        numbers = dict[Slot, int]()
        for count, (slot, row) in enumerate(by_slot(list(self._rows)), start=1):
            number = 0 if row is None else definition(row)
            if number:
                numbers[slot] = number
            if count % AT_ONCE == 0:
                yield
        return numbers

    def _work(self, _: Callable[[Row], int]) -> int:
        return len(self._rows)

    def _changes(
        self, definition: Callable[[Row], int], logged: Iterable[tuple[Slot, Row | None, Row | None]]
    ) -> Iterable[tuple[Slot, int]]:
        for slot, old, new in logged:
            change = (0 if new is None else definition(new)) - (0 if old is None else definition(old))
            if change:
                yield slot, change
