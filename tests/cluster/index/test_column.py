"""A column of bit planes agrees with a list of numbers."""

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, by_slot

numbers = st.one_of(st.integers(0, 9), st.integers(0, 1 << 45))
rows = st.lists(numbers, max_size=40)
changes = st.lists(st.tuples(st.integers(0, 39).map(Slot), numbers), max_size=20)
some_nodes = st.integers(0, (1 << 40) - 1).map(NodeSet)


def as_set(slots: object) -> int:
    return sum(1 << slot for slot in slots)  # type: ignore[attr-defined]  # any iterable of int


def column_of(values: list[int], replacements: list[tuple[Slot, int]]) -> Column:
    """Return a column built from values in two parts, with replacements made in it and in the list."""
    half = len(values) // 2
    column = Column()
    column.extend(values[:half], 0)
    column.extend(values[half:], half)
    for slot, number in replacements:
        if slot < len(values):
            column.replace(slot, values[slot], number)
            values[slot] = number
    return column


@given(values=rows, replacements=changes)
def test_numbers_are_what_was_set(values: list[int], replacements: list[tuple[Slot, int]]) -> None:
    """Built or replaced, each slot has its number, and slots beyond have 0."""
    column = column_of(values, replacements)
    assert [column.value(Slot(slot)) for slot in range(len(values) + 1)] == [*values, 0]


@given(values=rows, replacements=changes, bound=st.integers(-1, 1 << 46), among=some_nodes)
def test_questions_are_answered_as_a_list_would(
    values: list[int], replacements: list[tuple[Slot, int]], bound: int, among: NodeSet
) -> None:
    """`at_least`, `highest`, `lowest` and `total` agree with comparisons one by one."""
    column = column_of(values, replacements)
    among &= NodeSet((1 << len(values)) - 1)
    chosen = {s: v for s, v in by_slot(values) if among >> s & 1}
    for asked in (bound, *values[:3], *(v + 1 for v in values[:3])):
        assert column.at_least(asked, among) == as_set(s for s, v in chosen.items() if v >= asked)
    assert column.highest(among) == as_set(s for s, v in chosen.items() if v == max(chosen.values()))
    assert column.lowest(among) == as_set(s for s, v in chosen.items() if v == min(chosen.values()))
    assert column.total(among) == sum(chosen.values())


@given(values=rows, additions=st.lists(st.tuples(st.integers(0, 200), some_nodes), max_size=8))
def test_weights_add_up(values: list[int], additions: list[tuple[int, NodeSet]]) -> None:
    """Adding a weight to a set adds it to each of its nodes and to no other; so does taking 1 away."""
    column = Column()
    column.extend(values, 0)
    totals = {slot: (values[slot] if slot < len(values) else 0) for slot in map(Slot, range(40))}
    for weight, nodes in additions:
        column.add(weight, nodes)
        for slot in totals:
            totals[slot] += weight * (nodes >> slot & 1)
        column.add(1, nodes)
        column.decrease(nodes)
    assert {slot: column.value(slot) for slot in totals} == totals


@pytest.mark.parametrize("weight", [1, 2, 4, 64, 100])
def test_an_empty_column_takes_any_weight(weight: int) -> None:
    """Even weights start above the lowest plane, which is not there yet."""
    column = Column()
    column.add(weight, NodeSet(0b101))
    assert [column.value(Slot(slot)) for slot in range(3)] == [weight, 0, weight]


@given(values=rows.filter(bool))
def test_a_fork_is_independent(values: list[int]) -> None:
    """A change of a copy or of its origin does not change the other."""
    column = Column()
    column.extend(values, 0)
    fork = column.fork()
    fork.replace(Slot(0), values[0], 1 << 50)
    column.add(3, NodeSet(1))
    assert (fork.value(Slot(0)), column.value(Slot(0))) == (1 << 50, values[0] + 3)


@given(values=rows, replacements=changes, factor=st.integers(0, 200), among=some_nodes)
def test_arithmetic_is_that_of_a_list(
    values: list[int], replacements: list[tuple[Slot, int]], factor: int, among: NodeSet
) -> None:
    """Extremes, masking, adding a multiple and taking from the highest agree with doing it one by one."""
    column = column_of(values, replacements)
    among &= NodeSet((1 << len(values)) - 1)
    chosen = {s: v for s, v in by_slot(values) if among >> s & 1}
    highest = max(chosen.values(), default=0)
    assert (column.maximum(among), column.minimum(among)) == (highest, min(chosen.values(), default=0))
    below, sums = column.subtract_from(highest, among), column.fork()
    sums.add_all(column, factor, among)
    weights = dict(column.mask(among).weights())
    for slot, number in by_slot(values):
        assert column.mask(among).value(slot) == chosen.get(slot, 0)
        assert below.value(slot) == (highest - number if slot in chosen else 0)
        assert sums.value(slot) == number + factor * chosen.get(slot, 0)
        assert sum(weight for weight, nodes in weights.items() if nodes >> slot & 1) == chosen.get(slot, 0)
