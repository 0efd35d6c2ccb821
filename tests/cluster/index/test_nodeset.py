"""Sets of nodes as integers agree with sets of numbers."""

from hypothesis import given, strategies as st

from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, from_slots, lowest_slot, membership, slots_of

slots = st.sets(st.integers(0, 200).map(Slot))


@given(slots)
def test_a_set_holds_its_slots(members: set[Slot]) -> None:
    """What goes in comes out, in ascending order, each once."""
    size = max(members, default=Slot(-1)) + 1
    nodes = from_slots(members, size)
    assert nodes == NodeSet(sum(1 << int(slot) for slot in members))
    assert list(slots_of(nodes)) == sorted(members)
    assert from_slots(members, size + 9) == nodes
    is_in = membership(nodes, 201)
    assert {slot for slot in map(Slot, range(201)) if is_in(slot)} == members


@given(slots.filter(bool))
def test_the_lowest_slot_is_the_oldest_node(members: set[Slot]) -> None:
    """Ties are broken towards it."""
    assert lowest_slot(from_slots(members, 201)) == min(members)
