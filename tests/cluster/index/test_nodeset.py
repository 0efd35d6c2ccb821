"""Sets of nodes as integers agree with sets of numbers."""

from hypothesis import given, strategies as st

from neuron_scheduler.cluster.index.nodeset import from_slots, lowest_slot, slots_of

slots = st.sets(st.integers(0, 200))


@given(slots)
def test_a_set_holds_its_slots(members: set[int]) -> None:
    """What goes in comes out, in ascending order, each once."""
    size = max(members, default=-1) + 1
    nodes = from_slots(members, size)
    assert nodes == sum(1 << slot for slot in members)
    assert list(slots_of(nodes)) == sorted(members)
    assert from_slots(members, size + 9) == nodes


@given(slots.filter(bool))
def test_the_lowest_slot_is_the_oldest_node(members: set[int]) -> None:
    """Ties are broken towards it."""
    assert lowest_slot(from_slots(members, 201)) == min(members)
