"""InterPodAffinity: near these pods, far from those, and what the pods already there say."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest

from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.model.selectors import (
    LabelSelector,
    Operator,
    PodAffinityTerm as Term,
    Requirement,
)
from neuron_scheduler.scheduling.plugins.inter_pod_affinity import KEPT_AWAY, NAME, NOT_APART, NOT_NEAR
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
DB = LabelSelector((Requirement("app", Operator.IN, ("db",)),))
TEAM = LabelSelector((Requirement("team", Operator.IN, ("a",)),))
NO_TEAM = LabelSelector((Requirement("team", Operator.DOES_NOT_EXIST),))
HERE = frozenset({"default"})
NEAR_WEB = Term(ZONE_LABEL, WEB, HERE)
NEAR_DB = Term(HOSTNAME_LABEL, DB, HERE)
OF_WEB: Mapping[str, Any] = {"labels": {"app": "web"}}
OF_DB: Mapping[str, Any] = {"labels": {"app": "db"}}

# Nodes a1 and a2 are in zone a, b1 is in zone b, bare has no label at all.
NODES = (
    node("a1", labels={ZONE_LABEL: "a", HOSTNAME_LABEL: "a1"}, created=1),
    node("a2", labels={ZONE_LABEL: "a", HOSTNAME_LABEL: "a2"}, created=2),
    node("b1", labels={ZONE_LABEL: "b", HOSTNAME_LABEL: "b1"}, created=3),
    node("bare", created=4),
)
NAMES = [some_node.name for some_node in NODES]


def feasible(pending: Pod, bound: Sequence[Pod]) -> tuple[list[str], dict[str, int]]:
    """Return the nodes that take the pod, each asked with the others cordoned off, and the refusals of all."""
    taking, reasons = [], dict[str, int]()
    for name in NAMES:
        cluster = cluster_of(
            [attrs.evolve(some_node, unschedulable=some_node.name != name) for some_node in NODES],
            bound,
        )
        for namespace, team in (("default", {}), ("other", {"team": "a"})):
            cluster.namespaces.put(Namespace(namespace, namespace, team))
        if schedule(cluster, pending) == (name, ()):
            taking.append(name)
        else:
            for reason, count in refusal(cluster, pending).reasons:
                if reason != "node(s) were unschedulable":
                    reasons[reason] = reasons.get(reason, 0) + count
    return taking, reasons


ULTRASERVER = "neuron.amazonaws.com/ultraserver-server-id-4"
NONE = "0000000000000000"
BESIDE_JOB = Term(ULTRASERVER, WEB, HERE)


@pytest.mark.parametrize(
    ("bound", "asked", "want"),
    [
        pytest.param((), {"affinity": (BESIDE_JOB,), **OF_WEB}, "u1", id="the first of a job starts in an UltraServer"),
        pytest.param(
            ("none1",),
            {"affinity": (BESIDE_JOB,), **OF_WEB},
            "u1",
            id="no pod shares a domain with nodes without the key",
        ),
        pytest.param(("u1",), {"affinity": (BESIDE_JOB,), **OF_WEB}, "u1", id="the job goes on where it is"),
        pytest.param(("none1",), {"anti_affinity": (BESIDE_JOB,)}, "none1", id="nor does anybody crowd them"),
        pytest.param((), {"node_selector": {ULTRASERVER: NONE}}, "none1", id="to a selector it is a value"),
    ],
)
def test_an_id_of_zeros_is_no_ultraserver(bound: Sequence[str], asked: Mapping[str, Any], want: str) -> None:
    """The device plugin labels nodes outside of UltraServers too; they have nothing in common."""
    names = {"none1": NONE, "none2": NONE, "u1": "bog79p1y8tetj5uu", "u2": "bog79p1y8tetj5uu"}
    nodes = [
        node(name, labels={ULTRASERVER: server}, created=number) for number, (name, server) in enumerate(names.items())
    ]
    cluster = cluster_of(nodes, [pod(f"of-{name}", on=name, **OF_WEB) for name in bound])
    assert schedule(cluster, pod(**asked)) == (want, ())


FILTERS: dict[str, tuple[Mapping[str, Any], Sequence[Pod], list[str], dict[str, int]]] = {
    "a pod that is being deleted counts": (
        {"affinity": (NEAR_WEB,)},
        [pod("w", on="b1", terminating=True, **OF_WEB)],
        ["b1"],
        {NOT_NEAR: 3},
    ),
    "a term selects namespaces by their labels": (
        {"affinity": (Term(ZONE_LABEL, WEB, namespace_selector=TEAM),)},
        [pod("w", on="a1", namespace="other", **OF_WEB), pod("v", on="b1", **OF_WEB)],
        ["a1", "a2"],
        {NOT_NEAR: 2},
    ),
    "or means all of them": (
        {"affinity": (Term(ZONE_LABEL, WEB, namespace_selector=LabelSelector()),)},
        [pod("w", on="b1", namespace="unheard-of", **OF_WEB)],
        ["b1"],
        {NOT_NEAR: 3},
    ),
    "a namespace that is not known has no labels, and a pod's own term does not select it": (
        {"affinity": (Term(ZONE_LABEL, WEB, namespace_selector=NO_TEAM),)},
        [pod("w", on="b1", namespace="unheard-of", **OF_WEB)],
        [],
        {NOT_NEAR: 4},
    ),
    "so does a placed pod that keeps others away": (
        {**OF_WEB, "namespace": "other"},
        [pod("w", on="a2", anti_affinity=(Term(HOSTNAME_LABEL, WEB, namespace_selector=TEAM),))],
        ["a1", "b1", "bare"],
        {KEPT_AWAY: 1},
    ),
    "to which one that is not known has no labels": (
        {**OF_WEB, "namespace": "unheard-of"},
        [pod("w", on="a2", anti_affinity=(Term(HOSTNAME_LABEL, WEB, namespace_selector=NO_TEAM),))],
        ["a1", "b1", "bare"],
        {KEPT_AWAY: 1},
    ),
    "a node is counted under the first reason": (
        {"affinity": (NEAR_WEB,), "anti_affinity": (NEAR_DB,), **OF_WEB},
        [
            pod("w", on="a1", **OF_WEB),
            pod("d", on="a2", **OF_DB),
            pod("k", on="a1", anti_affinity=(attrs.evolve(NEAR_WEB, topology_key=HOSTNAME_LABEL),)),
        ],
        [],
        {NOT_NEAR: 2, NOT_APART: 1, KEPT_AWAY: 1},
    ),
}


@pytest.mark.parametrize("sentence", FILTERS)
def test_filters(sentence: str) -> None:
    """Which nodes take the pod, and why the others do not; the oracle shows what is more common."""
    asked, bound, want, reasons = FILTERS[sentence]
    assert feasible(pod(**asked), bound) == (want, reasons)


def test_a_refusal_can_buy_nodes() -> None:
    """A new node could be far from all pods, so the condition says Unschedulable."""
    fit_error = refusal(cluster_of(NODES[:1], [pod("w", on="a1", **OF_WEB)]), pod(anti_affinity=(NEAR_WEB,)))
    assert fit_error.text == f"0/1 nodes are available: 1 {NOT_APART}."
    assert (fit_error.plugins, fit_error.new_node_cannot_help) == (frozenset({NAME}), False)


PREFERENCES: dict[str, tuple[Mapping[str, Any], Sequence[Pod], str]] = {
    "weights count": (
        {"preferred_affinity": (attrs.evolve(NEAR_WEB, weight=1), attrs.evolve(NEAR_DB, weight=3))},
        [pod("v", on="b1", **OF_WEB), pod("w", on="b1", **OF_WEB), pod("d", on="a2", **OF_DB)],
        "a2",
    ),
    "where the fewest are": (
        {"preferred_anti_affinity": (attrs.evolve(NEAR_WEB, topology_key=HOSTNAME_LABEL, weight=1),)},
        [pod("v", on="a1", **OF_WEB), pod("w", on="a2", **OF_WEB), pod("x", on="b1", **OF_WEB)],
        "bare",
    ),
}


@pytest.mark.parametrize("sentence", PREFERENCES)
def test_preferences(sentence: str) -> None:
    """Among nodes that are alike otherwise, the oldest is a1."""
    asked, bound, want = PREFERENCES[sentence]
    assert schedule(cluster_of(NODES, bound), pod(**asked)) == (want, ())


def test_a_change_of_a_namespace_gives_another_answer() -> None:
    """The namespaces of a selector are looked up each time."""
    bound = [pod("w", on="b1", namespace="other", **OF_WEB)]
    cluster = cluster_of(NODES, bound)
    pending = pod(anti_affinity=(Term(ZONE_LABEL, WEB, namespace_selector=TEAM),), node_selector={ZONE_LABEL: "b"})
    assert schedule(cluster.fork(), pending) == ("b1", ())
    cluster.namespaces.put(Namespace("u", "other", {"team": "a"}))
    assert refusal(cluster, pending).plugins == {NAME, "NodeAffinity"}
    cluster.namespaces.put(Namespace("u", "other", {"team": "b"}))
    assert schedule(cluster, pending) == ("b1", ())
