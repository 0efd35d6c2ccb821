"""
The indexes of a table and the log that keeps them true.

An index is defined by a function of one row. It is built when first asked for. From then on it *follows* every change,
until nobody has asked for a while; asked again, it is caught up from the log, and if it never is, it is dropped: the
number of indexes and the length of the log are bounded. It holds sets only; what a changed row contributed before is
worked out from the old row. A definition is a function, or a callable of which there is one for each question
(`labels.label`): an index is looked up by identity.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar

import attrs

from neuron_scheduler.cluster.column import Column
from neuron_scheduler.cluster.forgetting import make_room
from neuron_scheduler.cluster.postings import Postings, Values

_MAX_INDEXES = 1024
_MIN_LOG = 1024
_AT_ONCE = 64
"""Rows, or changes, after which a preparation lets others run."""
_PATIENCE = 32
"""Changes that an index follows though nobody asks."""

Row = TypeVar("Row")


@attrs.define(eq=False)
class _Index:
    """
    A `Postings` or a `Column`.

    Attributes:
        position: where in the log it is true up to.
        asked: where the log ended when it was last asked for.
    """

    definition: Callable[[Any], Any]
    data: Any
    position: int
    asked: int

    def take(self, slot: int, old: Any, new: Any) -> None:
        """Take a change of a row."""
        before = self.data.NOTHING if old is None else self.definition(old)
        after = self.data.NOTHING if new is None else self.definition(new)
        if before != after:
            self.data.replace(slot, before, after)


@attrs.define(eq=False)
class Indexes(Generic[Row]):
    """Indexes by definition, and the log of changes that not all of them have read."""

    _by_definition: dict[Callable[[Any], Any], _Index] = attrs.field(factory=dict)
    _following: list[_Index] = attrs.field(factory=list)
    _log: list[tuple[int, Row | None, Row | None]] = attrs.field(factory=list)
    _end: int = 0
    _bound: int = _MIN_LOG

    def postings(self, values_of: Callable[[Row], Values], rows: Sequence[Row | None]) -> Postings:
        """Return the postings defined by `values_of`, true for `rows`."""
        index = self._by_definition.get(values_of)
        if index is None or index.position != self._end:
            index = self._caught_up(index, values_of, Postings, rows)
        index.asked = self._end
        found: Postings = index.data
        return found

    def column(self, number_of: Callable[[Row], int], rows: Sequence[Row | None]) -> Column:
        """Return the column defined by `number_of`, true for `rows`."""
        index = self._by_definition.get(number_of)
        if index is None or index.position != self._end:
            index = self._caught_up(index, number_of, Column, rows)
        index.asked = self._end
        found: Column = index.data
        return found

    def is_ready(self, definition: Callable[[Any], Any]) -> bool:
        """Tell whether there is an index by this definition that has little to catch up with."""
        index = self._by_definition.get(definition)
        return index is not None and self._end - index.position <= _AT_ONCE

    def prepare(
        self, definition: Callable[[Row], Any], kind: type[Postings | Column], rows: Sequence[Row | None]
    ) -> Iterator[None]:
        """
        Build an index, or let it catch up, a few rows at a time; yields whenever others may run, and change rows.

        Where too much happens meanwhile there may be nothing to show for it in the end: who asks then waits.
        """
        if definition not in self._by_definition:
            yield from self._build(definition, kind, list(rows))
        while (index := self._by_definition.get(definition)) is not None and not self.is_ready(definition):
            self._read(index, upto=index.position + _AT_ONCE)
            yield

    def record(self, slot: int, old: Row | None, new: Row | None) -> None:
        """Note that a row has changed; with no index there is nobody to tell."""
        self._end += 1
        if not self._by_definition:
            return
        for index in self._following:
            index.take(slot, old, new)
            index.position = self._end
        self._log.append((slot, old, new))
        if self._end % _PATIENCE == 0:
            self._following = [index for index in self._following if self._end - index.asked < _PATIENCE]
        if len(self._log) > self._bound:
            self._cut_log()

    def fork(self) -> Self:
        """Return an independent copy that shares every integer."""
        return type(self)(
            by_definition={
                key: _Index(key, index.data.fork(), index.position, index.asked)
                for key, index in self._by_definition.items()
            },
            log=list(self._log),
            end=self._end,
            bound=self._bound,
        )

    def _caught_up(
        self,
        index: _Index | None,
        row_to: Callable[[Row], Any],
        kind: type[Postings | Column],
        rows: Sequence[Row | None],
    ) -> _Index:
        if index is None:
            values: Any = [kind.NOTHING if row is None else row_to(row) for row in rows]
            index = self._add(row_to, kind.build(values), self._end, size=len(rows))
        self._read(index, upto=self._end)
        self._following.append(index)
        return index

    def _build(
        self, definition: Callable[[Row], Any], kind: type[Postings | Column], rows: Sequence[Row | None]
    ) -> Iterator[None]:
        """Build an index of the rows as they are now, if the log still tells in the end what has changed since."""
        start = self._end
        values: list[Any] = []
        for first in range(0, len(rows), _AT_ONCE):
            values += [kind.NOTHING if row is None else definition(row) for row in rows[first : first + _AT_ONCE]]
            yield
        if self._end - start <= len(self._log):
            self._add(definition, kind.build(values), start, size=len(rows))

    def _add(self, definition: Callable[[Row], Any], data: Postings | Column, position: int, *, size: int) -> _Index:
        make_room(self._by_definition, _MAX_INDEXES)
        self._bound = max(_MIN_LOG, 2 * size)
        index = self._by_definition[definition] = _Index(definition, data, position, asked=position)
        return index

    def _read(self, index: _Index, *, upto: int) -> None:
        """Let an index take what the log says up to a position."""
        start = len(self._log) - self._end
        for change in self._log[start + index.position : start + upto]:
            index.take(*change)
        index.position = upto

    def _cut_log(self) -> None:
        """Forget what every index has read, and those indexes that have read too little."""
        tolerated = self._end - len(self._log) // 2
        self._by_definition = {key: i for key, i in self._by_definition.items() if i.position >= tolerated}
        start = min((i.position for i in self._by_definition.values()), default=self._end)
        self._log = self._log[start - self._end :] if start < self._end else []
