"""Which pods are evicted for a pod that fits nowhere: the cheapest legal set, or none."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any
from unittest import mock

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.cluster.tables import affinity_terms
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    Operator,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Taint,
)
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.refusals import refusals_on
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.plugins.contract import Refusal
from neuron_scheduler.scheduling.plugins.registry import COUNTING_PODS
from neuron_scheduler.scheduling.preemption.nominations import confirm, rebuild
from neuron_scheduler.scheduling.preemption.search import NoPreemption, Preemption, search
from neuron_scheduler.scheduling.preemption.victims import victims_by_counting
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.cluster_invariants import DEFINITIONS, check_indexes
from tests.support.harness import cluster_of, decide, refusal, schedule, with_budgets

PROFILE = default_profile("my-scheduler")
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


def trn1(name: str = "n", created: float = 0, **keywords: object) -> Node:
    return node(name, "trn1.32xlarge", created=created, **keywords)  # type: ignore[arg-type]  # passed on as they are


def held(name: str, *ids: int, on: str = "n", **keywords: object) -> Pod:
    return pod(name, devices=len(ids), on=on, ids=ids, **keywords)  # type: ignore[arg-type]  # passed on as they are


def rows(*priorities: int, on: str = "n") -> list[Pod]:
    """Return a pod of four devices for each row of the torus, with these priorities."""
    return [held(f"row{i}", *range(4 * i, 4 * i + 4), on=on, priority=p) for i, p in enumerate(priorities)]


def budget(app: str, allowed: int, name: str = "pdb", **keywords: object) -> DisruptionBudget:
    """Return a budget for the pods of an application."""
    selector = LabelSelector((Requirement("app", Operator.IN, (app,)),))
    return DisruptionBudget(name, "default", name, selector, allowed, **keywords)  # type: ignore[arg-type]  # as given


def terms(count: int, prefix: str = "x") -> tuple[PodAffinityTerm, ...]:
    """Return so many different terms, each about all pods of a node."""
    absent = [
        LabelSelector((Requirement(f"{prefix}{number}", Operator.DOES_NOT_EXIST, ()),)) for number in range(count)
    ]
    return tuple(PodAffinityTerm(HOSTNAME_LABEL, selector, frozenset({"default"})) for selector in absent)


def answer(cluster: Cluster, pending: Pod, budgets: Sequence[DisruptionBudget] = ()) -> Preemption | NoPreemption:
    """Return the result of a search."""
    last = run(search(with_budgets(cluster, budgets), pending, PROFILE, refused=refusal(cluster, pending)))
    assert last is not None
    return last


def victims(cluster: Cluster, pending: Pod, budgets: Sequence[DisruptionBudget] = ()) -> tuple[str, ...] | str:
    """Return node and victims by name, the most important first, or the text."""
    result = answer(cluster, pending, budgets)
    if isinstance(result, NoPreemption):
        return result.text
    return result.node_name, *(victim.name for victim in result.victims.pods)


@pytest.mark.parametrize(
    ("nodes", "bound", "pending", "want"),
    [
        pytest.param(
            [trn1()],
            [*(held(f"high{i}", 4 * i, priority=9) for i in range(4)), held("low", 1, priority=1)],
            pod(devices=4, priority=9),
            "preemption: 0/1 nodes are available: 1 node(s) didn't have a free block of Neuron devices.",
            id="nobody where no block would come free",
        ),
        pytest.param(
            [node("n", "inf2.xlarge")],
            [pod("core", cores=1, on="n", ids=(1,), priority=1)],
            pod(devices=1, priority=9),
            ("n", "core"),
            id="a core keeps a device",
        ),
        pytest.param(
            [trn1()],
            [pod("foreign", devices=2, on="n", priority=1), held("known", 8, priority=0)],
            pod(devices=8, priority=9),
            ("n", "foreign"),
            id="an unknown holder may be on any device",
        ),
        pytest.param(
            [trn1(cpu=4000)],
            [held("devices", *range(16), priority=1), pod("cpu", on="n", cpu=3500, priority=2)],
            pod(devices=4, cpu=1000, priority=9),
            ("n", "cpu", "devices"),
            id="also the pod that uses cpu, where that is scarce",
        ),
        pytest.param(
            [trn1(cpu=4000)],
            [held("half", *range(8), priority=2), pod("cpu", on="n", cpu=3500, priority=1)],
            pod(devices=8, cpu=1000, priority=9),
            ("n", "cpu"),
            id="a block that is free already, and cpu that is not",
        ),
        pytest.param(
            [node("n")],
            [pod("a", on="n", host_ports=(HostPort("TCP", 80),)), pod("b", on="n")],
            pod(host_ports=(HostPort("TCP", 80),), priority=1),
            ("n", "a"),
            id="a host port",
        ),
        pytest.param(
            [node("n", cpu=4000)],
            [pod("a", on="n", cpu=4000, priority=1)],
            pod(cpu=4000, priority=9, never_preempts=True),
            "preemption: not eligible due to preemptionPolicy=Never.",
            id="preemptionPolicy Never",
        ),
        pytest.param(
            [node("n", cpu=4000)],
            [pod("a", on="n", cpu=4000, priority=1)],
            pod(cpu=4000, priority=9, anti_affinity=terms(17)),
            "preemption: not eligible with more than 16 terms about other pods, or with long claims.",
            id="a pod that asks much",
        ),
        pytest.param(
            [node("full", cpu=4000), node("tainted", taints=(Taint("x", Effect.NO_SCHEDULE),)), node("small", cpu=100)],
            [pod("a", on="full", cpu=4000, priority=9), pod("b", on="tainted", priority=1)],
            pod(cpu=500, priority=9),
            f"preemption: 0/3 nodes are available: 1 {NO_VICTIMS}, 2 {NOT_HELPFUL}.",
            id="what cannot be helped, and who is not lower",
        ),
        pytest.param(
            [node("n", cpu=4000)],
            [pod("a", on="n", cpu=3000, priority=9), pod("b", on="n", cpu=500, priority=1)],
            pod(cpu=2000, priority=9),
            "preemption: 0/1 nodes are available: 1 Insufficient cpu.",
            id="the filters' own reasons where all lower pods are not enough",
        ),
        pytest.param(
            [trn1()],
            rows(1, 1, 1, 1),
            pod(devices=7, priority=9),
            f"preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}.",
            id="an illegal count",
        ),
        pytest.param(
            [trn1()],
            rows(1, 1, 1, 1),
            pod(devices=2, cores=3, priority=9),
            f"preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}.",
            id="a pod that is refused whatever the nodes",
        ),
        pytest.param(
            [node("a", cpu=4000), node("b", cpu=4000)],
            [
                pod("high-late", on="a", cpu=2000, priority=5, started=100.0),
                pod("low-early", on="a", cpu=2000, priority=1, started=1.0),
                pod("high-early", on="b", cpu=2000, priority=5, started=50.0),
                pod("low-late", on="b", cpu=2000, priority=1, started=200.0),
            ],
            pod(cpu=4000, priority=9),
            ("a", "high-late", "low-early"),
            id="of equals those whose most important one started last",
        ),
    ],
)
def test_the_victims(nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, want: tuple[str, ...] | str) -> None:
    """These pods are evicted, or this is the reason why none is."""
    result = victims(cluster_of(nodes, bound), pending)
    if isinstance(want, tuple):
        assert (result[0], *sorted(result[1:])) == (want[0], *sorted(want[1:]))
    else:
        assert result == want


@pytest.mark.parametrize(
    ("budgets", "want"),
    [
        pytest.param([], ("n", "low"), id="without budgets the lowest priority"),
        pytest.param([budget("low", 0)], ("n", "high"), id="a violation weighs more than priority"),
        pytest.param([budget("low", 1)], ("n", "low"), id="one that may be missed is missed"),
        pytest.param(
            [budget("low", 0), budget("high", 0, "other")], ("n", "low"), id="if all are violated, the lowest"
        ),
        pytest.param([budget("low", 0, disrupted=frozenset({"low"}))], ("n", "low"), id="counted by the API server"),
        pytest.param([attrs.evolve(budget("low", 0), namespace="other")], ("n", "low"), id="of another namespace"),
        pytest.param([attrs.evolve(budget("low", 0), selector=LabelSelector())], ("n", "low"), id="an empty selector"),
        pytest.param([attrs.evolve(budget("low", 0), selector=None)], ("n", "low"), id="no selector"),
    ],
)
@pytest.mark.parametrize("asked", [{"devices": 8}, {"cpu": 96_000}])
def test_budgets(budgets: Sequence[DisruptionBudget], want: tuple[str, ...], asked: dict[str, int]) -> None:
    """Budgets are respected where that is possible, for devices and for cpu."""
    bound = [
        held("low", *range(8), priority=1, cpu=96_000, labels={"app": "low"}),
        held("high", *range(8, 16), priority=2, cpu=96_000, labels={"app": "high"}),
    ]
    assert victims(cluster_of([trn1()], bound), pod(priority=9, **asked), budgets) == want  # type: ignore[arg-type]


def test_a_budget_is_used_up_by_the_victims() -> None:
    """With four disruptions allowed, a row of four victims violates nothing, and half a node violates four times."""
    bound = [held(f"p{i:02}", i, priority=1, labels={"app": "x"}) for i in range(16)]
    cluster = cluster_of([trn1()], bound)
    for devices, violations in ((4, 0), (8, 4), (16, 12)):
        result = answer(cluster, pod(devices=devices, priority=9), [budget("x", 4)])
        assert isinstance(result, Preemption)
        assert (len(result.victims.pods), result.victims.violations) == (devices, violations)


def full(name: str, created: float, **keywords: object) -> tuple[Node, Pod]:
    """Return a node and the pod that uses all its devices."""
    return trn1(name, created), held(f"on-{name}", *range(16), on=name, **keywords)


def test_a_pod_spared_on_one_node_costs_no_higher_pod_on_another() -> None:
    """A victim of priority 3 on one node is cheaper than one of priority 7 that spares a budget on another."""
    halves = [
        held("covered", *range(8), on="a", priority=0, labels={"app": "x"}),
        held("high", *range(8, 16), on="a", priority=7),
    ]
    for later in (  # a node with room below the same priority, and one that only has it with its 3 gone
        [
            held("low", *range(8), on="b", priority=0, labels={"app": "x"}),
            held("mid", *range(8, 16), on="b", priority=3),
        ],
        [held("mid", *range(16), on="b", priority=3)],
    ):
        cluster = cluster_of([trn1("a"), trn1("b", 1)], [*halves, *later])
        assert victims(cluster, pod(devices=8, priority=9), [budget("x", 0)]) == ("b", "mid")


@pytest.mark.parametrize("asked", [{"devices": 8}, {"cpu": 96_000}])
def test_of_two_pods_of_a_budget_of_one_the_less_important_leaves(asked: dict[str, Any]) -> None:
    """A pod that is reprieved because it is more important does not use the budget up."""
    bound = [
        held("old", *range(8), priority=1, started=1.0, cpu=96_000, labels={"app": "x"}),
        held("new", *range(8, 16), priority=1, started=2.0, cpu=96_000, labels={"app": "x"}),
    ]
    assert victims(cluster_of([trn1()], bound), pod(priority=9, **asked), [budget("x", 1)]) == ("n", "new")


def test_nobody_leaves_for_a_block_where_another_is_free() -> None:
    """A victim for cpu alone violates no budget that the victims of its block do not violate as well."""
    bound = [
        held("stays", *range(4), priority=1, started=1.0, labels={"app": "x"}),
        held("row", *range(4, 8), priority=1, started=2.0, labels={"app": "x"}),
        pod("cpu", on="n", cpu=150_000, priority=1, started=3.0, labels={"app": "x"}),
    ]
    cluster = cluster_of([trn1()], bound)
    assert victims(cluster, pod(devices=4, cpu=100_000, priority=9), [budget("x", 2)]) == ("n", "cpu")


def test_the_search_goes_on_until_the_budgets_are_kept() -> None:
    """The search goes on while all candidates violate a budget, and stops once one violates none, as upstream."""
    fleet = [full(f"n{i:03}", i, priority=1, labels={"app": "x"}) for i in range(120)]
    fleet.append(full("z", 999, priority=2))
    cluster = cluster_of(*zip(*fleet, strict=True))
    assert victims(cluster, pod(devices=16, priority=9), [budget("x", 0)]) == ("z", "on-z")


def nominate(cluster: Cluster, pending: Pod) -> Nomination:
    """Search, and nominate the pod."""
    result = answer(cluster, pending)
    assert isinstance(result, Preemption)
    nomination = confirm(cluster, pending, PROFILE, result)
    assert nomination is not None
    cluster.nominate(result.node_name, nomination)
    return nomination


@pytest.mark.parametrize(
    ("leaving", "changes", "waits"),
    [
        ({"terminating": True, "preempted": True}, {}, True),
        ({"terminating": True}, {}, False),
        ({"terminating": True, "preempted": True, "priority": 9}, {}, False),
        ({"terminating": True, "preempted": True}, {"unschedulable": True}, False),
    ],
    ids=["a victim ends", "somebody ends by himself", "it is no victim of this pod", "the node is cordoned"],
)
def test_a_leader_that_takes_over_in_the_middle_of_evictions_evicts_nobody_elsewhere(
    leaving: dict[str, Any], changes: dict[str, Any], waits: bool
) -> None:
    """One of two victims has not been asked yet, so only the pod's status names the node; upstream waits, too."""
    fleet = [node("n", "trn1.32xlarge", **changes), node("m", "trn1.32xlarge", created=1)]
    halves = [pod("a", on="n", devices=8, ids=range(8), **leaving), pod("b", on="n", devices=8, ids=range(8, 16))]
    cluster = cluster_of(fleet, [*halves, pod("cheap", on="m", devices=16, ids=range(16), priority=-1)])
    result = answer(cluster, pod("big", devices=16, priority=9, nominated_node_name="n"))
    assert isinstance(result, NoPreemption) is waits
    assert waits or (isinstance(result, Preemption) and result.node_name == "m")


def test_the_nominated_block_is_kept_from_lower_pods() -> None:
    """While the victims leave and afterwards the nominated pod keeps its block, and other pods get what is left."""
    cluster = cluster_of([trn1()], [*rows(1, 1), held("other", *range(8, 12), priority=5)])
    big = pod("big", devices=8, priority=5)
    assert nominate(cluster, big).cores == 0xFFFF
    assert answer(cluster, big) == NoPreemption(
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    for uid in ("uid-row0", "uid-row1"):
        cluster.remove_pod(uid)
    assert refusal(cluster, pod("late", devices=8, priority=5)).reasons
    assert schedule(cluster, pod("small", devices=4, priority=1)) == ("n", (12, 13, 14, 15))
    assert isinstance(schedule(cluster, pod("smaller", devices=1, priority=1)), str)
    assert schedule(cluster, big) == ("n", tuple(range(8)))
    assert cluster.nomination("uid-big") is None


def test_a_higher_pod_may_take_nominated_space() -> None:
    """A nomination keeps space from pods of equal and lower priority only."""
    cluster = cluster_of([trn1()], [held("low", *range(16), priority=1)])
    nominate(cluster, pod("mid", devices=16, priority=5))
    cluster.remove_pod("uid-low")
    assert schedule(cluster, pod("high", devices=16, priority=6)) == ("n", tuple(range(16)))
    result = answer(cluster, pod("mid", devices=16, priority=5))
    assert result == NoPreemption(
        f"preemption: 0/1 nodes are available: 1 {NO_VICTIMS}.", gives_up=True, plugins=frozenset({"NodeResourcesFit"})
    )


SPREAD = (
    SpreadConstraint(HOSTNAME_LABEL, 1, hard=True, selector=LabelSelector((Requirement("app", Operator.IN, ("a",)),))),
)
APART = (PodAffinityTerm(HOSTNAME_LABEL, SPREAD[0].selector, frozenset({"default"})),)
IN_ZONE, A = (attrs.evolve(APART[0], topology_key=ZONE_LABEL),), {"app": "a"}


@pytest.mark.parametrize("never_preempts", [False, True])
@pytest.mark.parametrize(
    ("asking", "beside"),
    [
        pytest.param({"affinity": IN_ZONE}, {"labels": {"app": "b"}}, id="none is near"),
        pytest.param({"anti_affinity": IN_ZONE, "labels": A}, {"labels": A}, id="one is near"),
        pytest.param({"labels": A}, {"anti_affinity": IN_ZONE}, id="one that keeps it away"),
        pytest.param(
            {"spread": (attrs.evolve(SPREAD[0], topology_key=ZONE_LABEL),), "labels": A}, {"labels": A}, id="too many"
        ),
    ],
)
def test_what_refuses_all_nodes_whatever_leaves_one_is_all_that_a_pod_waits_for(
    asking: dict[str, Any], beside: dict[str, Any], *, never_preempts: bool
) -> None:
    """The end of any other pod would wake it in vain, and its search would ask the filters node by node."""
    fleet = [trn1(name, labels={ZONE_LABEL: "x"}) for name in ("a", "b", "c")]
    fleet.append(trn1("d", labels={ZONE_LABEL: "y"}, unschedulable=True))
    low = [held(f"low-{name}", *range(16), on=name, priority=1) for name in ("a", "b")]
    cluster = cluster_of(fleet, [*low, pod("beside", on="c", priority=2, **beside)])
    pending = pod(devices=16, priority=2, never_preempts=never_preempts, **asking)
    with mock.patch(f"{search.__module__}.victims_on", side_effect=AssertionError("no eviction can help")):
        result = answer(cluster, pending)
    assert isinstance(result, NoPreemption)
    assert result.plugins <= {"NodeUnschedulable", *COUNTING_PODS}
    assert result.plugins & COUNTING_PODS


@pytest.mark.parametrize(
    ("nominated", "asking", "reason"),
    [
        pytest.param({}, {"anti_affinity": APART}, "didn't match pod anti-affinity rules", id="it keeps away"),
        pytest.param(
            {"anti_affinity": APART}, {}, "didn't satisfy existing pods anti-affinity rules", id="it is kept away"
        ),
        pytest.param({}, {"spread": SPREAD}, "didn't match pod topology spread constraints", id="it spreads"),
    ],
)
def test_nominated_pods_count_for_affinity_and_spread(
    nominated: dict[str, Any], asking: dict[str, Any], reason: str
) -> None:
    """The other node is taken; where it is closed, the reason is that of the filter."""
    there = pod("nominated", labels={"app": "a"}, priority=5, **nominated)
    pending = pod("pending", labels={"app": "a"}, priority=5, **asking)
    nodes = [node(name, created=age, labels={HOSTNAME_LABEL: name}) for age, name in enumerate("ab")]
    cluster = cluster_of(nodes)
    cluster.nominate("a", Nomination(there))
    decision = decide(cluster, pending)
    assert isinstance(decision, Decision)
    assert decision.node_name == "b"
    cluster.put_node(attrs.evolve(nodes[1], unschedulable=True))
    assert f"1 node(s) {reason}" in refusal(cluster, pending).text
    higher = decide(cluster, attrs.evolve(pending, priority=6))
    assert isinstance(higher, Decision)
    assert higher.node_name == "a"


def test_the_nominated_node_comes_first() -> None:
    """A pod goes to its nominated node, although another node has become free that would be better."""
    cluster = cluster_of(
        [trn1("a"), trn1("b", 1)],
        [held("a", *range(16), on="a", priority=2), held("b", *range(16), on="b", priority=1)],
    )
    pending = pod("p", devices=16, priority=9)
    nominate(cluster, pending)
    cluster.remove_pod("uid-a")
    cluster.remove_pod("uid-b")
    decision = decide(cluster, pending)
    assert isinstance(decision, Decision)
    assert (decision.node_name, decision.evaluated) == ("b", 1)


def test_what_changed_in_the_meantime_is_noticed() -> None:
    """No pod is evicted if a victim is gone, the pod fits anyway, or the node has gone or is closed."""
    pending = pod("p", devices=8, priority=9)
    for change in (
        lambda cluster: cluster.remove_pod("uid-row0"),
        lambda cluster: [cluster.remove_pod(f"uid-row{i}") for i in (2, 3)],
        lambda cluster: cluster.remove_node("n"),
        lambda cluster: cluster.put_node(trn1(unschedulable=True)),
    ):
        cluster = cluster_of([trn1()], rows(1, 1, 2, 2))
        result = answer(cluster, pending)
        assert isinstance(result, Preemption)
        change(cluster)
        assert confirm(cluster, pending, PROFILE, result) is None


def test_a_nomination_outlives_a_restart() -> None:
    """A nomination is rebuilt from the status of the pod and of its victims, with cores that are chosen again."""
    leaving = [attrs.evolve(p, terminating=True, preempted=True) for p in rows(1, 1)]
    cluster = cluster_of([trn1()], [*leaving, held("other", *range(8, 16), priority=1)])
    pending = pod("p", devices=8, priority=9, nominated_node_name="n")
    nomination = rebuild(cluster, pending, PROFILE)
    assert nomination is not None
    assert nomination.cores == 0xFFFF
    assert rebuild(cluster, attrs.evolve(pending, nominated_node_name="gone"), PROFILE) is None
    cluster = cluster_of([trn1()], rows(1, 1, 1, 1))
    assert rebuild(cluster, pending, PROFILE) is None


def test_the_search_leaves_the_cluster_as_it_was() -> None:
    """After a search every row is what it was."""
    cluster = cluster_of([trn1("a"), trn1("b", 1)], [*rows(1, 2, 3, 4, on="a"), held("x", *range(16), on="b")])
    before = list(cluster.view.rows())
    assert isinstance(answer(cluster, pod(devices=8, priority=9)), Preemption)
    assert list(cluster.view.rows()) == before
    assert [row.pod_infos for row in cluster.view.rows()] == [row.pod_infos for row in before]


@pytest.mark.parametrize(
    ("spared", "asked", "want"),
    [
        pytest.param((), 100, ("n000", "on-n000"), id="no pod may leave within the budgets"),
        pytest.param(("n250",), 101, ("n250", "on-n250"), id="one may"),
        pytest.param(("n250", "n260"), 101, ("n250", "on-n250"), id="of two the first is enough"),
    ],
)
def test_beyond_the_budgets_only_nodes_are_asked_that_could_keep_to_them(
    spared: tuple[str, ...], asked: int, want: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With enough candidates, nodes where every victim would violate a budget are not looked at."""
    names = [f"n{i:03}" for i in range(300)]
    fleet = [full(name, i, priority=1, labels={"app": "y" if name in spared else "x"}) for i, name in enumerate(names)]
    runs = list[str]()

    def counting(node_info: NodeInfo, *rest: Any) -> Any:
        runs.append(node_info.node.name)
        return victims_by_counting(node_info, *rest)

    monkeypatch.setattr("neuron_scheduler.scheduling.preemption.search.victims_by_counting", counting)
    result = victims(cluster_of(*zip(*fleet, strict=True)), pod(devices=16, priority=9), [budget("x", 0)])
    assert (result, len(runs)) == (want, asked)


def test_the_search_for_a_second_pod_counts_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes are counted once for pods that ask for the same, until they or the budgets of their pods change."""
    fleet = [full(f"n{i}", i, priority=1, labels={"app": "x" if i else "y"}) for i in range(9)]
    cluster, runs = cluster_of(*zip(*fleet, strict=True)), list[str]()

    def counting(node_info: NodeInfo, *rest: Any) -> Any:
        runs.append(node_info.node.name)
        return victims_by_counting(node_info, *rest)

    monkeypatch.setattr("neuron_scheduler.scheduling.preemption.search.victims_by_counting", counting)

    budgets = list[DisruptionBudget]()

    def counted(there: Cluster, name: str, *now: DisruptionBudget) -> list[str]:
        runs.clear()
        budgets[:] = now
        assert isinstance(answer(there, pod(name, devices=16, priority=9), budgets), Preemption)
        return runs[:]

    names = [f"n{i}" for i in range(9)]
    assert counted(cluster, "first", budget("y", 1)) == names
    assert counted(cluster, "second", budget("y", 1)) == []
    assert counted(cluster, "third", budget("y", 0)) == ["n0"]
    assert counted(cluster, "fourth", budget("y", 0), budget("x", 3, "other")) == names[1:]
    cluster.put_pod(held("on-n4", *range(16), on="n4", priority=1, started=4.0, labels={"app": "x"}))
    fork = cluster.fork()
    fork.put_pod(held("on-n7", *range(16), on="n7", priority=1, started=7.0, labels={"app": "x"}))
    assert counted(fork, "fifth", budget("y", 0), budget("x", 3, "other")) == ["n4", "n7"]
    assert counted(cluster, "sixth", budget("y", 0), budget("x", 3, "other")) == []


def test_a_node_that_changes_during_the_search_is_named_by_its_plugin() -> None:
    """The pod is tried again once the node takes pods again, although that was not why it had been refused."""
    cluster = cluster_of([trn1()], rows(1, 1, 1, 1))
    pending = pod(devices=8, priority=9)
    steps = search(cluster, pending, PROFILE, refused=refusal(cluster, pending))
    assert next(steps) is None
    cluster.put_node(trn1(unschedulable=True))
    last = run(steps)
    assert isinstance(last, NoPreemption)
    assert "NodeUnschedulable" in last.plugins


@pytest.mark.parametrize("pods", [25, 50])
def test_a_search_compares_each_pod_a_few_times(pods: int) -> None:
    """A pod that may stay is one change of the counts: however many there are."""
    lower = [pod(f"p{number}", on="n", cpu=10, priority=1) for number in range(pods)]
    others = [pod(f"other{number}", on="m", cpu=10, priority=10) for number in range(500)]
    nodes = [node(name, cpu=100_000, labels={HOSTNAME_LABEL: name}, pods=1000) for name in "nm"]
    cluster = cluster_of(nodes, lower + others)
    compared, matches = Counter[str](), PodQuery.matches

    def counting(definition: PodQuery, other: Pod) -> bool:
        compared[other.name] += 1
        return matches(definition, other)

    with mock.patch.object(PodQuery, "matches", counting):
        found = victims(cluster, pod(cpu=10, priority=9, anti_affinity=terms(4)))
    assert len(found) == 1 + pods
    assert max(compared[other.name] for other in lower) <= 4 * 10


@pytest.mark.parametrize("pods", [25, 50])
def test_a_search_asks_each_term_once(pods: int) -> None:
    """However many pods may stay: those whose terms keep the pod away are found once, and no term is moved."""
    nodes = [node(name, cpu=1000, labels={HOSTNAME_LABEL: name}, pods=1000) for name in "nm"]
    lower = [pod(f"p{n}", on="n", cpu=10, priority=1, anti_affinity=terms(4, f"p{n}-")) for n in range(pods)]
    lower += [pod(f"q{n}", on="n", cpu=10, priority=1) for n in range(pods)]
    others = [pod(f"other{n}", on="m", cpu=10, priority=10, anti_affinity=terms(4, f"o{n}-")) for n in range(pods)]
    cluster, pending = cluster_of(nodes, lower + others), pod(cpu=10, priority=9)
    refused, compared, matches = refusal(cluster, pending), Counter[PodAffinityTerm](), affinity_terms._matches
    cluster.put_pod(
        pod("changed", on="m", anti_affinity=terms(1, "changed"))
    )  # nothing is known of an earlier question

    def counting(term: PodAffinityTerm, *asked: Any) -> bool:
        compared[term] += 1
        return matches(term, *asked)

    with (
        mock.patch.object(affinity_terms, "_matches", counting),
        mock.patch.object(affinity_terms.TermTable, "replace", side_effect=AssertionError),
    ):
        found = run(search(cluster, pending, PROFILE, refused=refused))
    assert isinstance(found, Preemption)
    assert {victim.name for victim in found.victims.pods} == {f"p{n}" for n in range(pods)}
    assert set(compared.values()) == {1}


def cluster_of_many_pods() -> Cluster:
    """Return a cluster of two nodes: 150 pods of one may be evicted, the other takes no more pods."""
    nodes = [node(name, cpu=2000, labels={HOSTNAME_LABEL: name}, pods=200 * (name == "n")) for name in "nm"]
    return cluster_of(nodes, [pod(f"p{number}", on="n", cpu=10, priority=1) for number in range(150)])


def test_a_search_pauses_within_a_node() -> None:
    """In one step a part of the pods is put back on trial, however many a node has."""
    cluster, pending, asked = cluster_of_many_pods(), pod(cpu=10, priority=9, anti_affinity=terms(1)), list[Slot]()
    steps, most = search(cluster, pending, PROFILE, refused=refusal(cluster, pending)), 0

    def counting(there: Cluster, slot: Slot, *rest: Any) -> list[Refusal]:
        asked.append(slot)
        return refusals_on(there, slot, *rest)

    with mock.patch("neuron_scheduler.scheduling.preemption.victims.refusals_on", counting):
        for _ in steps:
            most = max(most, len(asked))
            asked.clear()
    assert 10 < most < 70


@pytest.mark.parametrize("name", "nm")
def test_a_node_that_changes_in_a_pause_is_looked_at_again(name: str) -> None:
    """A pod has ended, or is on another node: it is no victim, and in all indexes it is where it is now."""
    pending, pauses = pod(cpu=10, priority=9, anti_affinity=terms(1)), 0
    for pauses in range(50):
        cluster = cluster_of_many_pods()
        steps = search(cluster, pending, PROFILE, refused=refusal(cluster, pending))
        if len(list(islice(steps, pauses))) < pauses:
            break
        cluster.remove_pod("uid-p7")
        if name == "m":
            cluster.put_pod(pod("p7", on="m", cpu=10, priority=1))
        found = run(steps)
        check_indexes(cluster, range(DEFINITIONS))
        assert isinstance(found, Preemption)
        named = "uid-p7" in {victim.uid for victim in found.victims.pods}
        assert len(found.victims.pods) == 149 + named
        assert (confirm(cluster, pending, PROFILE, found) is None) == named
    assert 5 < pauses < 49
