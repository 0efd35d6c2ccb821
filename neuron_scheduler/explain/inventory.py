"""
The devices of all nodes, counted with indexes for the metrics and the fleet, so that a scrape does not loop over nodes.

Free is what `neuron_topology` counts as free, as in the text of a refusal (`scheduling.cycle.neuron_shortage`), for a
pod that asks for nothing but devices: it tolerates the taints that are usual on Neuron nodes, and no others.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice, takewhile
from typing import Final, NamedTuple, cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NeuronUsage, NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES, PODS, device_name_on
from neuron_scheduler.model.selectors import Toleration
from neuron_scheduler.neuron.capability import how_many
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.topology import free_blocks, served_counts, whole_free_devices
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


MOST_SIZES: Final = 16
"""Sizes up to this one, and the whole machine, are counted: no known machine has more devices."""


class Withheld(enum.StrEnum):
    """Why unused devices are not free: values of a label. If there are several reasons, the first one counts."""

    MALFORMED = "malformed"
    """The node's object could not be decoded in full."""
    CORDONED = "cordoned"
    TAINTED = "tainted"
    """NoSchedule or NoExecute, and not usual on Neuron nodes."""
    UNHEALTHY = "unhealthy"
    """A condition of the node reports a problem with its Neuron devices."""
    TOO_MANY_PODS = "too_many_pods"
    UNKNOWN_HOLDER = "unknown_holder"
    """A pod whose ids are unknown may hold them."""
    NOMINATED = "promised"
    """The node is nominated for a pod, for which others were evicted."""
    TURN = "turn"
    """The node is kept for a pod that has a turn, as it comes free."""
    NOT_ALLOCATABLE = "not_allocatable"
    """Kubelet would hand out fewer devices than there are."""


class Stock(NamedTuple):
    """
    What one node has, as far as it is counted here; many nodes have the same.

    Attributes:
        devices: all of them.
        whole: those of which no pod holds a core.
        free, largest_block: devices that a pod could get if the node takes it.
        blocks: sizes of the free blocks that these devices form, the largest first.
        fits: for each legal size in devices, how many pods of that size the node could take, one after the other.
        fits_beside_unknown: how many pods with one device it could take beside its unknown holders.
        set_aside: free devices to be used last, because the kubelet has rejected pods.
    """

    instance_type: str
    devices: int = 0
    whole: int = 0
    free: int = 0
    largest_block: int = 0
    blocks: tuple[int, ...] = ()
    fits: tuple[tuple[int, int], ...] = ()
    fits_beside_unknown: int = 0
    set_aside: int = 0
    unknown_holders: int = 0
    double_booked_cores: int = 0


@attrs.frozen
class Devices:
    """
    The devices of all nodes, by instance type; free, used and withheld ones add up to what the nodes have.

    Attributes:
        free: pods could get them now, perhaps in several blocks.
        used: pods hold some or all of their cores.
        withheld: no pod holds them, and no pod gets them; by instance type and `Withheld`.
        largest_block: devices in the largest free block of one node.
        blocks: how many free blocks there are, by instance type and size; all sizes together are the free devices.
        fits: how many more pods with one container and no other needs fit now, by instance type and size. The sizes
            exclude each other: each pod takes space from all of them.
        stranded: free devices in blocks too small for any pod that waits; 0 where no pod waits for a legal size.
        set_aside: free devices that are used last, because the kubelets there have rejected pods.
    """

    free: Counter[str] = attrs.field(factory=Counter)
    used: Counter[str] = attrs.field(factory=Counter)
    withheld: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    largest_block: Counter[str] = attrs.field(factory=Counter)
    blocks: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    fits: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    stranded: Counter[str] = attrs.field(factory=Counter)
    set_aside: Counter[str] = attrs.field(factory=Counter)

    def add(self, stock: Stock, nodes: int) -> None:
        """Add what nodes have whether they take pods or not, and zeros for what is known of their type."""
        name = stock.instance_type
        self.used[name] += (stock.devices - stock.whole) * nodes
        for size, _ in stock.fits:
            self.fits[name, str(size)] += 0
            self.blocks[name, str(size)] += 0

    def add_open(
        self, stock: Stock, remaining: Stock, nodes: int, waiting: Collection[int], kept: Withheld = Withheld.NOMINATED
    ) -> None:
        """Add nodes that take pods; `remaining` is what is left of their stock with the nominated pods on them."""
        name, legal = stock.instance_type, [size for size, _ in stock.fits]
        self.free[name] += remaining.free * nodes
        self.withheld[name, kept] += (stock.free - remaining.free) * nodes
        self.withheld[name, Withheld.NOT_ALLOCATABLE] += (stock.whole - stock.free) * nodes
        self.largest_block[name] = max(self.largest_block[name], remaining.largest_block if nodes else 0)
        self.set_aside[name] += remaining.set_aside * nodes
        wanted = min((size for size in waiting if size in legal), default=1)
        self.stranded[name] += sum(block % wanted for block in remaining.blocks) * nodes
        for block in remaining.blocks:
            self.blocks[name, str(block)] += nodes
        for size, count in remaining.fits:
            self.fits[name, str(size)] += count * nodes


def stock_of(node_info: NodeInfo) -> tuple[Stock, ...]:
    """An index definition; a single one for all figures, because many rows change between two scrapes."""
    machine = node_info.machine
    if machine is None or not machine.has_neuron:
        return ()
    name = device_name_on(node_info.node.allocatable)
    # No figure depends on how many more there are than devices, so there are few different stocks.
    most, pods = min(node_info.free(name), machine.devices), min(node_info.free(PODS), machine.devices)
    return _stock(machine, node_info.neuron_usage, most, pods, is_set_aside=node_info.set_aside is not None)


@memoise(maxsize=4096)
def _stock(machine: Machine, usage: NeuronUsage, most: int, pods: int, *, is_set_aside: bool) -> tuple[Stock, ...]:
    """Return what is there, worked out once for all nodes with equal figures."""
    cores, whole = usage.free, whole_free_devices(machine, usage.free)
    free = min(whole, most)
    stock = Stock(
        machine.instance_type or "unknown",
        unknown_holders=usage.unknown_holders,
        double_booked_cores=usage.double_booked.bit_count(),
    )
    if Unit.DEVICE not in machine.units:
        return (stock,)
    of_devices = stock._replace(
        devices=machine.devices,
        whole=whole,
        free=free,
        largest_block=neuron_topology.largest_block(machine, cores, Unit.DEVICE, most),
        blocks=free_blocks(machine, cores, free),
        fits=tuple([(size, min(how_many(machine, cores, each), most // size, pods)) for size, each in _sizes(machine)]),
        fits_beside_unknown=max(0, min(whole - usage.unknown_devices, most, pods)) if usage.unknown_holders else 0,
        set_aside=free if is_set_aside else 0,
    )
    return (of_devices,)


@memoise(maxsize=256)
def _sizes(machine: Machine) -> tuple[tuple[int, NeuronRequest], ...]:
    """Return the sizes that are counted for a machine, each with the request of one container for it."""
    legal = served_counts(machine, Unit.DEVICE)
    return tuple(
        (size, NeuronRequest(Unit.DEVICE, (size,), size)) for size in legal if size <= MOST_SIZES or size == legal[-1]
    )


def stocks(view: View) -> Iterator[tuple[Stock, NodeSet]]:
    """Yield the nodes with Neuron by what they have."""
    posted = view.postings(stock_of)
    return ((cast(Stock, stock), posted.get(stock)) for stock in posted.values)


def unknown_holders(cluster: Cluster) -> int:
    return sum(stock.unknown_holders * nodes.bit_count() for stock, nodes in stocks(cluster.view))


def unknown_holders_by_node(cluster: Cluster, most: int = 20) -> tuple[dict[str, int], int]:
    """Return how many unknown holders the nodes with the most of them have, by name, and how many all others have."""
    view, by_node = cluster.view, dict[str, int]()
    worst = sorted(stocks(view), key=lambda entry: -entry[0].unknown_holders)
    for stock, nodes in takewhile(lambda entry: entry[0].unknown_holders, worst):
        for slot in islice(slots_of(nodes), most - len(by_node)):
            by_node[view.row(slot).node.name] = stock.unknown_holders
    return by_node, unknown_holders(cluster) - sum(by_node.values())


def double_booked_cores(cluster: Cluster) -> int:
    return sum(stock.double_booked_cores * nodes.bit_count() for stock, nodes in stocks(cluster.view))


def prepare(cluster: Cluster) -> Iterator[None]:
    """Bring the indexes that are used here up to date, a few rows at a time; yields when other tasks may run."""

    def ask(view: View) -> None:
        view.postings(stock_of)
        closed_nodes(view)

    return cluster.view.prepare(ask)


def devices(cluster: Cluster, *, waiting: Collection[int] = ()) -> Devices:
    """Count the devices; `waiting` has the block sizes in devices that pods wait for, for the stranded ones."""
    view, counted = cluster.view, Devices()
    closed = closed_nodes(view)
    open_ = view.live
    for nodes in closed.values():
        open_ = less(open_, nodes)
    nominated = nodes_with_nominations(cluster, PLAIN_POD.priority) & open_
    open_ = less(open_, nominated)
    for stock, nodes in stocks(view):
        name = stock.instance_type
        counted.add(stock, nodes.bit_count())
        for reason, nodes_of_reason in closed.items():
            counted.withheld[name, reason] += stock.whole * (nodes & nodes_of_reason).bit_count()
        counted.add_open(stock, stock, (nodes & open_).bit_count(), waiting)
        if stock.fits_beside_unknown:
            beside = (nodes & closed[Withheld.UNKNOWN_HOLDER]).bit_count()
            counted.fits[name, "1"] += stock.fits_beside_unknown * beside
    overlay = WithNominated(PLAIN_POD.priority)
    for node_info in map(view.row, slots_of(nominated)):  # few nodes
        for stock, remaining in zip(stock_of(node_info), stock_of(overlay(node_info)), strict=True):
            has_turn = any(nomination.awaited for nomination in node_info.nominations)
            counted.add_open(stock, remaining, 1, waiting, Withheld.TURN if has_turn else Withheld.NOMINATED)
    return counted


def closed_nodes(view: View) -> dict[Withheld, NodeSet]:
    """Return the nodes that take no such pod, each under its first reason."""
    refused = {refusal.reason: refusal.nodes for refusal in node_unschedulable.filter_nodes(view, PLAIN_POD, view.live)}
    closed = {
        Withheld.MALFORMED: refused.get(node_unschedulable.UNREADABLE, NO_NODES),
        Withheld.CORDONED: refused.get(node_unschedulable.CORDONED, NO_NODES),
        Withheld.TAINTED: taint_toleration.untolerated_nodes(view, PLAIN_POD),
        Withheld.UNHEALTHY: neuron_topology.unhealthy_nodes(view),
        Withheld.TOO_MANY_PODS: less(view.live, node_resources_fit.fitting_nodes(view, PLAIN_POD, view.live)),
        Withheld.UNKNOWN_HOLDER: neuron_topology.nodes_with_unknown(view),
    }
    earlier = NO_NODES
    for reason, nodes in closed.items():
        closed[reason] = less(nodes, earlier)
        earlier |= nodes
    return closed
