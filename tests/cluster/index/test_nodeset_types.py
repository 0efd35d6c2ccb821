"""
The type check refuses to mix up sets of nodes, slots, sets of cores and counts.

mypy reports an ignore that ignores nothing: the type check fails here as soon as it accepts one of these.
"""

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, lowest_slot, slots_of
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.topology import place, whole_free_devices


def refused_of_nodes(view: View, column: Column, nodes: NodeSet, slot: Slot, count: int) -> None:
    """List what mypy refuses where nodes are meant; nothing here is ever executed."""
    lowest_slot(slot)  # type: ignore[arg-type]
    lowest_slot(count)  # type: ignore[arg-type]
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


def refused_of_cores(
    cluster: Cluster, pod: Pod, machine: Machine, *, request: NeuronRequest, cores: CoreMask, nodes: NodeSet
) -> None:
    """List what mypy refuses where cores are meant; nothing here is ever executed."""
    cluster.assume(pod, machine.core_count)  # type: ignore[arg-type]
    cluster.assume(pod, nodes)  # type: ignore[arg-type]
    lowest_slot(cores)  # type: ignore[arg-type]
    PodInfo(pod, cores=machine.devices)  # type: ignore[arg-type]
    Nomination(pod, 0b1111)  # type: ignore[arg-type]
    place(machine, machine.core_count, request)  # type: ignore[arg-type]
    whole_free_devices(machine, nodes)  # type: ignore[arg-type]
    _ = cores & nodes  # type: ignore[operator]
    _ = cores | 1  # type: ignore[operator]
    _ = machine.core_count - cores  # type: ignore[operator]


def accepted(view: View, nodes: NodeSet, slot: Slot, machine: Machine, cores: CoreMask) -> tuple[NodeSet, CoreMask]:
    """List what stays a set, whatever is done with it."""
    chosen: NodeSet = view.live & ~nodes | 1 << slot
    chosen ^= nodes
    free: CoreMask = machine.all_cores & ~cores
    free |= cores
    return chosen if chosen >> slot & 1 else NO_NODES, free or NO_CORES


def test_sets_and_slots_are_integers_at_run_time() -> None:
    """The types cost nothing: no object is made and no method is called."""
    values: list[object] = [NO_NODES, NodeSet(5), Slot(3), Cluster().view.live, NO_CORES, CoreMask(5)]
    assert {type(value) for value in values} == {int}
