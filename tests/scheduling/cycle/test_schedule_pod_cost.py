"""
What a decision costs, without a clock: index operations, growth with the number of nodes, and memory kept.

Wall time says little on a shared machine. A loop over nodes or pods, an index that is built for every pod, or a log
that is never cut shows in these numbers at once. How many functions are called is for `benchmarks.calls`.
"""

import gc
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index import indexes
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement, SpreadConstraint
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod
from tests.support.builders import GI, node, pod
from tests.support.index_work import counted_index_work

PROFILE = default_profile("p")
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))

PLAIN = Constraints(node_selector={ZONE_LABEL: "zone-1"})
SPREAD = Constraints(spread=(SpreadConstraint(ZONE_LABEL, max_skew=1, hard=True, selector=WEB),))
APART = Constraints(anti_affinity=(PodAffinityTerm(HOSTNAME_LABEL, WEB, frozenset({"default"})),))
NEAR = Constraints(affinity=(PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default"})),))

MOST_ASKED: Final = 24
"""Indexes that one decision may ask for, 12 to 18 today: a question that is asked twice exceeds it."""
MOST_ROWS: Final = 8
"""Rows that one decision and one assumption may read, 5 today: those of the chosen node."""


def _fleet(count: int) -> Cluster:
    cluster = Cluster()
    for i in range(count):
        labels = {ZONE_LABEL: f"zone-{i % 3}", HOSTNAME_LABEL: f"n{i}"}
        cluster.put_node(node(f"n{i:05}", "trn1.32xlarge", created=i, labels=labels))
    return cluster


def _pod(number: int, constraints: Constraints, *, devices: int = 1) -> Pod:
    """Return a pod that asks for amounts that no other pod asks for."""
    return pod(
        f"p{number}",
        labels={"app": "web"},
        cpu=100 + number,
        memory=GI + number,
        devices=devices,
        constraints=constraints,
    )


def _place(cluster: Cluster, pending: Pod) -> Pod:
    decision = schedule_pod(cluster, pending, PROFILE)
    assert isinstance(decision, Decision)
    placed = attrs.evolve(pending, node_name=decision.node_name)
    cluster.assume(placed, decision.placement.cores if decision.placement else NO_CORES)
    return placed


def _lines(step: Callable[[], object]) -> int:
    """Return how many lines of Python a step executes; a loop counts once for each turn."""
    count = 0

    def see(_: FrameType, event: str, __: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


SORTS = [
    pytest.param(PLAIN, id="plain"),
    pytest.param(SPREAD, id="spread by zone"),
    pytest.param(APART, id="apart by hostname"),
    pytest.param(NEAR, id="near by zone"),
]


def _with_pods(nodes: int, constraints: Constraints) -> Cluster:
    """Return a fleet where pods of a sort were placed before, so that their indexes are there."""
    cluster = _fleet(nodes)
    for number in range(20):
        _place(cluster, _pod(number, constraints))
    return cluster


@pytest.mark.parametrize("constraints", SORTS)
def test_a_decision_costs_the_same_in_a_large_cluster(constraints: Constraints) -> None:
    """Decision and assumption execute as many lines among 1,600 nodes as among 100."""
    costs = []
    for nodes in (100, 1600):
        cluster = _with_pods(nodes, constraints)
        costs.append(sum(_lines(partial(_place, cluster, _pod(number, constraints))) for number in range(20, 60)))
    assert costs[1] <= 1.1 * costs[0]


@pytest.mark.parametrize("constraints", SORTS)
def test_a_decision_uses_the_indexes_that_are_there(constraints: Constraints) -> None:
    """A pod that asks for amounts no other asks for builds no index; few are asked, and few rows are read."""
    cluster = _with_pods(1600, constraints)
    with counted_index_work() as work:
        for number in range(20, 60):
            _place(cluster, _pod(number, constraints))
    assert work.built == 0
    assert 0 < work.asked <= MOST_ASKED * 40
    assert 0 < work.rows <= MOST_ROWS * 40


@pytest.mark.parametrize("constraints", SORTS)
def test_an_assumption_changes_each_index_once(constraints: Constraints) -> None:
    """The row that takes a pod is replaced once, and each index takes that change once, when it is asked again."""
    cluster = _with_pods(1600, constraints)
    rows = cluster._table.of_rows
    indexes_of_rows, changes = len(rows._by_definition), rows.log.end
    with counted_index_work() as work:
        for number in range(20, 60):
            _place(cluster, _pod(number, constraints))
    assert rows.log.end - changes == 40
    assert len(rows._by_definition) == indexes_of_rows
    assert 0 < work.updated <= indexes_of_rows * 40


def test_a_diagnosis_costs_the_same_in_a_large_cluster() -> None:
    """The reasons why no node will do take as many lines among 1,600 nodes as among 100, and no index is built."""
    costs = []
    for nodes in (100, 1600):
        cluster = _fleet(nodes)
        for number in range(20):
            _place(cluster, _pod(number, PLAIN, devices=4))
        never = attrs.evolve(_pod(1, PLAIN), requests={"cpu": 10**9})
        assert isinstance(schedule_pod(cluster, never, PROFILE), FitError)
        costs.append(_lines(partial(schedule_pod, cluster, never, PROFILE)))
        with counted_index_work() as work:
            schedule_pod(cluster, never, PROFILE)
        assert (work.built, work.rows) == (0, 0)
        assert 0 < work.asked <= MOST_ASKED
    assert costs[1] <= 1.1 * costs[0]


def test_unknown_holders_are_named_for_the_same_in_a_large_cluster() -> None:
    """The names of the pods that block the nodes take as many lines with 1,600 of them as with 100."""
    costs = []
    for nodes in (100, 1600):
        cluster = _fleet(nodes)
        for number in range(nodes):
            cluster.put_pod(pod(f"u{number}", devices=1, on=f"n{number:05}"))
        pending = _pod(1, PLAIN, devices=4)
        refused = schedule_pod(cluster, pending, PROFILE)
        assert isinstance(refused, FitError)
        assert refused.blocked
        costs.append(_lines(partial(schedule_pod, cluster, pending, PROFILE)))
    assert costs[1] <= 1.1 * costs[0]


def test_nothing_is_kept_of_pods_that_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of pods that were decided, assumed and taken off again leave no memory allocated."""
    monkeypatch.setattr(indexes, "_FEWEST_LOGGED", 16)
    cluster = _fleet(50)

    def least(rounds: int) -> int:
        """Return the fewest blocks in use after any pod of several hundred: logs are cut from time to time."""
        allocated = []
        for _ in range(rounds):
            for number in range(150):
                cluster.forget(_place(cluster, _pod(number, PLAIN)).uid)
                allocated.append(sys.getallocatedblocks())
        return min(allocated)

    least(2)
    gc.collect()
    before = least(2)
    gc.collect()
    assert least(6) - before < 100
