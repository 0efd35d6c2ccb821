"""Postings agree with a dictionary of sets."""

from hypothesis import given, strategies as st

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, by_slot
from neuron_scheduler.cluster.index.postings import Postings, Values

# Few values for many slots, so that sets pass the border between tuples and integers in both directions.
some_values = st.lists(st.sampled_from("abcd"), unique=True, max_size=3).map(tuple)
rows = st.lists(some_values, min_size=1, max_size=40)
changes = st.lists(st.tuples(st.integers(0, 39).map(Slot), some_values), max_size=60)


def expected(values: list[Values]) -> dict[object, int]:
    """Return the node set of each value that some node has."""
    return {v: sum(1 << s for s, have in enumerate(values) if v in have) for have in values for v in have}


def postings_of(values: list[Values], replacements: list[tuple[Slot, Values]]) -> Postings:
    """Return postings built from values in two parts, with replacements made in them and in the list."""
    half = len(values) // 2
    postings = Postings()
    postings.extend(values[:half], 0)
    postings.extend(values[half:], half)
    for slot, new in replacements:
        if slot < len(values):
            postings.replace(slot, values[slot], new)
            values[slot] = new
    return postings


def check(postings: Postings, values: list[Values]) -> None:
    """Compare every result with the list's."""
    want = expected(values)
    assert {v: postings.get(v) for v in postings.values} == want
    assert postings.keyed == sum(1 << s for s, have in enumerate(values) if have)
    assert postings.get("none") == 0
    assert postings.any_of("ac") == want.get("a", 0) | want.get("c", 0)


@given(values=rows, replacements=changes)
def test_sets_are_what_was_set(values: list[Values], replacements: list[tuple[Slot, Values]]) -> None:
    """Built or replaced, rare or common, each value has its nodes; a value of no node is no value."""
    check(postings_of(values, replacements), values)


@given(values=rows, replacements=changes)
def test_a_fork_is_independent(values: list[Values], replacements: list[tuple[Slot, Values]]) -> None:
    """Changing a copy leaves its origin, and the other way round."""
    postings = Postings()
    postings.extend(values, 0)
    fork, before = postings.fork(), list(values)
    for slot, new in replacements:
        if slot < len(values):
            postings.replace(slot, values[slot], new)
            values[slot] = new
    check(fork, before)
    check(postings, values)


@given(values=rows, replacements=changes, nodes=st.integers(0, (1 << 45) - 1).map(NodeSet))
def test_values_are_counted_among_nodes(
    values: list[Values], replacements: list[tuple[Slot, Values]], nodes: NodeSet
) -> None:
    """A value counts once, however many of the nodes have it."""
    postings = postings_of(values, replacements)
    for among in (nodes, NO_NODES, NodeSet((1 << 40) - 1)):
        have = {value for slot, of_slot in by_slot(values) for value in of_slot if among >> slot & 1}
        assert postings.count_among(among) == len(have)
