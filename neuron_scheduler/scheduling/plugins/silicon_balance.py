"""
What a pod does to the balance between a node's silicon and the cpu and memory beside it.

Silicon without cpu is of no use to the pods that follow, nor is cpu without silicon. So of nodes that are otherwise
alike those are best where |cpu left - silicon left| and |memory left - silicon left|, in shares of the node, grow the
least: a pod that asks for much cpu goes where more cpu than silicon is left.

With d, the *surplus* of a resource over the silicon on a node, and delta, by how much more of the resource than of
silicon a pod takes, |d - delta| - |d| is |delta| less twice the *relief*: how far d lies in delta's direction, from 0
to |delta|. So one column of d for each resource does for every pod, and no index is made for what one pod asks for.
Delta depends on the node's size only, of which a fleet has few. Refuses to weigh anything against the choice of a
block: it only breaks ties.
"""

from typing import cast

import attrs

from neuron_scheduler.cluster.column import Column
from neuron_scheduler.cluster.node_state import NodeState
from neuron_scheduler.cluster.nodeset import NodeSet, less
from neuron_scheduler.cluster.postings import Values
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.neuron.catalog import Machine, machine_of

RESOURCES = (CPU, MEMORY)
STEPS = 64
"""A node's whole share, in the unit that surpluses are told in: 4 for each device of 16."""
_DIGITS = 6
"""Leading bits of an amount that count for a node's size; kubelets of one instance type differ by some KiB."""


@attrs.frozen
class Size:
    """
    What nodes have alike for whom a pod's delta is the same.

    Attributes:
        allocatable: of each of `RESOURCES`, rounded down.
    """

    machine: Machine
    allocatable: tuple[int, ...]


@attrs.frozen(eq=False)
class Surplus:
    """Index definition: by how many steps more of a resource than of the silicon is left, with `STEPS` for equal."""

    resource: str

    def __call__(self, state: NodeState) -> int:
        """Return the number, from 0 to twice `STEPS`."""
        machine, whole = state.machine, state.node.allocatable.get(self.resource, 0)
        if machine is None or whole <= 0:
            return STEPS
        left = whole - state.used.get(self.resource, 0)
        left *= left > 0  # more may be in use than there is
        silicon = state.silicon.free.bit_count()
        return STEPS + (left * machine.cores - silicon * whole) * STEPS // (whole * machine.cores)


SURPLUSES = tuple(map(Surplus, RESOURCES))


def prefer_balanced(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes whose imbalance grows least with a pod, counted in devices that it keeps from being used."""
    request = pod.neuron
    if request is None or not among & (among - 1):
        return among
    cpu, memory = [view.column(surplus) for surplus in SURPLUSES]
    sizes, best, least = view.node_postings(size_of), among, None
    for size in cast("set[Size]", sizes.values):
        alike = sizes.get(size) & among
        if not alike:
            continue
        more_cpu, more_memory = deltas_of(pod, request, size)
        relief, nodes = _most_relieved(cpu, more_cpu, memory, more_memory, alike)
        growth = (abs(more_cpu) + abs(more_memory) - 2 * relief) * size.machine.devices
        if least is None or growth <= least:
            best, least = nodes | best if growth == least else nodes, growth
    return best


def size_of(node: Node) -> Values:
    """Return a node's size as the only value, none for one without Neuron."""
    machine = machine_of(node)
    return () if machine is None else (Size(machine, tuple(_rounded(node.allocatable.get(r, 0)) for r in RESOURCES)),)


def deltas_of(pod: Pod, request: NeuronRequest, size: Size) -> list[int]:
    """Return how many steps more of each resource than of the silicon a pod takes: away from 0, so never too few."""
    machine, asked, found = size.machine, pod.requests, []
    silicon = request.total * (machine.cores_per_device if request.unit is Unit.DEVICE else 1)
    for resource, whole in zip(RESOURCES, size.allocatable, strict=True):
        steps = (asked.get(resource, 0) * machine.cores - silicon * whole) * STEPS if whole > 0 else 0
        grain = whole * machine.cores
        found.append(-(-steps // grain) if steps > 0 else steps and steps // grain)
    return found


def _rounded(amount: int) -> int:
    dropped = max(0, amount.bit_length() - _DIGITS)
    return amount >> dropped << dropped


def _most_relieved(one: Column, one_delta: int, other: Column, other_delta: int, among: NodeSet) -> tuple[int, NodeSet]:
    """Return the largest sum of two reliefs, and the nodes that have it."""
    most, best, found = _relief(other, other_delta, among), -1, among
    for relief in range(_relief(one, one_delta, among), -1, -1):
        if relief + most < best:
            break
        # A node with more of the one and as much of the other would have been found before, with a larger sum.
        nodes = _with_relief(one, one_delta, relief, among)
        total = relief + (_relief(other, other_delta, nodes) if most else 0)
        if total >= best:
            nodes = _with_relief(other, other_delta, total - relief, nodes)
            best, found = total, nodes | found if total == best else nodes
    return best, found


def _relief(surpluses: Column, delta: int, among: NodeSet) -> int:
    """Return the largest relief among some nodes."""
    if delta > 0:
        return max(0, min(delta, surpluses.maximum(among) - STEPS))
    return max(0, min(-delta, STEPS - surpluses.minimum(among))) if delta else 0


def _with_relief(surpluses: Column, delta: int, relief: int, among: NodeSet) -> NodeSet:
    """Return those of some nodes whose relief is at least so many steps."""
    if not relief:
        return among
    if delta > 0:
        return surpluses.at_least(STEPS + relief, among)
    return less(among, surpluses.at_least(STEPS - relief + 1, among))
