"""
How a pod changes the balance between a node's silicon (devices and cores) and its cpu and memory.

Later pods cannot use silicon without cpu, nor cpu without silicon. So of nodes that are otherwise alike, those are best
where |cpu left - silicon left| and |memory left - silicon left|, in shares of the node, grow least.

d is the *surplus* of a resource over the silicon on a node; delta is how much more of the resource than of silicon a
pod takes. |d - delta| - |d| is |delta| less twice the *relief*: how far d lies in delta's direction, from 0 to |delta|.
So one column of d for each resource serves every pod. For a pod, delta depends only on the node's size, of which a
fleet has few.
"""

from typing import cast

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NodeSet, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.neuron.catalog import Machine, machine_of

STEPS = 16
"""A node's whole share, in the unit of surpluses: 1 for each device of 16."""
_DIGITS = 6
"""Leading bits of an amount that count for a node's size; kubelets of one instance type differ by some KiB."""


@attrs.frozen(cache_hash=True)
class Size:
    """
    What nodes with the same delta for a pod have in common.

    Attributes:
        cpu, memory: allocatable, rounded down.
    """

    machine: Machine
    cpu: int
    memory: int


@attrs.frozen(eq=False)
class Surplus:
    """Index definition: by how many steps more of a resource than of the silicon is left, with `STEPS` for equal."""

    resource: str

    def __call__(self, node_info: NodeInfo) -> int:
        """Return the number, from 0 to twice `STEPS`."""
        machine, whole = node_info.machine, node_info.node.allocatable.get(self.resource, 0)
        if machine is None or whole <= 0:
            return STEPS
        left = whole - node_info.used.get(self.resource, 0)
        left *= left > 0  # more may be in use than there is
        free = node_info.neuron_usage.free
        silicon = (free if machine.published is None else free & machine.all_cores).bit_count()
        return STEPS + (left * machine.core_count - silicon * whole) * STEPS // (whole * machine.core_count)


SURPLUS_OF_CPU, SURPLUS_OF_MEMORY = Surplus(CPU), Surplus(MEMORY)


def prefer_balanced(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes whose imbalance grows least with a pod, counted in devices that it keeps from being used."""
    request = pod.neuron
    if request is None or (among.bit_count() < 2 and among != view.live):  # a warm-up sees what any decision asks for
        return among
    cpu, memory = view.column(SURPLUS_OF_CPU), view.column(SURPLUS_OF_MEMORY)
    sizes, rest, best, least = view.node_postings(balance_size_of), among, among, None
    for size in cast("set[Size]", sizes.values):
        alike = sizes.get(size) & rest
        if not alike:
            continue
        more_cpu, more_memory = deltas_of(pod, request, size)
        relief, nodes = _most_relieved(cpu, more_cpu, memory, more_memory, alike)
        growth = (abs(more_cpu) + abs(more_memory) - 2 * relief) * size.machine.devices
        if least is None or growth <= least:
            best, least = nodes | best if growth == least else nodes, growth
        rest ^= alike
        if not rest:
            break
    return best


def balance_size_of(node: Node) -> Values:
    """Return a node's size as the only value, none for one without Neuron."""
    machine, amounts = machine_of(node), node.allocatable
    if machine is None:
        return ()
    if machine.published is not None:
        machine = machine.published.shape  # what else is published, such as places in the network, makes no other size
    return (Size(machine, _round_down(amounts.get(CPU, 0)), _round_down(amounts.get(MEMORY, 0))),)


def deltas_of(pod: Pod, request: NeuronRequest, size: Size) -> tuple[int, int]:
    """Return how many steps more of cpu, and of memory, than of the silicon a pod takes."""
    cores, asked = size.machine.core_count, pod.requests
    taken = request.total * (size.machine.cores_per_device if request.unit is Unit.DEVICE else 1)
    return _delta(asked.get(CPU, 0), size.cpu, taken, cores), _delta(asked.get(MEMORY, 0), size.memory, taken, cores)


def _delta(amount: int, whole: int, taken: int, cores: int) -> int:
    """Return the difference of two shares in steps, rounded away from 0: the smallest still has a direction."""
    if whole <= 0:
        return 0
    more = (amount * cores - taken * whole) * STEPS
    return more // (whole * cores) if more < 0 else -(-more // (whole * cores))


def _round_down(amount: int) -> int:
    dropped = max(0, amount.bit_length() - _DIGITS)
    return amount >> dropped << dropped


def _most_relieved(
    cpu: Column, cpu_delta: int, memory: Column, memory_delta: int, among: NodeSet
) -> tuple[int, NodeSet]:
    """Return the largest sum of two reliefs, and the nodes that have it."""
    relief, most = _relief(cpu, cpu_delta, among), _relief(memory, memory_delta, among)
    nodes = _with_relief(memory, memory_delta, most, _with_relief(cpu, cpu_delta, relief, among))
    if nodes:
        return relief + most, nodes
    best, best_nodes = -1, among
    while relief >= 0 and relief + most >= best:
        # A node with a larger relief of cpu and this relief of memory was seen before, with a larger sum.
        nodes = _with_relief(cpu, cpu_delta, relief, among)
        total = relief + _relief(memory, memory_delta, nodes)
        if total >= best:
            nodes = _with_relief(memory, memory_delta, total - relief, nodes)
            best, best_nodes = total, nodes | best_nodes if total == best else nodes
        relief -= 1
    return best, best_nodes


def _relief(surpluses: Column, delta: int, among: NodeSet) -> int:
    """Return the largest relief among some nodes; 0, which is common, takes one question."""
    if not delta or not (some := _with_relief(surpluses, delta, 1, among)):
        return 0
    far = abs(delta)
    if far == 1 or _with_relief(surpluses, delta, far, some):
        return far
    return surpluses.maximum(some) - STEPS if delta > 0 else STEPS - surpluses.minimum(some)


def _with_relief(surpluses: Column, delta: int, relief: int, among: NodeSet) -> NodeSet:
    """Return those of some nodes whose relief is at least this many steps."""
    if not relief:
        return among
    if delta > 0:
        return surpluses.at_least(STEPS + relief, among)
    return less(among, surpluses.at_least(STEPS - relief + 1, among))
