"""Rehearsals: after one, a decision builds no index; none is held twice for a sort of pods."""

import random

import attrs
import pytest

from neuron_scheduler.cluster.indexes import Indexes
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.profile import default_profile
from neuron_scheduler.scheduling.rehearsal import TYPICAL, Rehearsal
from tests.builders import node, pod
from tests.scheduling import generation
from tests.scheduling.harness import cluster_of, decide, schedule

PROFILE = default_profile("p")


@pytest.mark.parametrize("seed", range(20))
def test_a_rehearsed_decision_builds_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a pod asks for, once rehearsed its decision finds every index there, and decides as it would have."""
    dice = random.Random(seed)
    nodes = [generation.some_node(dice, name) for name in "abcdef"]
    tenants = [generation.bound_pod(dice, f"t{i}") for i in range(dice.randint(0, 8))]
    bound = [attrs.evolve(each, node_name=dice.choice("abcdef")) for each in tenants]
    for number in range(5):
        pending = generation.pending_pod(dice, f"p{number}")
        cluster = cluster_of(nodes, bound)
        for _ in Rehearsal().of(cluster, pending, PROFILE):
            pass
        with monkeypatch.context() as patch:
            patch.setattr(Indexes, "_caught_up", _refuse)
            rehearsed = decide(cluster, pending)
        assert rehearsed == decide(cluster_of(nodes, bound), pending)


def _refuse(*_: object) -> None:
    raise AssertionError("an index was built or caught up by the decision")


@pytest.mark.parametrize("first", [pod("a", devices=4), pod("a", cores=2, labels={"app": "web"}), pod("a", cpu=100)])
def test_a_typical_pod_leaves_little_to_be_built(first: Pod) -> None:
    """Most indexes are the same for all pods."""
    nodes = [node(f"n{i}", "trn1.32xlarge") for i in range(500)]
    alone, prepared = cluster_of(nodes), cluster_of(nodes)
    rehearsal = Rehearsal()
    list(rehearsal.of(prepared, TYPICAL, PROFILE))
    assert (
        sum(1 for _ in rehearsal.of(prepared, first, PROFILE))
        < sum(1 for _ in Rehearsal().of(alone, first, PROFILE)) / 2
    )


def test_it_pauses_and_is_held_once() -> None:
    """A first rehearsal pauses between handfuls of rows; a second pod of the sort needs none, one of another does."""
    cluster = cluster_of([node(f"n{i}", "trn1.32xlarge", created=i) for i in range(200)])
    rehearsal = Rehearsal()
    assert sum(1 for _ in rehearsal.of(cluster, pod("a", devices=1), PROFILE)) > 20
    assert list(rehearsal.of(cluster, pod("b", devices=1), PROFILE)) == []
    assert list(rehearsal.of(cluster, pod("c", devices=4), PROFILE)) != []


def test_slots_given_anew_want_another_rehearsal() -> None:
    """When all slots are given anew the indexes are gone, and the same sort of pods is rehearsed again."""
    cluster = cluster_of([node(f"n{i}", "trn1.32xlarge", created=100 + i) for i in range(10)])
    rehearsal = Rehearsal()
    assert list(rehearsal.of(cluster, pod("a", devices=1), PROFILE)) != []
    for i in range(600):
        cluster.put_node(node(f"late{i}", "trn1.32xlarge", created=i / 10))
    assert list(rehearsal.of(cluster, pod("b", devices=1), PROFILE)) != []
    assert schedule(cluster, pod("b", devices=1)) == ("late0", (0,))
