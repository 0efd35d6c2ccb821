"""
The indexes of a table, and the log of changes from which they are brought up to date.

An index is defined by a function of one row, and built when it is first used. From then on it *follows* every change,
until it has not been used for a while; at its next use it catches up from the log. One that is not used for too long is
dropped. An index holds sets only; what a changed row contributed before is computed from the old row. Indexes are
looked up by the identity of their definition: a function, or a callable that exists once for each question.

An index *derives* from another one if it differs from it for a few rows only: it is made from a copy.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import attrs

from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, slots_of
from neuron_scheduler.cluster.index.postings import Postings

_Key = TypeVar("_Key", bound=Hashable)
_MOST_INDEXES = 1024
_MOST_DERIVED = 512
_FEWEST_LOGGED = 1024
FEW_PARTS: Final = 50
"""Parts of a pod up to which a change counts once in a log."""
_DROPPED: Final = 256
"""Changes that the log drops at once: freeing very many rows takes long."""
_AT_ONCE = 64
"""Rows, or changes, after which a preparation yields."""
_BLOCK: Final = 16 * _AT_ONCE
"""Rows that are added to an index in a step: each addition copies its sets of nodes."""
_PATIENCE = 32
"""Changes that an index follows without being used."""
Row = TypeVar("Row")
Data = TypeVar("Data", Postings, Column)


def evict_if_full(cache: dict[_Key, Any], most: int) -> None:
    """
    Evict a quarter of the entries if there are `most` of them: every third, apart from the most recently used quarter.

    An entry knows when it was `last_used`, by any number that grows. Sorting by age costs more than evicting. Were only
    the least recently used ones evicted, slightly more entries than the cache can keep, used in turn, would each go
    just before their next use.
    """
    if len(cache) >= most:
        by_age = sorted(cache, key=lambda key: cache[key].last_used)
        for key in by_age[: -(-most * 3 // 4) : 3]:
            del cache[key]


@attrs.define(eq=False)
class _Index:
    """
    A `Postings` or a `Column`.

    Attributes:
        position: the position in the log up to which it is correct.
        last_used: the end of the log then.
        at_once: how many rows are read in a step.
    """

    definition: Callable[[Any], Any]
    data: Any
    position: int
    last_used: int
    at_once: int = attrs.field(
        init=False, default=attrs.Factory(lambda self: _at_once(self.definition), takes_self=True)
    )

    def apply(self, slot: Slot, old: Any, new: Any) -> None:
        before = self.data.NOTHING if old is None else self.definition(old)
        after = self.data.NOTHING if new is None else self.definition(new)
        if before != after:
            self.data.replace(slot, before, after)


class Derived(Protocol):
    """The definition of an index that differs from another one for a few rows."""

    @property
    def base(self) -> Callable[[Any], Any]:
        """The definition of the other one."""

    def __call__(self, row: Any, /) -> Any: ...

    def changed_rows(self, indexes: "Indexes[Any]") -> NodeSet:
        """Return the rows for which the two may differ."""


@attrs.define(eq=False)
class Indexes(Generic[Row]):
    """
    Indexes by definition.

    Attributes:
        rows: by slot, as they are now; a change is made there and recorded here.
        log: the latest changes of rows.
        dropped: how often indexes other than derived ones were dropped.
    """

    rows: list[Row | None]
    log: ChangeLog[tuple[Slot, Row | None, Row | None]] = attrs.field(factory=ChangeLog)
    dropped: int = 0
    _by_definition: dict[Callable[[Any], Any], _Index] = attrs.field(factory=dict)
    _derived: dict[Callable[[Any], Any], _Index] = attrs.field(factory=dict)
    _following: list[_Index] = attrs.field(factory=list)
    _bound: int = _FEWEST_LOGGED
    _preparing: int = 0

    def get(self, definition: Callable[[Row], Any], index_type: type[Data]) -> Data:
        """Return an index that is up to date; it is built at once if it was not prepared."""
        if definition not in self._by_definition:
            deque(self.prepare(definition, index_type), maxlen=0)
            self._following.append(self._by_definition[definition])
        index = self._by_definition[definition]
        if index.position != self.log.end:
            self._follow(index)
        index.last_used = index.position
        data: Data = index.data
        return data

    def derive(self, derived: Derived, index_type: type[Data]) -> Data:
        """Return a derived index that is up to date: from the log, or derived again if that is less work."""
        index = self._derived.get(derived)
        lag = 0 if index is None else self.log.end - index.position
        if index is None or (lag > _PATIENCE and lag > derived.changed_rows(self).bit_count()):
            deque(self._build_derived(derived, index_type), maxlen=0)
            index = self._derived[derived]
            self._following.append(index)
        if index.position != self.log.end:
            self._follow(index)
        index.last_used = index.position
        data: Data = index.data
        return data

    def is_ready(self, definition: Callable[[Any], Any]) -> bool:
        """Return whether there is an index with this definition that has few changes to catch up with."""
        index = self._by_definition.get(definition) or self._derived.get(definition)
        return index is not None and self.log.end - index.position <= index.at_once

    def prepare(self, definition: Callable[[Row], Any], index_type: type[Postings | Column]) -> Iterator[None]:
        """
        Build an index, or bring it up to date, a few rows at a time; at a yield other tasks may run and change rows.

        After too many changes there may be no index in the end; it is then built when it is used.
        """
        if definition not in self._by_definition:
            start, self._preparing = self.log.end, self._preparing + 1
            self._bound = max(_FEWEST_LOGGED, 2 * len(self.rows))  # what changes meanwhile has to be applied
            try:
                data = yield from build(definition, index_type, list(self.rows))
            finally:
                self._preparing -= 1
                self._bound = self._bound if self._preparing else max(_FEWEST_LOGGED, len(self.rows) // 4)
            if self.log.covers(start):
                before = len(self._by_definition)
                evict_if_full(self._by_definition, _MOST_INDEXES)
                self.dropped += len(self._by_definition) < before
                self._by_definition[definition] = _Index(definition, data, start, last_used=start)
        while (index := self._by_definition.get(definition)) is not None and not self.is_ready(definition):
            _catch_up(index, self.log, most=index.at_once)
            yield

    def prepare_derived(self, derived: Derived, index_type: type[Postings | Column]) -> Iterator[None]:
        """Make a derived index in the same way; the index that it derives from must have been prepared before."""
        index = self._derived.get(derived)
        lag = 0 if index is None else self.log.end - index.position
        if index is None or lag > max(index.at_once, derived.changed_rows(self).bit_count()):
            yield from self._build_derived(derived, index_type)
        while (index := self._derived.get(derived)) is not None and not self.is_ready(derived):
            _catch_up(index, self.log, most=index.at_once)
            yield

    def record(self, slot: Slot, old: Row | None, new: Row | None, *, parts: int = 0) -> None:
        """
        Record a change of a row; it is kept only if there is an index that may read it.

        One with a pod of many parts counts as many changes: the log keeps the pods of few such changes.
        """
        log = self.log
        if not (self._by_definition or self._derived or self._preparing):
            log.skip()
            return
        log.append((slot, old, new))
        for _ in range(parts // FEW_PARTS):
            log.append((slot, new, new))
        for index in self._following:
            index.apply(slot, old, new)
            index.position = log.end
        if log.end % _PATIENCE <= parts // FEW_PARTS:
            self._following = [index for index in self._following if log.end - index.last_used < _PATIENCE]
        while log.end - log.start > self._bound:
            self._cut_log()

    def fork(self, rows: list[Row | None]) -> Self:
        by_definition, derived = (
            {key: _Index(key, each.data.fork(), each.position, each.last_used) for key, each in indexes.items()}
            for indexes in (self._by_definition, self._derived)
        )
        return type(self)(rows, self.log.fork(), by_definition=by_definition, derived=derived, bound=self._bound)

    def _follow(self, index: _Index) -> None:
        _catch_up(index, self.log)
        self._following.append(index)

    def _build_derived(self, derived: Derived, index_type: type[Any]) -> Iterator[None]:
        """Make a derived index: from a copy of the other one if few rows differ, else from all rows."""
        changed, start = derived.changed_rows(self), self.log.end
        if 2 * changed.bit_count() > len(self.rows):
            data = yield from build(derived, index_type, list(self.rows))
        else:
            data = self.get(derived.base, index_type).fork()
            yield from _replace_differing(data, derived, {slot: self.rows[slot] for slot in slots_of(changed)})
        if self.log.covers(start):
            evict_if_full(self._derived, _MOST_DERIVED)
            self._derived[derived] = _Index(derived, data, start, last_used=start)
        yield  # a question may need many of them

    def _cut_log(self) -> None:
        """Drop the oldest changes, and the indexes that have not read them."""
        self.log.drop_before(min(self.log.start + _DROPPED, self.log.end - _FEWEST_LOGGED // 2))
        before = len(self._by_definition)
        self._by_definition = {key: i for key, i in self._by_definition.items() if self.log.covers(i.position)}
        self._derived = {key: i for key, i in self._derived.items() if self.log.covers(i.position)}
        self.dropped += len(self._by_definition) < before


def _catch_up(index: _Index, log: ChangeLog[Any], *, most: int | None = None) -> None:
    """Apply the changes that an index has not read yet, or the first of them."""
    changes = log.changes_since(index.position, most)
    for change in changes:
        index.apply(*change)
    index.position += len(changes)


def _at_once(definition: Callable[[Any], Any]) -> int:
    return 1 if getattr(definition, "is_slow", False) else _AT_ONCE


def build(
    definition: Callable[[Row], Any], index_type: type[Postings | Column], rows: Sequence[Row | None]
) -> Generator[None, None, Postings | Column]:
    """Build the data of an index of all rows, a few at a time."""
    data, at_once = index_type(), _at_once(definition)
    for first in range(0, len(rows), _BLOCK):
        values: list[Any] = []
        for at in range(first, min(first + _BLOCK, len(rows)), at_once):
            values += [index_type.NOTHING if row is None else definition(row) for row in rows[at : at + at_once]]
            yield
        data.extend(values, first)
    return data


def _replace_differing(data: Any, derived: Derived, changed: Mapping[Slot, Row | None]) -> Generator[None, None, None]:
    """Replace the changed rows in a copy of another index's data, a few rows at a time."""
    for number, (slot, row) in enumerate(changed.items(), start=1):
        if row is not None:
            data.replace(slot, derived.base(row), derived(row))
        if number % _at_once(derived) == 0:
            yield
