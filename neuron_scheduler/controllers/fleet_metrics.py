"""
What the cluster has, in numbers for the metrics: asked of the indexes, so that a scrape does not loop over nodes.

What counts as free is what a refusal counts (`scheduling.shortage`), for a pod that asks for devices and is plain in
all else: it tolerates the taints that are usual on Neuron nodes, and no other.
"""

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_DEVICE, NEURON_DEVICE_ALIAS, NEURON_NAMES
from neuron_scheduler.model.selectors import Toleration
from neuron_scheduler.neuron.topology import whole_free_devices
from neuron_scheduler.scheduling.cycle.filters import WithNominated, nodes_with_nominations
from neuron_scheduler.scheduling.plugins import (
    neuron_topology,
    node_resources_fit,
    node_unschedulable,
    taint_toleration,
)

PLAIN: Final = Pod(
    uid="", namespace="", name="", tolerations=tuple(Toleration(key=name, exists=True) for name in NEURON_NAMES)
)
"""It tolerates what the API server's ExtendedResourceToleration adds to a pod that asks for Neuron."""


class Withheld(enum.StrEnum):
    """Why devices that nobody holds are not free: labels. Of several reasons the first one counts."""

    MALFORMED = "malformed"
    """The node's object could not be read in full."""
    CORDONED = "cordoned"
    TAINTED = "tainted"
    """NoSchedule or NoExecute, and not usual on Neuron nodes."""
    UNHEALTHY = "unhealthy"
    """The node's condition NeuronHealth reports a problem."""
    TOO_MANY_PODS = "too_many_pods"
    UNKNOWN_HOLDER = "unknown_holder"
    """A pod whose ids are unknown may hold them."""
    PROMISED = "promised"
    """To a pod that others were asked to leave for."""
    NOT_ALLOCATABLE = "not_allocatable"
    """Kubelet would hand out fewer than there are."""


class _Stock(NamedTuple):
    """
    What one node has, as far as it is counted here; few of them differ.

    Attributes:
        devices, whole: all there are, and those of which nobody holds a core.
        free, largest_block: what a pod would get if the node takes it.
    """

    instance_type: str
    devices: int
    whole: int
    free: int
    largest_block: int
    unknown_holders: int
    contested_cores: int


@attrs.frozen
class Devices:
    """
    The devices of all nodes, by instance type; free, used and withheld ones add up to what the nodes have.

    Attributes:
        free: a pod could get them now, in pieces if need be.
        used: pods hold some of their cores, or all.
        withheld: nobody holds them, and nobody gets them; by instance type and `Withheld`.
        largest_block: devices in the largest free block of one node.
    """

    free: Counter[str] = attrs.field(factory=Counter)
    used: Counter[str] = attrs.field(factory=Counter)
    withheld: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    largest_block: Counter[str] = attrs.field(factory=Counter)

    def add_open(self, stock: _Stock, still: _Stock, nodes: int) -> None:
        """Add nodes that take pods; `still` is what is left of their stock when promises are kept."""
        name = stock.instance_type
        self.free[name] += still.free * nodes
        self.withheld[name, Withheld.PROMISED] += (stock.free - still.free) * nodes
        self.withheld[name, Withheld.NOT_ALLOCATABLE] += (stock.whole - stock.free) * nodes
        self.largest_block[name] = max(self.largest_block[name], still.largest_block if nodes else 0)


def _stock(node_info: NodeInfo) -> tuple[_Stock, ...]:
    """Index definition: the nodes by what they have. One index, since it has much to catch up with at a scrape."""
    machine, neuron_usage = node_info.machine, node_info.neuron_usage
    if machine is None:
        return ()
    devices = whole = free = block = 0
    if Unit.DEVICE in machine.units:
        name = NEURON_DEVICE if node_info.node.allocatable.get(NEURON_DEVICE) else NEURON_DEVICE_ALIAS
        devices, whole = machine.devices, whole_free_devices(machine, neuron_usage.free)
        free, block = neuron_topology.free_units_of(name)(node_info), neuron_topology.largest_block_of(name)(node_info)
    doubts = neuron_usage.unknown_holders, neuron_usage.double_booked.bit_count()
    return (_Stock(machine.instance_type or "unknown", devices, whole, free, block, *doubts),)


def _stocks(view: View) -> Iterator[tuple[_Stock, NodeSet]]:
    stocks = view.postings(_stock)
    return ((cast(_Stock, stock), stocks.get(stock)) for stock in stocks.values)


def unknown_holders(cluster: Cluster) -> int:
    """Return how many bound pods hold silicon that cannot be told."""
    return sum(stock.unknown_holders * nodes.bit_count() for stock, nodes in _stocks(cluster.view))


def contested_cores(cluster: Cluster) -> int:
    """Return how many cores more than one pod claims."""
    return sum(stock.contested_cores * nodes.bit_count() for stock, nodes in _stocks(cluster.view))


def prepared(cluster: Cluster) -> Iterator[None]:
    """Let the indexes catch up for the questions asked here, a few rows at a time; yields whenever others may run."""

    def ask(view: View) -> None:
        view.postings(_stock)
        _closed(view, count_unknown_only=False)

    return cluster.view.prepared(ask)


def devices(cluster: Cluster, *, count_unknown_only: bool = False) -> Devices:
    """
    Count the devices.

    Args:
        cluster: whose devices.
        count_unknown_only: unknown holders count by number only (`--unknown-allocations=count-only`).
    """
    view, found = cluster.view, Devices()
    closed = _closed(view, count_unknown_only=count_unknown_only)
    open_ = view.live
    for nodes in closed.values():
        open_ = less(open_, nodes)
    nominated = nodes_with_nominations(cluster, PLAIN.priority) & open_
    open_ = less(open_, nominated)
    for stock, nodes in _stocks(view):
        name, whole = stock.instance_type, stock.whole
        found.used[name] += (stock.devices - whole) * nodes.bit_count()
        for reason, among in closed.items():
            found.withheld[name, reason] += whole * (nodes & among).bit_count()
        found.add_open(stock, stock, (nodes & open_).bit_count())
    overlay = WithNominated(PLAIN.priority)
    for node_info in map(view.row, slots_of(nominated)):  # of few nodes
        for stock, still in zip(_stock(node_info), _stock(overlay(node_info)), strict=True):
            found.add_open(stock, still, 1)
    return found


def _closed(view: View, *, count_unknown_only: bool) -> dict[Withheld, NodeSet]:
    """Return the nodes that take no such pod, each under its first reason."""
    standing = {refusal.reason: refusal.nodes for refusal in node_unschedulable.filter_nodes(view, PLAIN, view.live)}
    closed = {
        Withheld.MALFORMED: standing.get(node_unschedulable.UNREADABLE, NO_NODES),
        Withheld.CORDONED: standing.get(node_unschedulable.CORDONED, NO_NODES),
        Withheld.TAINTED: taint_toleration.untolerated(view, PLAIN),
        Withheld.UNHEALTHY: neuron_topology.unhealthy(view),
        Withheld.TOO_MANY_PODS: less(view.live, node_resources_fit.fitting_nodes(view, PLAIN, view.live)),
        Withheld.UNKNOWN_HOLDER: NO_NODES if count_unknown_only else neuron_topology.with_unknown(view),
    }
    told = NO_NODES
    for reason, nodes in closed.items():
        closed[reason] = less(nodes, told)
        told |= nodes
    return closed
