"""
The devices of all nodes, counted with indexes for the metrics and the fleet, so that a scrape does not loop over nodes.

Free is what `neuron_topology` counts as free, as in the text of a refusal (`scheduling.cycle.neuron_shortage`), for a
pod that asks for nothing but devices: it tolerates the taints that are usual on Neuron nodes, and no others. Refuses to
write metrics: that is for `telemetry`.
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

PLAIN_POD: Final = Pod(
    uid="", namespace="", name="", tolerations=tuple(Toleration(key=name, exists=True) for name in NEURON_NAMES)
)
"""It tolerates what the API server's ExtendedResourceToleration adds to a pod that asks for Neuron."""


class Withheld(enum.StrEnum):
    """Why unused devices are not free: values of a label. If there are several reasons, the first one counts."""

    MALFORMED = "malformed"
    """The node's object could not be decoded in full."""
    CORDONED = "cordoned"
    TAINTED = "tainted"
    """NoSchedule or NoExecute, and not usual on Neuron nodes."""
    UNHEALTHY = "unhealthy"
    """The node's condition NeuronHealth reports a problem."""
    TOO_MANY_PODS = "too_many_pods"
    UNKNOWN_HOLDER = "unknown_holder"
    """A pod whose ids are unknown may hold them."""
    NOMINATED = "promised"
    """The node is nominated for a pod, for which others were evicted."""
    NOT_ALLOCATABLE = "not_allocatable"
    """Kubelet would hand out fewer devices than there are."""


class Stock(NamedTuple):
    """
    What one node has, as far as it is counted here; many nodes have the same.

    Attributes:
        devices: all of them.
        whole: those of which no pod holds a core.
        free, largest_block: devices that a pod could get if the node takes it.
    """

    instance_type: str
    devices: int
    whole: int
    free: int
    largest_block: int
    unknown_holders: int
    double_booked_cores: int


@attrs.frozen
class Devices:
    """
    The devices of all nodes, by instance type; free, used and withheld ones add up to what the nodes have.

    Attributes:
        free: pods could get them now, perhaps in several blocks.
        used: pods hold some or all of their cores.
        withheld: no pod holds them, and no pod gets them; by instance type and `Withheld`.
        largest_block: devices in the largest free block of one node.
    """

    free: Counter[str] = attrs.field(factory=Counter)
    used: Counter[str] = attrs.field(factory=Counter)
    withheld: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    largest_block: Counter[str] = attrs.field(factory=Counter)

    def add_open(self, stock: Stock, remaining: Stock, nodes: int) -> None:
        """Add nodes that take pods; `remaining` is what is left of their stock with the nominated pods on them."""
        name = stock.instance_type
        self.free[name] += remaining.free * nodes
        self.withheld[name, Withheld.NOMINATED] += (stock.free - remaining.free) * nodes
        self.withheld[name, Withheld.NOT_ALLOCATABLE] += (stock.whole - stock.free) * nodes
        self.largest_block[name] = max(self.largest_block[name], remaining.largest_block if nodes else 0)


def stock_of(node_info: NodeInfo) -> tuple[Stock, ...]:
    """Index definition: the nodes by what they have. A single index, because many rows change between two scrapes."""
    machine, neuron_usage = node_info.machine, node_info.neuron_usage
    if machine is None:
        return ()
    devices = whole = free = block = 0
    if Unit.DEVICE in machine.units:
        name = NEURON_DEVICE if node_info.node.allocatable.get(NEURON_DEVICE) else NEURON_DEVICE_ALIAS
        devices, whole = machine.devices, whole_free_devices(machine, neuron_usage.free)
        free, block = neuron_topology.free_units_of(name)(node_info), neuron_topology.largest_block_of(name)(node_info)
    unclear = neuron_usage.unknown_holders, neuron_usage.double_booked.bit_count()
    return (Stock(machine.instance_type or "unknown", devices, whole, free, block, *unclear),)


def _stocks(view: View) -> Iterator[tuple[Stock, NodeSet]]:
    stocks = view.postings(stock_of)
    return ((cast(Stock, stock), stocks.get(stock)) for stock in stocks.values)


def unknown_holders(cluster: Cluster) -> int:
    """Return how many bound pods use devices whose ids are unknown."""
    return sum(stock.unknown_holders * nodes.bit_count() for stock, nodes in _stocks(cluster.view))


def double_booked_cores(cluster: Cluster) -> int:
    """Return how many cores more than one pod claims."""
    return sum(stock.double_booked_cores * nodes.bit_count() for stock, nodes in _stocks(cluster.view))


def prepared(cluster: Cluster) -> Iterator[None]:
    """Bring the indexes that are used here up to date, a few rows at a time; yields when other tasks may run."""

    def ask(view: View) -> None:
        view.postings(stock_of)
        closed_nodes(view, count_unknown_only=False)

    return cluster.view.prepared(ask)


def devices(cluster: Cluster, *, count_unknown_only: bool = False) -> Devices:
    """
    Count the devices.

    Args:
        cluster: whose devices.
        count_unknown_only: pods with unknown ids count by number only (`--unknown-allocations=count-only`).
    """
    view, counted = cluster.view, Devices()
    closed = closed_nodes(view, count_unknown_only=count_unknown_only)
    open_ = view.live
    for nodes in closed.values():
        open_ = less(open_, nodes)
    nominated = nodes_with_nominations(cluster, PLAIN_POD.priority) & open_
    open_ = less(open_, nominated)
    for stock, nodes in _stocks(view):
        name, whole = stock.instance_type, stock.whole
        counted.used[name] += (stock.devices - whole) * nodes.bit_count()
        for reason, nodes_of_reason in closed.items():
            counted.withheld[name, reason] += whole * (nodes & nodes_of_reason).bit_count()
        counted.add_open(stock, stock, (nodes & open_).bit_count())
    overlay = WithNominated(PLAIN_POD.priority)
    for node_info in map(view.row, slots_of(nominated)):  # few nodes
        for stock, remaining in zip(stock_of(node_info), stock_of(overlay(node_info)), strict=True):
            counted.add_open(stock, remaining, 1)
    return counted


def closed_nodes(view: View, *, count_unknown_only: bool) -> dict[Withheld, NodeSet]:
    """Return the nodes that take no such pod, each under its first reason."""
    refused = {refusal.reason: refusal.nodes for refusal in node_unschedulable.filter_nodes(view, PLAIN_POD, view.live)}
    closed = {
        Withheld.MALFORMED: refused.get(node_unschedulable.UNREADABLE, NO_NODES),
        Withheld.CORDONED: refused.get(node_unschedulable.CORDONED, NO_NODES),
        Withheld.TAINTED: taint_toleration.untolerated(view, PLAIN_POD),
        Withheld.UNHEALTHY: neuron_topology.unhealthy(view),
        Withheld.TOO_MANY_PODS: less(view.live, node_resources_fit.fitting_nodes(view, PLAIN_POD, view.live)),
        Withheld.UNKNOWN_HOLDER: NO_NODES if count_unknown_only else neuron_topology.with_unknown(view),
    }
    earlier = NO_NODES
    for reason, nodes in closed.items():
        closed[reason] = less(nodes, earlier)
        earlier |= nodes
    return closed
