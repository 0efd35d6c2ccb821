"""After a warm-up a decision builds no index, and a sort of pods is warmed up for only once."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index import indexes
from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.indexes import Indexes
from neuron_scheduler.cluster.index.postings import Postings
from neuron_scheduler.cluster.index.sums import Totals
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.cluster.view import IndexRequests, View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.index_warmup import TYPICAL, IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, fit_error, schedule_pod, select_node
from tests.support import random_objects
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, decide, schedule
from tests.support.thoroughness import examples

PROFILE = default_profile("p")


def steps(warmup: IndexWarmup, cluster: Cluster, pending: Pod) -> int:
    """Warm up for a decision and a refusal; return the number of steps."""
    return sum(1 for ask in (warmup.prepare, warmup.prepare_refusal) for _ in ask(cluster, pending, PROFILE))


@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_decision_builds_no_index_after_a_warm_up(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a pod asks for, its decision after a warm-up builds no index, and is the same as without a warm-up."""
    dice = random.Random(seed)
    nodes = [random_objects.some_node(dice, name) for name in "abcdef"]
    pod_infos = [random_objects.bound_pod(dice, f"t{i}") for i in range(dice.randint(0, 8))]
    bound = [attrs.evolve(placed, node_name=dice.choice("abcdef")) for placed in pod_infos]
    aside = {name: CoreMask(dice.getrandbits(8)) for name in "abcdef" if dice.random() < seed % 3 / 2}
    for number in range(5):
        pending = random_objects.pending_pod(dice, f"p{number}")
        cluster = _with_nodes_aside(cluster_of(nodes, bound), aside)
        warmup = IndexWarmup()
        list(warmup.prepare(cluster, pending, PROFILE))
        with monkeypatch.context() as patch:
            patch.setattr(Indexes, "prepare", _refuse)
            patch.setattr(Indexes, "_follow", _refuse)
            patch.setattr(Totals, "_build", _refuse)
            select_node(cluster, pending, PROFILE)
        list(warmup.prepare_refusal(cluster, pending, PROFILE))
        with monkeypatch.context() as patch:
            patch.setattr(Indexes, "prepare", _refuse)
            patch.setattr(Indexes, "_follow", _refuse)
            warmed_up = decide(cluster, pending)
        assert warmed_up == decide(_with_nodes_aside(cluster_of(nodes, bound), aside), pending)


def _with_nodes_aside(cluster: Cluster, aside: Mapping[str, CoreMask]) -> Cluster:
    for name, cores in aside.items():
        cluster.set_aside(name, cores)
    return cluster


def _refuse(*_: object) -> None:
    raise AssertionError("an index was built or caught up, or pods were counted, by the decision")


@pytest.mark.parametrize("first", [pod("a", devices=4), pod("a", cores=2, labels={"app": "web"}), pod("a", cpu=100)])
def test_a_typical_pod_leaves_little_to_be_built(first: Pod) -> None:
    """A warm-up for a typical pod builds most of the indexes that another sort of pods needs."""
    nodes = [node(f"n{i}", "trn1.32xlarge") for i in range(500)]
    alone, prepared = cluster_of(nodes), cluster_of(nodes)
    warmup = IndexWarmup()
    steps(warmup, prepared, TYPICAL)
    assert steps(warmup, prepared, first) < steps(IndexWarmup(), alone, first) / 2


def test_it_pauses_and_is_done_once() -> None:
    """A first warm-up pauses after every few rows; a second pod of the sort needs none, a pod of another sort does."""
    cluster = cluster_of([node(f"n{i}", "trn1.32xlarge", created=i) for i in range(200)])
    warmup = IndexWarmup()
    assert sum(1 for _ in warmup.prepare(cluster, pod("a", devices=1), PROFILE)) > 20
    assert list(warmup.prepare(cluster, pod("b", devices=1), PROFILE)) == []
    assert list(warmup.prepare(cluster, pod("c", devices=4), PROFILE)) != []


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of rows of which an index was built, and of changes that one read, in one step."""
    counted: list[int] = []
    since = ChangeLog.changes_since

    def building(kind: type[Postings | Column]) -> None:
        extend = kind.extend

        def counting(self: Any, rows: Sequence[Any], first: int) -> None:
            counted.append(len(rows))
            extend(self, rows, first)

        monkeypatch.setattr(kind, "extend", counting)

    def reading(self: ChangeLog[Any], position: int, most: int | None = None) -> Sequence[Any]:
        changes = since(self, position, most)
        counted.append(len(changes))
        return changes

    building(Postings)
    building(Column)
    monkeypatch.setattr(ChangeLog, "changes_since", reading)
    return counted


def churn(cluster: Cluster, changes: int) -> None:
    """Add and remove pods of another scheduler, on all nodes."""
    nodes = cluster.view.node_count
    for number in range(changes // 2):
        cluster.put_pod(pod(f"c{number}", cpu=100, on=f"n{number % nodes}"))
        cluster.remove_pod(f"uid-c{number}")


def fleet(nodes: int) -> Cluster:
    """Return a cluster with this number of nodes."""
    return cluster_of([node(f"n{i}", "trn1.32xlarge", created=i) for i in range(nodes)])


@pytest.mark.parametrize("changes", [200, 900, 5000])
@pytest.mark.parametrize("pending", [pod("p", devices=4, cpu=100), pod("p", devices=4, cpu=10**9)])
def test_indexes_that_are_dropped_or_out_of_date_are_prepared_again(
    changes: int, pending: Pod, built: list[int]
) -> None:
    """After many changes without a decision, as on a standby, no decision and no refusal does much in one step."""
    cluster, warmup = fleet(300), IndexWarmup()
    for warmed_up in (TYPICAL, pending):
        steps(warmup, cluster, warmed_up)
    churn(cluster, changes)
    assert list(warmup.prepare(cluster, pending, PROFILE))
    built.clear()
    result = select_node(cluster, pending, PROFILE)
    assert max(built, default=0) <= indexes._AT_ONCE
    if not isinstance(result, Decision):
        assert list(warmup.prepare_refusal(cluster, pending, PROFILE))
        built.clear()
        assert fit_error(cluster, pending, PROFILE, result) == schedule_pod(cluster.fork(), pending, PROFILE)
        assert max(built, default=0) <= indexes._AT_ONCE


def test_an_index_dropped_for_others_is_prepared_again(monkeypatch: pytest.MonkeyPatch, built: list[int]) -> None:
    """An index that was dropped to make room for others is built before the decision, although no row has changed."""
    monkeypatch.setattr(indexes, "_MOST_INDEXES", 12)
    cluster, warmup, pending = fleet(300), IndexWarmup(), pod("p", devices=4, cpu=100)
    list(warmup.prepare(cluster, pending, PROFILE))
    for devices in ((1, 1), (4, 4), 1, 8, 16, (8, 8), (1, 1, 1, 1), (8, 4, 4)):
        schedule_pod(cluster, pod("other", devices=devices, cpu=100), PROFILE)
    assert list(warmup.prepare(cluster, pending, PROFILE))
    built.clear()
    schedule_pod(cluster, pending, PROFILE)
    assert max(built, default=0) <= indexes._AT_ONCE


def test_a_label_that_no_node_had_before_is_noticed(built: list[int]) -> None:
    """The index of a label that the pod names is built when a first node has the label."""
    cluster, warmup, pending = fleet(300), IndexWarmup(), pod("p", cpu=100, node_selector={"rack": "1"})
    list(warmup.prepare(cluster, pending, PROFILE))
    cluster.put_node(node("n7", "trn1.32xlarge", created=7, labels={"rack": "1"}))
    assert list(warmup.prepare(cluster, pending, PROFILE))
    built.clear()
    assert isinstance(select_node(cluster, pending, PROFILE), Decision)
    assert max(built, default=0) <= indexes._AT_ONCE


def test_nominations_are_warmed_up_for(built: list[int]) -> None:
    """What nominated pods leave free is indexed before the decision, however many they are."""
    cluster, warmup, pending = fleet(300), IndexWarmup(), pod("p", devices=4, cpu=100)
    steps(warmup, cluster, pending)
    for number in range(200):
        cluster.nominate(f"n{number}", Nomination(pod(f"first{number}", devices=4, priority=9), cores=CoreMask(0xFF)))
    assert list(warmup.prepare(cluster, pending, PROFILE))
    built.clear()
    schedule_pod(cluster, pending, PROFILE)
    assert max(built, default=0) <= indexes._AT_ONCE


def test_a_sort_that_is_decided_again_and_again_is_seldom_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decisions keep the indexes up to date: they are checked every few dozen changes, and none is asked for."""
    cluster, warmup, looked = fleet(100), IndexWarmup(), [0]
    are_ready = IndexRequests.are_ready

    def counting(self: IndexRequests) -> bool:
        looked[0] += 1
        return are_ready(self)

    pending = pod("p", devices=1, cpu=100)
    list(warmup.prepare(cluster, pending, PROFILE))
    monkeypatch.setattr(IndexRequests, "are_ready", counting)
    monkeypatch.setattr(View, "index_requests", _refuse)
    for number in range(500):
        assert not list(warmup.prepare(cluster, pending, PROFILE))
        schedule(cluster, attrs.evolve(pending, uid=f"uid{number}", name=f"p{number}"))
    assert 0 < looked[0] <= 500 // 60


def test_what_changes_during_a_warm_up_is_applied_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first index falls behind while the others are built: all nodes may get a label at once."""
    cluster = cluster_of([node(f"n{i}", "trn1.32xlarge") for i in range(300)])
    for number, _ in enumerate(IndexWarmup().prepare(cluster, TYPICAL, PROFILE)):
        for i in range(10 * number, 10 * number + 10) if number < 60 else ():
            cluster.put_node(node(f"n{i % 300}", "trn1.32xlarge", cpu=8 + i))
    lags, catch_up = [0], indexes._catch_up

    def noting(index: Any, log: ChangeLog[Any], *, most: int | None = None) -> None:
        lags.append(log.end - index.position)
        catch_up(index, log, most=most)

    monkeypatch.setattr(indexes, "_catch_up", noting)
    assert isinstance(select_node(cluster, TYPICAL, PROFILE), Decision)
    assert max(lags) <= indexes._AT_ONCE
