"""Totals by domain follow the nodes; that they are right is for the stateful tests to say."""

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.index.rollup import Rollup
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.model.node import ZONE_LABEL
from neuron_scheduler.model.selectors import LabelSelector, PodAffinityTerm
from tests.support.builders import node, pod

ALL = PodQuery((LabelSelector(),), frozenset({"default"}), terminating=True)
TERM = PodAffinityTerm(ZONE_LABEL, LabelSelector(), frozenset({"default"}))


def totals(cluster: Cluster) -> list[dict[str, int]]:
    """Return for each node how many pods are in its zone, and how many of them have the term."""
    slots = {row.node.name: cluster.view.slot(row.node.name) or Slot(0) for row in cluster.view.rows()}
    terms_of_placed_pods = [
        column for _, column in cluster.view.terms_of_placed_pods(TermKind.ANTI_AFFINITY, pod("asking"))
    ]
    return [
        {name: column.value(slot) for name, slot in slots.items()}
        for column in (cluster.view.totals(ALL, ZONE_LABEL), *terms_of_placed_pods)
    ]


def test_a_node_that_comes_goes_or_moves_takes_its_own_count_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is counted again: with tens of thousands of pods that would be a noticeable pause."""
    cluster = Cluster()
    for i, (name, zone) in enumerate(zip("abcde", "xxyyy", strict=True)):
        cluster.put_node(node(name, created=i, labels={ZONE_LABEL: zone}))
        for j in range(i + 1):
            cluster.put_pod(pod(f"{name}{j}", on=name, anti_affinity=(TERM,)))
    assert totals(cluster) == [{"a": 3, "b": 3, "c": 12, "d": 12, "e": 12}] * 2
    monkeypatch.setattr(Rollup, "build", None)

    cluster.put_node(node("f", created=9, labels={ZONE_LABEL: "x"}))
    cluster.put_node(node("g", created=9, labels={ZONE_LABEL: "z"}))
    assert totals(cluster) == [{"a": 3, "b": 3, "c": 12, "d": 12, "e": 12, "f": 3, "g": 0}] * 2
    cluster.put_node(node("b", created=1, labels={ZONE_LABEL: "y"}))
    cluster.put_pod(pod("g0", on="g", anti_affinity=(TERM,)))
    assert totals(cluster) == [{"a": 1, "b": 14, "c": 14, "d": 14, "e": 14, "f": 1, "g": 1}] * 2
    cluster.remove_node("e")
    cluster.put_node(node("c", created=2))
    assert totals(cluster) == [{"a": 1, "b": 6, "c": 0, "d": 6, "f": 1, "g": 1}] * 2
