"""
The indexes of a table and the log that keeps them true.

An index is defined by a function of one row. It is built when first asked for, caught up from the log when asked again,
and dropped when nobody asks: the number of indexes and the length of the log are bounded. It holds sets only; what a
changed row contributed before is worked out from the old row, which the log carries. Definitions are values (a
function, or a frozen callable such as `Label("zone")`): equal definitions share one index.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Self, TypeVar, cast

import attrs

from neuron_scheduler.cluster.column import Column
from neuron_scheduler.cluster.forgetting import make_room
from neuron_scheduler.cluster.postings import Postings, Values

_MAX_INDEXES = 1024
_MIN_LOG = 1024

Row = TypeVar("Row")


@attrs.define(eq=False)
class _Index:
    """An index and the position in the log up to which it is true."""

    data: Postings | Column
    position: int


@attrs.define(eq=False)
class Indexes(Generic[Row]):
    """Indexes by definition, and the log of changes that not all of them have read."""

    _by_definition: dict[Hashable, _Index] = attrs.field(factory=dict)
    _log: list[tuple[int, Row | None, Row | None]] = attrs.field(factory=list)
    _end: int = 0
    _bound: int = _MIN_LOG

    def postings(self, values_of: Callable[[Row], Values], rows: Sequence[Row | None]) -> Postings:
        """Return the postings defined by `values_of`, true for `rows`."""
        index = self._by_definition.get(values_of)
        if index is None or index.position != self._end:
            index = self._caught_up(index, values_of, Postings, rows)
        return cast(Postings, index.data)

    def column(self, number_of: Callable[[Row], int], rows: Sequence[Row | None]) -> Column:
        """Return the column defined by `number_of`, true for `rows`."""
        index = self._by_definition.get(number_of)
        if index is None or index.position != self._end:
            index = self._caught_up(index, number_of, Column, rows)
        return cast(Column, index.data)

    def knows(self, definition: Hashable) -> bool:
        """Tell whether there is an index by this definition, up to date or not."""
        return definition in self._by_definition

    def record(self, slot: int, old: Row | None, new: Row | None) -> None:
        """Note that a row has changed; with no index there is nobody to tell."""
        if not self._by_definition:
            return
        self._log.append((slot, old, new))
        self._end += 1
        if len(self._log) > self._bound:
            self._cut_log()

    def fork(self) -> Self:
        """Return an independent copy that shares every integer."""
        return type(self)(
            by_definition={key: _Index(i.data.fork(), i.position) for key, i in self._by_definition.items()},
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
        nothing = kind.NOTHING
        if index is None:
            make_room(self._by_definition, _MAX_INDEXES)
            self._bound = max(_MIN_LOG, 2 * len(rows))
            values: Any = [nothing if row is None else row_to(row) for row in rows]
            index = self._by_definition[row_to] = _Index(kind.build(values), self._end)
            return index
        replace: Callable[[int, Any, Any], None] = index.data.replace
        for slot, old, new in self._log[index.position - self._end :]:
            replace(slot, nothing if old is None else row_to(old), nothing if new is None else row_to(new))
        index.position = self._end
        return index

    def _cut_log(self) -> None:
        """Forget what every index has read, and those indexes that have read too little."""
        tolerated = self._end - len(self._log) // 2
        self._by_definition = {key: i for key, i in self._by_definition.items() if i.position >= tolerated}
        start = min((i.position for i in self._by_definition.values()), default=self._end)
        self._log = self._log[start - self._end :] if start < self._end else []
