"""The cluster in memory: nodes, pods, assumptions and queries."""

from contextlib import suppress
from random import Random
from unittest import mock

import pytest

from neuron_scheduler.cluster.cluster import CHANGED, Cluster
from neuron_scheduler.cluster.index.nodeset import Slot, from_slots
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, on_node, without_pod
from neuron_scheduler.cluster.tables import nodes
from neuron_scheduler.model.annotations import NEURON_ALLOC_TIME, NEURON_ALLOCATED
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.support.builders import node, pod

ALL = CoreMask(0xFFFFFFFF)  # 32 cores of a trn1.32xlarge


def cluster_of(*nodes: Node, pods: tuple[Pod, ...] = ()) -> Cluster:
    """Return a cluster of nodes and bound pods."""
    cluster = Cluster()
    for new in nodes:
        cluster.put_node(new)
    for bound in pods:
        cluster.put_pod(bound)
    return cluster


def trn1(name: str = "n", **keywords: object) -> Node:
    return node(name, "trn1.32xlarge", **keywords)  # type: ignore[arg-type]  # passed on as they are


def order(cluster: Cluster) -> list[str]:
    """Return the nodes' names by age, and check the order of slots and the oldest node."""
    names = [node_info.node.name for node_info in cluster.view.rows()]
    slots = [slot for slot in map(cluster.view.slot, names) if slot is not None]
    assert list(cluster.view.oldest_first(cluster.view.live)) == slots
    for some in (cluster.view.live, from_slots(slots[::2], cluster.view.live.bit_length())):
        oldest_first = map(cluster.view.row, cluster.view.oldest_first(some))
        with mock.patch("neuron_scheduler.cluster.tables.nodes._ROWS_AT_ONCE", 3):
            assert list(cluster.view.rows_by_age(some)) == list(oldest_first)
    size = cluster.view.live.bit_length()
    for i in range(len(slots)):
        assert cluster.view.oldest(from_slots(slots[i:], size)) == slots[i]
    assert cluster.view.live == from_slots(slots, size)
    return names


def free(cluster: Cluster, name: str = "n") -> CoreMask:
    """Return a node's free cores."""
    node_info = cluster.node(name)
    assert node_info is not None
    return node_info.free_cores


# Order


def test_the_oldest_node_comes_first_however_they_arrive() -> None:
    """Slots follow creationTimestamp, then name, then uid, so that all replicas break ties alike."""
    nodes = [node("b", created=2), node("c", created=1), node("a", created=2), node("d", created=3)]
    for arrival in (nodes, nodes[::-1], nodes[2:] + nodes[:2]):
        assert order(cluster_of(*arrival)) == ["c", "a", "b", "d"]


def test_new_nodes_in_order_keep_the_numbering() -> None:
    """A younger node takes the next slot, and the indexes are kept."""
    cluster = cluster_of(node("a", created=1))
    before = cluster.view.column(_cpu)
    cluster.put_node(node("b", created=2))
    assert cluster.view.column(_cpu) is before
    assert order(cluster) == ["a", "b"]


def test_nodes_launched_together_keep_the_numbering_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are created in the same second; all slots are renumbered, which takes time, only after very many of them."""
    monkeypatch.setattr(nodes, "_MOST_LATECOMERS", 2)
    cluster = cluster_of(node("old", created=1))
    before = cluster.view.column(_cpu)
    for name in "dcb":
        cluster.put_node(node(name, created=2))
    assert order(cluster) == ["old", "b", "c", "d"]
    cluster.remove_node("b")
    cluster.put_node(node("a", created=2))
    assert order(cluster) == order(cluster.fork()) == ["old", "a", "c", "d"]
    assert cluster.view.column(_cpu) is before
    cluster.put_node(node("b", created=2))
    assert order(cluster) == ["old", "a", "b", "c", "d"]
    assert cluster.view.column(_cpu) is not before


@pytest.mark.parametrize("old", [0, 3])
def test_nodes_launched_by_the_hundred_keep_the_indexes(monkeypatch: pytest.MonkeyPatch, old: int) -> None:
    """The last nodes get other slots in their order now and then; older ones that came late stay as they are."""
    monkeypatch.setattr(nodes, "_ORDERED_EVERY", 8)
    monkeypatch.setattr(nodes, "_LAST", 64)
    dice, second = Random(old), 30
    launched = [node(f"n{n:03}", cpu=n + 1, created=1 + n // second) for n in range(600)]
    cluster = cluster_of(node("first", created=0.5))
    before = cluster.view.column(_cpu)
    for start in range(0, len(launched), second):
        for new in dice.sample(launched[start : start + second], second):
            cluster.put_node(new)
            cluster.put_pod(pod(f"on-{new.name}", cpu=1, on=new.name))
        if start < old * second:
            cluster.put_node(node(f"old-{start}", created=start / 1000))
        cluster.remove_node(launched[start].name)
        assert cluster.view.column(_cpu) is before
    left = [each.name for at, each in enumerate(launched) if at % second]
    assert order(cluster) == [*(f"old-{n * second}" for n in range(old)), "first", *left]
    assert len(cluster._table._latecomers) <= old + 16
    for each in launched[1::second]:
        slot = cluster.view.slot(each.name)
        assert slot is not None
        assert (before.value(slot), cluster.view.row(slot).node) == (each.allocatable[CPU] - 1, each)


def test_a_node_created_again_is_the_youngest() -> None:
    """Another uid under the same name is another node; the pods of the old one are kept until they are removed."""
    cluster = cluster_of(trn1("a", created=1), node("b", created=2), pods=(pod("p", devices=4, ids=range(4), on="a"),))
    cluster.put_node(trn1("a", created=3, uid="second"))
    assert order(cluster) == ["b", "a"]
    assert free(cluster, "a") == ALL & ~CoreMask(0xFF)


@pytest.mark.parametrize("remove", [True, False], ids=["deleted and created", "replaced by a relist"])
def test_slots_do_not_grow_for_ever(remove: bool) -> None:
    """Nodes are added and removed for years; after too many holes the slots are renumbered."""
    cluster = cluster_of(node("stays", created=0))
    for generation in range(1, 1000):
        if remove:
            cluster.remove_node("n")
        cluster.put_node(node("n", uid=str(generation), created=generation))
        assert order(cluster) == ["stays", "n"]
        assert len(cluster._table.slots) < 100


def test_rows_for_questions_leave_no_holes() -> None:
    """A thousand questions about one more node use one slot; nodes that join later are in the order of their age."""
    cluster = cluster_of(node("a", created=1))
    for _ in range(1000):
        with cluster.row_added(on_node(node("fresh", created=float("inf")))) as slot:
            assert order(cluster) == ["a", "fresh"]
        assert len(cluster._table.slots) <= slot + 1 == 2
    cluster.put_node(node("b", created=2))
    assert order(cluster) == ["a", "b"]


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_row_for_a_question_is_new_and_the_youngest(name: str) -> None:
    """Neither an existing node nor one that would be older than another can be added for a question."""
    cluster = cluster_of(node("a", created=1))
    with pytest.raises(ValueError, match="cannot add"), cluster.row_added(on_node(node(name, created=0))):
        pass
    assert order(cluster) == ["a"]


def _cpu(node_info: NodeInfo) -> int:
    return node_info.free(CPU)


def _name(node_: Node) -> Values:
    return (node_.name,)


# Pods


def test_the_first_allocation_read_is_kept() -> None:
    """The pod holds the ids that the kubelet handed out at its start, whatever its annotations say later."""
    cluster = cluster_of(trn1(), pods=(pod("p", devices=1, ids=(3,), on="n"),))
    for later in (pod("p", devices=1, ids=(5,), on="n"), pod("p", devices=1, on="n")):
        pod_info = cluster.put_pod(later)
        assert (pod_info.cores, pod_info.problem) == (CoreMask(0xC0), CHANGED)
        assert free(cluster) == ALL & ~CoreMask(0xC0)
    cluster.put_node(trn1(cores_per_device=4))  # read anew, and still the first
    assert free(cluster) == CoreMask((1 << 64) - 1 & ~0xF000)
    back = cluster.put_pod(pod("p", devices=1, ids=(3,), on="n"))
    assert (back.cores, back.problem) == (CoreMask(0xF000), "")


def test_an_allocation_that_appears_later_is_taken() -> None:
    """An unknown holder becomes known as soon as its ids can be read."""
    cluster = cluster_of(trn1(), pods=(pod("p", devices=1, on="n"),))
    assert cluster.put_pod(pod("p", devices=1, ids=(5,), on="n")).cores == 0xC00
    node_info = cluster.node("n")
    assert node_info is not None
    assert (node_info.neuron_usage.unknown_devices, node_info.free_cores) == (0, ALL & ~CoreMask(0xC00))


# Assumptions


def test_a_confirmed_pod_tells_when_its_ids_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds is not read again when its Binding is confirmed, nor when the plugin has handed out the ids."""
    cluster = cluster_of(trn1())
    cluster.assume(pod("p", devices=1, ids=(0,), on="n"), CoreMask(0b11))
    monkeypatch.setattr("neuron_scheduler.cluster.cluster.pod_info_of", lambda *_: 1 / 0)
    for allocated in ("false", "true"):
        cluster.put_pod(
            pod("p", devices=1, ids=(0,), on="n", allocation={NEURON_ALLOC_TIME: "7", NEURON_ALLOCATED: allocated})
        )
    node_info = cluster.node("n")
    assert node_info is not None
    assert node_info.last_alloc_time == 7
    assert cluster.assumed_count == 0


def test_no_core_is_given_out_twice() -> None:
    """Assuming a held core, a placed pod, or an unknown node raises ValueError."""
    cluster = cluster_of(trn1(), pods=(pod("p", devices=1, ids=(0,), on="n"),))
    before = list(cluster.view.rows())
    for placed, cores in (
        (pod("q", cores=1, ids=(1,), on="n"), 0b10),
        (pod("p", devices=1, ids=(5,), on="n"), 0b11 << 10),
        (pod("q", devices=1, ids=(5,), on="none"), 0b11 << 10),
        (pod("q", devices=1, ids=(16,), on="n"), 0b11 << 32),
    ):
        with pytest.raises(ValueError, match=f"cannot assume {placed.key} on '{placed.node_name}'"):
            cluster.assume(placed, CoreMask(cores))
    assert list(cluster.view.rows()) == before
    assert (cluster.pod_count, cluster.assumed_count) == (1, 0)


# Queries


def test_a_slot_that_is_empty_has_no_row() -> None:
    """Reading it raises an error instead of returning an empty row."""
    cluster = cluster_of(node("a"), node("b", created=1))
    cluster.remove_node("a")
    with pytest.raises(LookupError, match="slot 0 is empty"):
        cluster.view.row(Slot(0))


def test_pods_that_come_and_go_cost_node_indexes_nothing() -> None:
    """Changes of pods are not logged for indexes that depend on the node's object only."""
    cluster = cluster_of(trn1())
    cluster.view.node_postings(_name)
    cluster.view.column(_cpu)
    cluster.put_pod(pod("p", cpu=1000, on="n"))
    assert (len(cluster._table.of_nodes.log), len(cluster._table.of_rows.log)) == (0, 1)


def test_what_no_index_reads_is_not_logged() -> None:
    """A label of a pod, or a heartbeat of the node, changes no index."""
    cluster = cluster_of(trn1(), pods=(pod("p", cpu=1000, on="n"),))
    cluster.view.node_postings(_name)
    cluster.view.column(_cpu)
    cluster.put_pod(pod("p", cpu=1000, labels={"a": "b"}, on="n"))
    cluster.put_node(trn1())
    assert (len(cluster._table.of_nodes.log), len(cluster._table.of_rows.log)) == (0, 0)
    pod_info = cluster.pod_info("uid-p")
    assert pod_info is not None
    assert pod_info.pod.labels == {"a": "b"}


def test_a_replaced_row_leaves_no_trace() -> None:
    """Inside the block the whole cluster has the other row; afterwards, also after an error, its own row."""
    cluster = cluster_of(trn1(), pods=(pod("p", cpu=1000, devices=4, ids=range(4), on="n"),))
    row = cluster.view.row(Slot(0))
    assert cluster.view.column(_cpu).value(Slot(0)) == 191_000
    with suppress(RuntimeError), cluster.row_replaced(Slot(0), without_pod(row, "uid-p")):
        assert cluster.view.column(_cpu).value(Slot(0)) == 192_000
        assert cluster.view.row(Slot(0)).free_cores == ALL
        raise RuntimeError
    assert cluster.view.row(Slot(0)) is row
    assert cluster.view.column(_cpu).value(Slot(0)) == 191_000


@pytest.mark.parametrize("where", ["cluster.cluster.with_pod", "cluster.tables.nodes.NodeTable._move_pod"])
def test_an_assumption_that_fails_half_way_can_be_forgotten(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any exception the pod holds nothing and can be assumed again."""
    cluster = Cluster()
    cluster.put_node(node("n", "trn1.32xlarge"))
    free = cluster.node("n")
    with monkeypatch.context() as broken:
        broken.setattr(f"neuron_scheduler.{where}", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cluster.assume(pod("p", devices=1, on="n"), CoreMask(3))
    cluster.forget("uid-p")
    after = cluster.node("n")
    assert free is not None
    assert after is not None
    assert (cluster.pod_count, cluster.assumed_count, after.free_cores) == (0, 0, free.free_cores)
    cluster.assume(pod("p", devices=1, on="n"), CoreMask(3))
    assert cluster.is_assumed("uid-p")
