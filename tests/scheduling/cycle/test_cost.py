"""
What a decision costs, without a clock: calls, none of which may depend on how many nodes there are, and memory kept.

Wall time says little on a shared machine. A loop over nodes or pods, an index that is built for every pod, or a log
that is never cut shows in these numbers at once.
"""

import gc
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType

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

PROFILE = default_profile("p")
WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))

PLAIN = Constraints(node_selector={ZONE_LABEL: "zone-1"})
SPREAD = Constraints(spread=(SpreadConstraint(ZONE_LABEL, max_skew=1, hard=True, selector=WEB),))
APART = Constraints(anti_affinity=(PodAffinityTerm(HOSTNAME_LABEL, WEB, frozenset({"default"})),))
NEAR = Constraints(affinity=(PodAffinityTerm(ZONE_LABEL, WEB, frozenset({"default"})),))


def _fleet(count: int) -> Cluster:
    cluster = Cluster()
    for i in range(count):
        labels = {ZONE_LABEL: f"zone-{i % 3}", HOSTNAME_LABEL: f"n{i}"}
        cluster.put_node(node(f"n{i:05}", "trn1.32xlarge", created=i, labels=labels))
    return cluster


def _pod(number: int, constraints: Constraints, *, devices: int = 1) -> Pod:
    """Return a pod that asks for amounts no other asks for."""
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


def _calls(step: Callable[[], object]) -> int:
    """Return how many functions, C's included, are called in a step."""
    count = 0

    def see(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize(
    ("constraints", "most"),
    [
        pytest.param(PLAIN, 360, id="plain"),
        pytest.param(SPREAD, 490, id="spread by zone"),
        pytest.param(APART, 550, id="apart by hostname"),
        pytest.param(NEAR, 550, id="near by zone"),
    ],
)
def test_a_decision_costs_the_same_in_a_large_cluster(constraints: Constraints, most: int) -> None:
    """Decision and assumption take as many calls among 1,600 nodes as among 100, and not more than stated."""
    costs = []
    for nodes in (100, 1600):
        cluster = _fleet(nodes)
        for number in range(20):
            _place(cluster, _pod(number, constraints))
        costs.append([_calls(partial(_place, cluster, _pod(number, constraints))) for number in range(20, 60)])
    small, large = (sum(cost) / len(cost) for cost in costs)
    assert large <= 1.1 * small
    assert large <= most, large


def test_a_diagnosis_costs_the_same_in_a_large_cluster() -> None:
    """To say why no node will do takes as many calls among 1,600 nodes as among 100."""
    costs = []
    for nodes in (100, 1600):
        cluster = _fleet(nodes)
        for number in range(20):
            _place(cluster, _pod(number, PLAIN, devices=4))
        never = attrs.evolve(_pod(1, PLAIN), requests={"cpu": 10**9})
        assert isinstance(schedule_pod(cluster, never, PROFILE), FitError)
        costs.append(_calls(partial(schedule_pod, cluster, never, PROFILE)))
    assert costs[1] <= 1.1 * costs[0]
    assert costs[1] <= 220, costs


def test_unknown_holders_are_named_for_the_same_in_a_large_cluster() -> None:
    """To say which pods stand in the way takes as many calls with 1,600 of them as with 100."""
    costs = []
    for nodes in (100, 1600):
        cluster = _fleet(nodes)
        for number in range(nodes):
            cluster.put_pod(pod(f"u{number}", devices=1, on=f"n{number:05}"))
        pending = _pod(1, PLAIN, devices=4)
        found = schedule_pod(cluster, pending, PROFILE)
        assert isinstance(found, FitError)
        assert found.blocked
        costs.append(_calls(partial(schedule_pod, cluster, pending, PROFILE)))
    assert costs[1] <= 1.1 * costs[0]


def test_nothing_is_kept_of_pods_that_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of pods that were decided, assumed and taken off again leave no memory allocated."""
    monkeypatch.setattr(indexes, "_MIN_LOG", 16)
    cluster = _fleet(50)

    def least(rounds: int) -> int:
        """Return the fewest blocks in use after any pod of several hundred: logs are cut from time to time."""
        found = []
        for _ in range(rounds):
            for number in range(150):
                cluster.forget(_place(cluster, _pod(number, PLAIN)).uid)
                found.append(sys.getallocatedblocks())
        return min(found)

    least(2)
    gc.collect()
    before = least(2)
    gc.collect()
    assert least(6) - before < 100
