"""
The fleet at one moment: each machine's cores, their holders, and what is withheld.

Free devices, blocks and the reasons of withheld machines come from `inventory`, so that sums equal the metrics. Rows
never change, so the picture is of one moment, although it is made over several steps.
"""

from collections.abc import Generator, Iterator
from operator import itemgetter
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain import inventory
from neuron_scheduler.explain.answers import CoreState, Fleet, Holder, MachinePicture, TypeSummary
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import BETA_ZONE_LABEL, ULTRASERVER_2, ULTRASERVER_4, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.catalog import Machine
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


def fleet(cluster: Cluster) -> Generator[None, None, Fleet]:
    """
    Return the fleet; yields whenever other tasks may run.

    The cluster may change between two steps; the machines stay those of the moment when the indexes were ready.
    """
    yield from inventory.prepare(cluster)
    ranked: list[tuple[int, MachinePicture]] = []
    types: dict[str, TypeSummary] = {}
    for place, (node_info, machine, reason) in enumerate(_moment(cluster)):
        if place % ROWS_A_STEP == 0:
            yield
        rank, picture = _picture_of(node_info, machine, reason)
        ranked.append((rank, picture))
        name = picture.instance_type
        types[name] = with_machine(types.get(name, TypeSummary(name)), picture)
    ranked.sort(key=itemgetter(0))
    return Fleet(tuple(picture for _, picture in ranked), tuple(types[name] for name in sorted(types)))


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


def _moment(cluster: Cluster) -> list[tuple[NodeInfo, Machine, str]]:
    """Return the rows with Neuron as they are now, each with the reason why its node takes no pods; in one step."""
    view = cluster.view
    reasons: dict[str, str] = {}
    for reason, nodes in inventory.closed_nodes(view).items():
        for slot in slots_of(nodes):
            reasons[view.row(slot).node.name] = reason.value
    return [(row, row.machine, reasons.get(row.node.name, "")) for row in view.rows() if row.machine is not None]


def _picture_of(node_info: NodeInfo, machine: Machine, withheld: str) -> tuple[int, MachinePicture]:
    """Return a machine's rank and its picture: the worst machine has the lowest rank."""
    node, usage = node_info.node, node_info.neuron_usage
    (stock,) = inventory.stock_of(node_info)
    (left,) = inventory.stock_of(node_info.with_nominated(inventory.PLAIN_POD.priority))
    free, blocks = (0, ()) if withheld else (left.free, left.blocks)
    unclear, (ultraserver, size) = usage.unknown_holders > 0, _ultraserver(node)
    picture = MachinePicture(
        node_name=node.name,
        instance_type=stock.instance_type,
        shape=machine.shape.value,
        devices=machine.devices,
        cores_per_device=machine.cores_per_device,
        units=tuple(unit.value for unit in Unit if unit in machine.units),
        cores=_states(machine.core_count, usage.free, usage.double_booked, _kept_cores(node_info), unclear=unclear),
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


def _kept_cores(node_info: NodeInfo) -> CoreMask:
    kept = NO_CORES
    for _, cores in _nominations(node_info):
        kept |= cores
    return kept


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
        *(Holder(pod.namespace, pod.name, unknown=True) for pod in unknown),
    )


def _runs(cores: CoreMask) -> tuple[tuple[int, int], ...]:
    return tuple((first, first + length - 1) for first, length in runs(int(cores)))


def _ultraserver(node: Node) -> tuple[str, int]:
    found = ((domain, size) for key, size in _ULTRASERVER_LABELS.items() if (domain := domain_of(node, key)))
    return next(found, ("", 0))
