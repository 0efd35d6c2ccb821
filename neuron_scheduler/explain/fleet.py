"""
The fleet at one moment: each machine's cores, their holders, and what is withheld.

Free devices, blocks and the reasons of withheld machines come from `inventory`, so that sums equal the metrics. Rows
never change, so the picture is of one moment, although it is made over several steps.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import attrgetter, itemgetter, or_
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, less, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.explain import inventory
from neuron_scheduler.explain.answers import CoreState, Fleet, Holder, MachinePicture, TypeSummary
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import BETA_ZONE_LABEL, ULTRASERVER_2, ULTRASERVER_4, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.packing import runs

ROWS_A_STEP: Final = 16
_WITHHELD, _UNCLEAR = -2 << 16, -1 << 16  # ranks below that of any number of devices outside of a block
_ULTRASERVER_LABELS: Final = {
    ULTRASERVER_4: 4,
    ULTRASERVER_2: 2,
    "topology.k8s.aws/ultraserver-id": 0,
    "topology.k8s.aws/capacity-block-id": 0,
}
"""
The first one that a node has counts; on Trn3 the reservation's id stands for the UltraServer. With the number of its
machines, 0 if that is not known.
"""


def fleet(cluster: Cluster, *, most: int | None = None) -> Generator[None, None, Fleet]:
    """
    Return the fleet; yields whenever other tasks may run.

    Args:
        cluster: may change in the pauses; the machines are those of the moment when the indexes were ready.
        most: machines that are pictured, if not all; the sums are those of all machines.
    """
    yield from inventory.prepare(cluster)
    rows, types, kinds = cluster.view.rows_in_slots(), _types(cluster), _kinds(cluster.view)
    ranked: list[tuple[int, MachinePicture]] = []
    chosen = yield from _some_of_each(kinds, len(rows) if most is None else most)
    shown = [(row, chosen[slot]) for slot in chosen if (row := rows[slot]) is not None]
    for place, (row, reason) in enumerate(sorted(shown, key=_age)):
        if place % ROWS_A_STEP == 0:
            yield
        ranked.append(_picture_of(row, reason))
    ranked.sort(key=itemgetter(0))
    total = sum(nodes.bit_count() for _, nodes in kinds)
    notes = (f"{len(ranked):,} of {total:,} machines are pictured: some of each kind, then the worst.",)
    return Fleet(tuple(picture for _, picture in ranked), types, notes if len(ranked) < total else ())


def _types(cluster: Cluster) -> tuple[TypeSummary, ...]:
    counted, nodes, withheld = inventory.devices(cluster), Counter[str](), Counter[str]()
    for stock, among in inventory.stocks(cluster.view):
        nodes[stock.instance_type] += among.bit_count()
    for (name, _), count in counted.withheld.items():
        withheld[name] += count
    return tuple(
        TypeSummary(
            name,
            nodes=nodes[name],
            devices=counted.free[name] + counted.used[name] + withheld[name],
            free=counted.free[name],
            used=counted.used[name],
            withheld=withheld[name],
            largest_block=counted.largest_block[name],
        )
        for name in sorted(nodes)
    )


def _age(shown: tuple[NodeInfo, str]) -> tuple[float, str, str]:
    node = shown[0].node
    return node.created, node.name, node.uid


def _kinds(view: View) -> list[tuple[str, NodeSet]]:
    """Return the nodes with equal stocks and one reason why they take no pods, the worst first."""
    kinds, closed = list[tuple[int, str, NodeSet]](), inventory.closed_nodes(view)
    for stock, nodes in inventory.stocks(view):
        open_ = nodes
        for reason, of_reason in closed.items():
            kinds.append((_WITHHELD, reason.value, nodes & of_reason))
            open_ = less(open_, of_reason)
        unclear = stock.unknown_holders or stock.double_booked_cores
        kinds.append((_UNCLEAR if unclear else max(stock.blocks, default=0) - stock.free, "", open_))
    return [(reason, nodes) for _, reason, nodes in sorted(kinds, key=itemgetter(0)) if nodes]


def _some_of_each(kinds: Sequence[tuple[str, NodeSet]], most: int) -> Generator[None, None, dict[Slot, str]]:
    """Return some slots of each kind with its reason, as many of one as of another, then more of the first kinds."""
    chosen, share = dict[Slot, str](), most // max(1, len(kinds)) or 1
    for first, last in ((0, share), (share, most)):
        for reason, nodes in kinds:
            slots = islice(slots_of(nodes), first, min(last, first + most - len(chosen)))
            chosen.update(dict.fromkeys(slots, reason))
            yield
    return chosen


def with_machine(sums: TypeSummary, machine: MachinePicture) -> TypeSummary:
    devices = machine.devices if Unit.DEVICE in machine.units else 0
    return TypeSummary(
        sums.instance_type,
        nodes=sums.nodes + 1,
        devices=sums.devices + devices,
        free=sums.free + machine.free_devices,
        used=sums.used + machine.used_devices,
        withheld=sums.withheld + devices - machine.free_devices - machine.used_devices,
        largest_block=max((sums.largest_block, *machine.free_blocks[:1])),
    )


def _picture_of(node_info: NodeInfo, withheld: str) -> tuple[int, MachinePicture]:
    """Return a machine's rank and its picture: the worst machine has the lowest rank."""
    node, usage = node_info.node, node_info.neuron_usage
    machine = node_info.machine
    if machine is None:
        raise ValueError(f"node {node.name} has no Neuron")
    (stock,) = inventory.stock_of(node_info)
    later = node_info.with_nominated(inventory.PLAIN_POD.priority)
    (left,) = (stock,) if later is node_info else inventory.stock_of(later)
    free, blocks = (0, ()) if withheld else (left.free, left.blocks)
    kept = reduce(or_, (cores for _, cores in _nominations(node_info)), NO_CORES)
    unclear, (ultraserver, size) = usage.unknown_holders > 0, _ultraserver(node)
    picture = MachinePicture(
        node_name=node.name,
        instance_type=stock.instance_type,
        shape=machine.shape.value,
        devices=machine.devices,
        cores_per_device=machine.cores_per_device,
        units=tuple(unit.value for unit in Unit if unit in machine.units),
        cores=_states(machine.core_count, usage.free, usage.double_booked, kept, unclear=unclear),
        holders=_holders(node_info),
        used_devices=stock.devices - stock.whole,
        free_devices=free,
        free_blocks=blocks,
        withheld=withheld,
        set_aside=node_info.set_aside is not None,
        zone=node.labels.get(ZONE_LABEL) or node.labels.get(BETA_ZONE_LABEL, ""),
        ultraserver=ultraserver,
        ultraserver_size=size,
    )
    outside = free - max(blocks, default=0)
    return (_WITHHELD if withheld else _UNCLEAR if unclear or usage.double_booked else -outside), picture


@memoise(maxsize=4096)
def _states(count: int, free: CoreMask, double_booked: CoreMask, kept: CoreMask, *, unclear: bool) -> str:
    unheld = CoreState.UNKNOWN if unclear else CoreState.FREE
    letters = [unheld if int(free) >> core & 1 else CoreState.HELD for core in range(count)]
    for mask, letter in ((kept & free, CoreState.KEPT), (double_booked, CoreState.DOUBLE_BOOKED)):
        for first, length in runs(int(mask)):
            letters[first : first + length] = [letter] * length
    return "".join(letters)


def _nominations(node_info: NodeInfo) -> Iterator[tuple[Pod, CoreMask]]:
    for nomination in node_info.nominations:
        if nomination.cores and nomination.pod.uid not in node_info.pod_infos:
            yield nomination.pod, nomination.cores


def _holders(node_info: NodeInfo) -> tuple[Holder, ...]:
    """Return the pods with Neuron, those with known cores first, in their order."""
    known: list[tuple[tuple[tuple[int, int], ...], Pod, bool]] = []
    unknown: list[Pod] = []
    for pod_info in node_info.pod_infos.values():
        if pod_info.cores is None:
            unknown.append(pod_info.pod)
        elif pod_info.cores:
            known.append((_runs(pod_info.cores), pod_info.pod, False))
    known += [(_runs(cores), pod, True) for pod, cores in _nominations(node_info)]
    known.sort(key=itemgetter(0))
    return (
        *(Holder(pod.namespace, pod.name, cores=cores, kept=kept) for cores, pod, kept in known),
        *(Holder(pod.namespace, pod.name, unknown=True) for pod in sorted(unknown, key=attrgetter("key"))),
    )


def _runs(cores: CoreMask) -> tuple[tuple[int, int], ...]:
    return tuple((first, first + length - 1) for first, length in runs(int(cores)))


def _ultraserver(node: Node) -> tuple[str, int]:
    found = ((domain, size) for key, size in _ULTRASERVER_LABELS.items() if (domain := domain_of(node, key)))
    return next(found, ("", 0))
