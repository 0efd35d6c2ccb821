"""
The type check refuses to mix up sets of nodes, slots and counts.

mypy reports an ignore that ignores nothing: the type check fails here as soon as it accepts one of these.
"""

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, slots_of
from neuron_scheduler.cluster.view import View


def refused_of_nodes(view: View, column: Column, nodes: NodeSet, slot: Slot, count: int) -> None:
    """List what mypy refuses; nothing here is ever executed."""
    view.oldest(slot)  # type: ignore[arg-type]
    view.oldest(count)  # type: ignore[arg-type]
    view.row(nodes)  # type: ignore[arg-type]
    view.row(count)  # type: ignore[arg-type]
    column.at_least(count, slot)  # type: ignore[arg-type]
    column.at_least(nodes, nodes)  # type: ignore[arg-type]
    column.add(nodes, nodes)  # type: ignore[arg-type]
    column.value(nodes)  # type: ignore[arg-type]
    slots_of(0b101)  # type: ignore[arg-type]
    _ = nodes & count  # type: ignore[operator]
    _ = nodes | slot  # type: ignore[operator]
    _ = nodes + 1  # type: ignore[operator]
    _ = nodes >> count  # type: ignore[operator]


def accepted_of_nodes(view: View, nodes: NodeSet, slot: Slot) -> NodeSet:
    """List what stays a set of nodes, whatever is done with it."""
    found: NodeSet = view.live & ~nodes | 1 << slot
    found ^= nodes
    return found if found >> slot & 1 else NO_NODES


def test_a_set_and_a_slot_are_integers_at_run_time() -> None:
    """The types cost nothing: no object is made and no method is called."""
    values: list[object] = [NO_NODES, NodeSet(5), Slot(3), Cluster().view.live]
    assert {type(value) for value in values} == {int}
