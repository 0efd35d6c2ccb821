"""Counts of pods that are prepared a few at a time equal those that are built at once."""

from random import Random

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index import rollup, sums
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.tables import pods
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from tests.support.builders import node, pod
from tests.support.thoroughness import examples

WEB = LabelSelector((Requirement("app", Operator.EXISTS),))
DEFINITION = PodQuery((WEB,), frozenset({"default"}), terminating=True)
NAMES = "abcdef"


def some_node(dice: Random, name: str) -> Node:
    """Return a node in some zone or none, the same one by age."""
    zone = dice.choice(["x", "y", "z", None])
    return node(name, created=ord(name), labels={HOSTNAME_LABEL: name, **({ZONE_LABEL: zone} if zone else {})})


def happen(dice: Random, cluster: Cluster) -> None:
    """Add, change or remove a pod or a node."""
    name = dice.choice(NAMES)
    match dice.randrange(10):
        case 0:
            cluster.put_node(some_node(dice, name))
        case 1 if dice.random() < 0.2:
            cluster.remove_node(name)
        case 2 | 3:
            cluster.remove_pod(f"uid-p{dice.randrange(200)}")
        case _:
            labels = {"app": "web"} if dice.random() < 0.5 else {}
            cluster.put_pod(pod(f"p{dice.randrange(200)}", labels=labels, on=name))


@pytest.mark.parametrize("seed", range(examples(20)))
def test_prepared_counts_are_true(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any changes of pods and nodes between the steps; also if the counts catch up."""
    monkeypatch.setattr(sums, "AT_ONCE", 3)
    monkeypatch.setattr(pods, "AT_ONCE", 3)
    monkeypatch.setattr(pods, "MANY", 20)
    monkeypatch.setattr(rollup, "_FEW", 1)
    monkeypatch.setattr(rollup, "_AT_ONCE", Random(seed).choice([1, 4]))
    monkeypatch.setattr(pods, "_MOST_LOGGED", Random(seed).choice([8, 100, 4096]))
    dice, cluster = Random(seed), Cluster()
    for name in NAMES:
        cluster.put_node(some_node(dice, name))

    def ask(view: View) -> None:
        view.counts(DEFINITION)
        view.totals(DEFINITION, ZONE_LABEL)
        view.totals(DEFINITION, HOSTNAME_LABEL)

    for _ in range(30):
        for _ in range(dice.randrange(40)):
            happen(dice, cluster)
        for _ in cluster.view.prepare(ask):
            for _ in range(dice.randrange(3)):
                happen(dice, cluster)
        fresh = Cluster.fork(cluster)
        for name in NAMES:
            slot = cluster.view.slot(name)
            if slot is None:
                continue
            assert cluster.view.counts(DEFINITION).value(slot) == fresh.view.counts(DEFINITION).value(slot)
            for key in (ZONE_LABEL, HOSTNAME_LABEL):
                assert cluster.view.totals(DEFINITION, key).value(slot) == fresh.view.totals(DEFINITION, key).value(
                    slot
                )


def test_a_step_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """With any number of pods, a few are compared between two yields; afterwards hardly any."""
    cluster, counted = Cluster(), [0]
    cluster.put_node(node("n", labels={ZONE_LABEL: "x"}))
    for i in range(1000):
        cluster.put_pod(pod(f"p{i}", labels={"app": "web"}, on="n"))
    matches = PodQuery.matches

    def counting(self: PodQuery, compared: Pod) -> bool:
        counted[0] += 1
        return matches(self, compared)

    monkeypatch.setattr(PodQuery, "matches", counting)
    steps = []
    for _ in cluster.view.prepare(lambda view: view.counts(DEFINITION)):
        steps.append(counted[0])
        counted[0] = 0
    assert len(steps) == 1 + -(-1000 // sums.AT_ONCE)
    assert max(steps) == sums.AT_ONCE
    assert cluster.view.counts(DEFINITION).value(Slot(0)) == 1000
    assert counted[0] == 0


def test_after_many_changes_of_nodes_counting_anew_takes_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of pods are as they were, but the sums by zone do not know what has moved since."""
    monkeypatch.setattr("neuron_scheduler.cluster.tables.nodes._MOST_RELABELINGS", 2)
    cluster = Cluster()
    cluster.put_node(node("n", labels={ZONE_LABEL: "x"}))
    for i in range(1000):
        cluster.put_pod(pod(f"p{i}", labels={"app": "web"}, on="n"))
    for _ in range(2):
        assert len(list(cluster.view.prepare(lambda view: view.totals(DEFINITION, ZONE_LABEL)))) > 1000 // sums.AT_ONCE
        assert cluster.view.totals(DEFINITION, ZONE_LABEL).value(Slot(0)) == 1000
        for i in range(3):
            cluster.put_node(node(f"other{i}", labels={ZONE_LABEL: "y"}))
