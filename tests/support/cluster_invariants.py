"""What must hold in every cluster: indexes equal their definitions, and a rebuilt cluster is equal."""

from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet
from typing import Any

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.labels import label
from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, from_slots
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.model.node import ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, NEURON_DEVICE, NEURON_NAMES, PODS
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.plugins import (
    neuron_topology,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    silicon_balance,
    taint_toleration,
)
from tests.support.builders import request

REQUESTS = (request(1), request(2), request(4), request(cores=1), request(cores=3), request((1, 2)))

OF_NODES: tuple[Callable[[Node], Values], ...] = (
    label(ZONE_LABEL),
    node_unschedulable._state,
    taint_toleration._forbidding_taints,
    taint_toleration._discouraging_taints,
    neuron_topology._machine,
    neuron_topology._neuron_fault,
    silicon_balance.balance_size_of,
)
NUMBERS_OF_NODES = (node_resources_fit.allocatable_of(CPU), node_resources_fit.allocatable_of(NEURON_DEVICE))
OF_ROWS: tuple[Callable[[NodeInfo], Values], ...] = (
    node_ports._taken_ports,
    neuron_topology._has_unknown,
    *(neuron_topology.block_level(request) for request in REQUESTS),
)
NUMBERS_OF_ROWS: tuple[Callable[[NodeInfo], int], ...] = (
    *(node_resources_fit.free_of(name) for name in (CPU, PODS, NEURON_DEVICE)),
    *(of(name) for of in (neuron_topology.free_units_of, neuron_topology.largest_block_of) for name in NEURON_NAMES),
    silicon_balance.SURPLUS_OF_CPU,
    silicon_balance.SURPLUS_OF_MEMORY,
    node_resources_fit._emptiness,
)
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
NOT_WEB = LabelSelector((Requirement("app", Operator.NOT_IN, ("web", "db")),))
MATCHING = tuple(
    PodQuery(selectors, namespaces, terminating)
    for selectors, namespaces in (
        ((WEB,), frozenset({"default"})),
        ((LabelSelector(),), frozenset({"other"})),
        ((NOT_WEB,), None),
        ((WEB, LabelSelector((Requirement("rank", Operator.EXISTS),))), frozenset({"default", "other"})),
        ((LabelSelector(),), frozenset()),
    )
    for terminating in (False, True)
)
DOMAINS = (ZONE_LABEL, "rack")
DEFINITIONS = (
    len(OF_NODES)
    + len(NUMBERS_OF_NODES)
    + len(OF_ROWS)
    + len(NUMBERS_OF_ROWS)
    + len(MATCHING)
    + len(MATCHING) * len(DOMAINS)
)


def check_indexes(cluster: Cluster, which: Sequence[int]) -> None:
    """Compare some of the plugins' indexes with their definitions, row by row."""
    view = cluster.view
    rows = {view.slot(node_info.node.name) or Slot(0): node_info for node_info in view.rows()}
    size = view.live.bit_length()
    assert view.live == from_slots(rows, size)
    for i, (definition, kind) in enumerate(_definitions()):
        if i not in which:
            continue
        of_node = kind.startswith("node")
        values = {slot: definition(row.node if of_node else row) for slot, row in rows.items()}
        index = getattr(view, kind)(definition)
        if kind.endswith("column"):
            assert {slot: index.value(slot) for slot in rows} == values
            assert index.total(NodeSet((1 << 64) - 1)) == sum(values.values())
        else:
            posted = {value for have in values.values() for value in have}
            want = {
                value: from_slots((slot for slot, have in values.items() if value in have), size) for value in posted
            }
            assert {value: index.get(value) for value in index.values} == want
            assert index.keyed == from_slots((slot for slot, have in values.items() if have), size)
    _check_counts(cluster, rows, {i - len(tuple(_definitions())) for i in which})


def _check_counts(cluster: Cluster, rows: dict[Slot, NodeInfo], which: AbstractSet[int]) -> None:
    """Compare the counts of pods, on nodes and in domains, with counting them."""
    for i, (matching, key) in enumerate((m, k) for m in MATCHING for k in (None, *DOMAINS)):
        if i not in which:
            continue
        on_node = {slot: sum(matching.matches(t.pod) for t in row.pod_infos.values()) for slot, row in rows.items()}
        if key is None:
            column, want = cluster.view.counts(matching), on_node
        else:
            column = cluster.view.totals(matching, key)
            domain = {slot: row.node.labels.get(key) for slot, row in rows.items()}
            want = {
                slot: sum(on_node[other] for other in rows if domain[other] == domain[slot]) if domain[slot] else 0
                for slot in rows
            }
        assert {slot: column.value(slot) for slot in rows} == want, (matching, key)
        assert column.total(NodeSet((1 << 64) - 1)) == sum(want.values())


def _definitions() -> Iterable[tuple[Callable[[Any], Any], str]]:
    yield from ((definition, "node_postings") for definition in OF_NODES)
    yield from ((definition, "node_column") for definition in NUMBERS_OF_NODES)
    yield from ((definition, "postings") for definition in OF_ROWS)
    yield from ((definition, "column") for definition in NUMBERS_OF_ROWS)


def check_equal_to_rebuilt(
    cluster: Cluster, nodes: dict[str, Node], pods: dict[str, Pod], unreadable: set[str]
) -> None:
    """Compare a cluster with new ones that get the same nodes and pods, nodes first and pods first."""
    for nodes_first in (True, False):
        rebuilt = Cluster()
        if nodes_first:
            _put_nodes(rebuilt, nodes.values())
        for uid, bound in sorted(pods.items(), reverse=nodes_first):
            if uid in unreadable:
                rebuilt.put_unreadable_pod(bound)
            else:
                rebuilt.put_pod(bound)
        if not nodes_first:
            _put_nodes(rebuilt, reversed(nodes.values()))
        live, rebuilt_rows = (sorted(each.view.rows(), key=lambda row: row.node.name) for each in (cluster, rebuilt))
        assert [row.node for row in live] == [nodes[name] for name in sorted(nodes)]
        assert live == rebuilt_rows
        assert [holdings(node_info) for node_info in live] == [holdings(node_info) for node_info in rebuilt_rows]
        assert cluster.view.demand.weights == rebuilt.view.demand.weights


def _put_nodes(cluster: Cluster, nodes: Iterable[Node]) -> None:
    for node in nodes:
        cluster.put_node(node)


def holdings(node_info: NodeInfo) -> dict[str, tuple[Pod, CoreMask | None]]:
    """Return the fields of each pod of a row, and its cores."""
    return {uid: (pod_info.pod, pod_info.cores) for uid, pod_info in node_info.pod_infos.items()}
