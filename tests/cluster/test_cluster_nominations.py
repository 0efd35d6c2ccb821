"""Nominations, and the cluster under overlays."""

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination, evictable, without_pod, without_pods
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.resources import CPU as CPU_NAME, NEURON_DEVICE
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.filters import WithNominated, nodes_with_nominations
from neuron_scheduler.scheduling.plugins.node_resources_fit import free_of
from neuron_scheduler.scheduling.preemption.search import WithoutLowerPriority
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

CPU = free_of("cpu")


def two_nodes() -> Cluster:
    """Return nodes a and b with a pod of each priority."""
    pods = [pod(f"{on}{p}", on=on, cpu=1000, priority=p) for on in "ab" for p in (1, 5)]
    return cluster_of([node("a", cpu=4000), node("b", cpu=4000, created=1)], pods)


def test_a_nomination_is_in_its_row_until_it_is_cleared() -> None:
    """A new nomination replaces the old one; an unknown node is not nominated."""
    cluster = two_nodes()
    pending = pod("p", cpu=500, priority=3)
    cluster.nominate("a", Nomination(pending))
    assert cluster.nomination("uid-p") == ("a", Nomination(pending))
    cluster.nominate("b", Nomination(pending))
    assert [len(row.nominations) for row in cluster.view.rows()] == [0, 1]
    assert cluster.clear_nomination("uid-p") == "b"
    assert cluster.clear_nomination("uid-p") is None
    cluster.nominate("gone", Nomination(pending))
    assert cluster.nomination("uid-p") is None
    cluster.nominate("a", Nomination(pending))
    cluster.remove_node("a")
    assert cluster.nomination("uid-p") is None


def test_a_placed_pod_needs_no_nomination() -> None:
    """Whichever node it was placed on, by whichever scheduler."""
    cluster = two_nodes()
    for place in (cluster.assume, cluster.put_pod):
        pending = pod(f"p{place.__name__}", cpu=500, priority=3)
        cluster.nominate("a", Nomination(pending))
        place(attrs.evolve(pending, node_name="b"))
        assert cluster.nomination(pending.uid) is None
    assert not any(row.nominations for row in cluster.view.rows())


@pytest.mark.parametrize(("devices", "used"), [(4, 8), (12, 12)])
def test_who_leaves_for_a_nominated_pod_is_not_counted_beside_it(devices: int, used: int) -> None:
    """A pod must fit now and once the victims have left, not beside both; its cores are free now."""
    row = cluster_of([node("n", "trn1.32xlarge")], [pod("victim", on="n", devices=8, ids=range(8))]).node("n")
    assert row is not None
    cores = CoreMask((1 << 2 * devices) - 1)
    kept = Nomination(pod("p", devices=devices, priority=3), cores, frozenset({"uid-victim"}))
    row = attrs.evolve(row, nominations=(kept,)).with_nominated(3)
    assert row.used[NEURON_DEVICE] == used
    assert row.free_cores == CoreMask((1 << 32) - (1 << 2 * used))


A, B = frozenset({"uid-a"}), frozenset({"uid-b"})


@pytest.mark.parametrize(
    ("victims", "used"), [((A, B), 16), ((A, A), 20), ((B, B), 15), ((A, A | B), 16), ((A | B, A), 19)]
)
def test_nominated_pods_come_one_after_the_other_as_their_victims_leave(
    victims: tuple[frozenset[str], frozenset[str]], used: int
) -> None:
    """Of two with victims of their own the first may be there while the second waits; victims they share leave once."""
    row = cluster_of([node("n", cpu=16_000)], [pod("a", on="n", cpu=5000), pod("b", on="n", cpu=10_000)]).node("n")
    assert row is not None
    nominated = (pod("first", cpu=6000, priority=3), pod("second", cpu=4000, priority=3))
    kept = tuple(Nomination(each, victims=uids) for each, uids in zip(nominated, victims, strict=True))
    assert attrs.evolve(row, nominations=kept).with_nominated(3).used[CPU_NAME] == 1000 * used


def test_a_removed_node_loses_its_nominations() -> None:
    """Its pods are kept; a kept nomination would return with the node, and nothing would clear it any more."""
    cluster = two_nodes()
    cluster.nominate("a", Nomination(pod("p", cpu=500, priority=3)))
    cluster.remove_node("a")
    cluster.put_node(node("a", cpu=4000))
    assert cluster.nomination("uid-p") is None
    assert not any(row.nominations for row in cluster.view.rows())


def test_nominations_count_against_equal_and_lower_priorities() -> None:
    """As a set of nodes, and as rows under the overlay; the space nominated for a pod is free for that pod."""
    cluster = two_nodes()
    cluster.nominate("b", Nomination(pod("p", cpu=500, priority=3)))
    assert [nodes_with_nominations(cluster, priority) for priority in (2, 3, 4)] == [2, 2, 0]
    for priority, free in ((3, [2000, 1500]), (4, [2000, 2000])):
        view = cluster.view.with_overlay(WithNominated(priority))
        assert [view.column(CPU).value(slot) for slot in map(Slot, (0, 1))] == free
    with cluster.without_nomination("uid-p"):
        assert nodes_with_nominations(cluster, 3) == 0
        with cluster.without_nomination("uid-stranger"):
            assert cluster.view.with_overlay(WithNominated(3)).column(CPU).value(Slot(1)) == 2000
    assert nodes_with_nominations(cluster, 3) == 2


def test_a_question_is_prepared() -> None:
    """All indexes that it needs exist afterwards, although pods were added and removed between the steps."""
    cluster = two_nodes()
    view, asked = cluster.view.with_overlay(WithoutLowerPriority(2)), []
    cluster.view.column(CPU)  # changes are logged only once there is an index

    def ask(of: View) -> None:
        asked.append(of.column(CPU).value(Slot(0)) + of.postings(ports).keyed.bit_count())

    came = 0
    for came, _ in enumerate(view.prepare(ask), start=1):
        cluster.put_pod(pod(f"new{came}", on="a", cpu=250, priority=3))
    assert came
    assert asked == [0]
    built = []
    assert list(view.prepare(lambda of: built.append(of.column(CPU).value(Slot(0))))) == []
    assert built == [view.column(CPU).value(Slot(0))] == [3000 - 250 * came]


def ports(node_info: NodeInfo) -> Values:
    """Index definition: nodes by the ports taken."""
    return tuple(node_info.ports)


def test_several_pods_fewer_are_one_fewer_several_times() -> None:
    """Whatever they hold, and however many; a pod that could not be decoded stays, and is never evicted."""
    cluster = cluster_of(
        [node("n", "trn1.32xlarge")],
        [pod(f"p{i}", on="n", devices=1, ids=(i,), cpu=100 * i, priority=i % 3) for i in range(6)],
    )
    cluster.put_unreadable_pod(pod("unread", on="n"))
    node_info = cluster.view.row(Slot(0))
    uids = sorted(node_info.pod_infos)
    for number in range(len(uids) + 1):
        one_by_one: NodeInfo = node_info
        for uid in uids[:number]:
            one_by_one = without_pod(one_by_one, uid)
        assert without_pods(node_info, uids[:number]) == one_by_one
    assert evictable(node_info, 2) == {"uid-p0", "uid-p1", "uid-p3", "uid-p4"}
    assert set(node_info.without_lower_priority(99).pod_infos) == {"uid-unread"}


def test_a_pod_that_is_not_evictable_stays_so_when_it_is_seen_again() -> None:
    """Its node counts it no more among those that may leave; afterwards the node is as before."""
    cluster = cluster_of([node("n", "trn1.32xlarge")], [pod("p", on="n", devices=1, ids=(0,)), pod("q", on="n")])
    cluster.put_unreadable_pod(pod("unread", on="n"))
    before = cluster.view.row(Slot(0))
    for uid in ("uid-p", "uid-unread", "uid-unknown"):
        cluster.set_evictable(uid, is_evictable=False)
    cluster.put_pod(pod("p", on="n", devices=1, ids=(0,), labels={"a": "b"}))
    assert evictable(cluster.view.row(Slot(0)), 2) == {"uid-q"}
    assert set(cluster.view.row(Slot(0)).without_lower_priority(99).pod_infos) == {"uid-p", "uid-unread"}
    for uid in ("uid-p", "uid-unread"):
        cluster.set_evictable(uid, is_evictable=True)
    assert cluster.view.row(Slot(0)) == before
    assert evictable(cluster.view.row(Slot(0)), 2) == {"uid-p", "uid-q"}
