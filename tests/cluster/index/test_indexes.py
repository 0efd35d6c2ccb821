"""Indexes are correct whenever they are used, also after a long time; what they keep is bounded."""

from collections.abc import Callable, Iterator

import attrs
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.cluster.index import indexes
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.indexes import Indexes, evict_if_full
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.index.postings import Postings, Values


@attrs.frozen
class Entry:
    """An entry that was last used at a time."""

    last_used: int


def test_the_latest_entries_are_kept() -> None:
    """A quarter is evicted at once, of the older entries; below the limit none is."""
    cache: dict[int, Entry] = {i: Entry(i) for i in range(16)}
    evict_if_full(cache, 17)
    assert len(cache) == 16
    evict_if_full(cache, 16)
    assert sorted(cache) == [1, 2, 4, 5, 7, 8, 10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("most", [1, 2, 3, 5, 1024])
def test_there_is_room_afterwards(most: int) -> None:
    """With any limit."""
    cache: dict[int, Entry] = {i: Entry(0) for i in range(most)}
    evict_if_full(cache, most)
    assert len(cache) < most


def test_entries_used_in_turn_are_mostly_kept() -> None:
    """A few more entries than there is room for do not make every use a miss."""
    cache: dict[int, Entry] = {}
    missed = 0
    for time in range(3300):
        key = time % 110
        if key not in cache:
            missed += 1
            evict_if_full(cache, 100)
        cache[key] = Entry(time)
        assert len(cache) <= 100
    assert missed < 3300 // 2


Row = int


def modulo(divisor: int) -> Callable[[Row], int]:
    """Return a definition of a column; there is one for each divisor."""
    return _MODULO[divisor]


def parity(row: Row) -> Values:
    """Post rows by whether they are odd and whether they are large."""
    return (row % 2 == 1, "large") if row > 50 else (row % 2 == 1,)


_MODULO: dict[int, Callable[[Row], int]] = {d: (lambda row, d=d: row % d) for d in range(1, 12)}  # type: ignore[misc]  # mypy cannot type the default


@pytest.fixture(autouse=True, scope="module")
def _small_bounds() -> Iterator[None]:
    """Make the limits so low that a short test reaches them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes, "_FEWEST_LOGGED", 6)
        patch.setattr(indexes, "_MOST_INDEXES", 4)
        patch.setattr(indexes, "_AT_ONCE", 2)
        patch.setattr(indexes, "_BLOCK", 4)
        patch.setattr(indexes, "_PATIENCE", 2)
        yield


def check(table: Indexes[Row], divisor: int) -> None:
    """Compare one column and the postings with the rows."""
    column, rows = table.get(modulo(divisor), Column), table.rows
    assert [column.value(Slot(s)) for s in range(len(rows))] == [0 if r is None else r % divisor for r in rows]
    postings = table.get(parity, Postings)
    assert {v: postings.get(v) for v in postings.values} == {
        v: sum(1 << s for s, r in enumerate(rows) if r is not None and v in parity(r))
        for row in rows
        if row is not None
        for v in parity(row)
    }


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.one_of(st.none(), st.integers(0, 99))),
        st.tuples(st.just("ask"), st.integers(1, 11), st.none()),
        st.tuples(st.just("fork"), st.integers(1, 11), st.none()),
        st.tuples(st.just("prepare"), st.integers(0, 11), st.none()),
        st.tuples(st.just("breathe"), st.just(0), st.none()),
    ),
    max_size=80,
)


@given(steps)
def test_an_index_is_correct_when_it_is_used(sequence: list[tuple[str, int, int | None]]) -> None:
    """Built at once or in steps, caught up, dropped and built again: it agrees with the rows; so does a fork."""
    rows: list[Row | None] = [None] * 6
    table, preparations = Indexes(rows), list[Iterator[None]]()
    forks: list[Indexes[Row]] = []
    for step, number, row in sequence:
        if step == "put":
            table.record(Slot(number), rows[number], row)
            rows[number] = row
        elif step == "ask":
            check(table, number)
        elif step == "prepare":
            definition, kind = (modulo(number), Column) if number else (parity, Postings)
            preparations.append(table.prepare(definition, kind))
        elif step == "breathe":
            for preparation in preparations:
                next(preparation, None)
        else:
            forks.append(table.fork(list(rows)))
        assert len(table.log._changes) <= table._bound
        assert len(table._by_definition) <= indexes._MOST_INDEXES
    for divisor, fork in enumerate(forks, start=1):
        check(fork, divisor % 11 + 1)
    check(table, 7)


def test_what_was_prepared_is_ready() -> None:
    """An index catches up with rows that changed meanwhile, also if it was not used for long."""
    rows: list[Row | None] = [1, 2, 3, 4, 5, 6]
    table = Indexes(rows)
    table.get(modulo(3), Column)
    for _ in table.prepare(modulo(5), Column):
        table.record(Slot(0), rows[0], 50)
        rows[0] = 50
    assert table.is_ready(modulo(5))
    check(table, 5)
    for row in range(6):
        table.record(Slot(1), rows[1], row)
        rows[1] = row
    assert not table.is_ready(modulo(5))
    assert (
        len(list(table.prepare(modulo(5), Column))) == 1
    )  # two of four changes that it did not follow, and two may be left
    assert table.is_ready(modulo(5))
    check(table, 5)


def test_the_first_index_is_prepared_while_rows_change() -> None:
    """Changes are kept for an index that is being built, also if there is no other; else it was built for nothing."""
    rows: list[Row | None] = [1, 2, 3, 4, 5, 6]
    table = Indexes(rows)
    for row, _ in enumerate(table.prepare(modulo(5), Column), start=50):
        table.record(Slot(0), rows[0], row)
        rows[0] = row
    assert table.is_ready(modulo(5))
    check(table, 5)


@pytest.mark.parametrize("parts", [0, indexes.FEW_PARTS])
def test_an_index_follows_while_it_is_asked_for(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index in use is always up to date; one that was not used for a while costs nothing at a change."""
    monkeypatch.setattr(indexes, "_PATIENCE", 4)
    seen: list[Row] = []

    def watched(row: Row) -> int:
        seen.append(row)
        return row

    rows: list[Row | None] = [0]
    table = Indexes(rows)
    table.get(watched, Column)
    for row in range(3):
        seen.clear()
        table.record(Slot(0), row, row + 1)
        assert seen == [row, row + 1]
        assert table.get(watched, Column).value(Slot(0)) == row + 1
        assert seen == [row, row + 1]
    for row in range(3, 12):
        rows[0] = row + 1
        table.record(Slot(0), row, row + 1, parts=parts)
    seen.clear()
    rows[0] = 13
    table.record(Slot(0), 12, 13)
    assert not seen
    assert table.get(watched, Column).value(Slot(0)) == 13


def test_without_indexes_nothing_is_logged() -> None:
    """No index can read it."""
    table: Indexes[Row] = Indexes([0])
    for row in range(100):
        table.record(Slot(0), row, row + 1)
    assert not table.log._changes


def test_an_unused_index_is_dropped() -> None:
    """It does not keep the log from being cut."""
    table: Indexes[Row] = Indexes([0])
    table.get(modulo(3), Column)
    for row in range(100):
        table.get(modulo(5), Column)
        table.record(Slot(0), row, row + 1)
    assert list(table._by_definition) == [modulo(5)]


def test_the_log_keeps_few_changes_of_many_parts() -> None:
    """One tenant's largest pods, coming and going, do not stay in memory by the thousand."""
    table: Indexes[Row] = Indexes([0])
    for row in range(100):
        table.get(modulo(5), Column)
        table.record(Slot(0), row, row + 1, parts=3 * indexes.FEW_PARTS)
        assert len({old for _, old, _ in table.log.changes_since(table.log.start)}) <= 4


def test_equal_definitions_share_one_index() -> None:
    """An index is looked up by its definition."""
    table: Indexes[Row] = Indexes([7])
    assert table.get(modulo(3), Column) is table.get(modulo(3), Column)
