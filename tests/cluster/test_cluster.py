"""The cluster in memory: nodes, pods, assumptions and queries."""

from contextlib import suppress

import pytest

from neuron_scheduler.cluster.cluster import CHANGED, Cluster
from neuron_scheduler.cluster.index.nodeset import Slot, from_slots
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, on_node, without_pod
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
    """Return the nodes' names in the order of their slots."""
    rows = list(cluster.view.rows())
    names = [node_info.node.name for node_info in rows]
    slots = [slot for slot in map(cluster.view.slot, names) if slot is not None]
    size = cluster.view.live.bit_length()
    assert list(cluster.view.rows_of(from_slots(slots[::2], size))) == rows[::2]
    assert cluster.view.live == from_slots(slots, size)
    return names


def free(cluster: Cluster, name: str = "n") -> CoreMask:
    """Return a node's free cores."""
    node_info = cluster.node(name)
    assert node_info is not None
    return node_info.free_cores


# Order


def test_a_node_created_again_is_the_youngest() -> None:
    """Another uid under the same name is another node; the pods of the old one are kept until they are removed."""
    cluster = cluster_of(trn1("a"), node("b"), pods=(pod("p", devices=4, ids=range(4), on="a"),))
    cluster.put_node(trn1("a", uid="second"))
    assert order(cluster) == ["b", "a"]
    assert free(cluster, "a") == ALL & ~CoreMask(0xFF)


@pytest.mark.parametrize("remove", [True, False], ids=["deleted and created", "replaced by a relist"])
def test_a_slot_is_used_again_after_many_others(remove: bool) -> None:
    """Nodes come and go for years; indexes are kept, and a slot that was read in a pause is no other node's."""
    cluster, last = cluster_of(node("stays")), list[Slot | None]()
    before = cluster.view.column(_cpu)
    for generation in range(1000):
        if remove:
            cluster.remove_node("n")
        cluster.put_node(node("n", uid=str(generation), cpu=generation))
        slot = cluster.view.slot("n")
        assert slot is not None
        assert sorted(order(cluster)) == sorted(order(cluster.fork())) == ["n", "stays"]
        assert slot not in last[-64:]
        last.append(slot)
        assert cluster.view.column(_cpu) is before
        assert before.value(slot) == generation
    assert len(cluster._table.slots) < 100


def test_a_row_for_a_question_is_new() -> None:
    """A node that exists cannot be added for a question; another one is gone afterwards."""
    cluster = cluster_of(node("a"))
    with pytest.raises(ValueError, match="cannot add"), cluster.row_added(on_node(node("a"))):
        pass
    with cluster.row_added(on_node(node("fresh"))):
        assert order(cluster) == ["a", "fresh"]
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
    assert (len(cluster._table.of_nodes.log._changes), len(cluster._table.of_rows.log._changes)) == (0, 1)


def test_what_no_index_reads_is_not_logged() -> None:
    """A label of a pod, or a heartbeat of the node, changes no index."""
    cluster = cluster_of(trn1(), pods=(pod("p", cpu=1000, on="n"),))
    cluster.view.node_postings(_name)
    cluster.view.column(_cpu)
    cluster.put_pod(pod("p", cpu=1000, labels={"a": "b"}, on="n"))
    cluster.put_node(trn1())
    assert (len(cluster._table.of_nodes.log._changes), len(cluster._table.of_rows.log._changes)) == (0, 0)
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
