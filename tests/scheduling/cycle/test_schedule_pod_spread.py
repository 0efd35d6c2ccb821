"""Topology spread against the oracle, in clusters where little else decides, so that rare cases come together."""

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, PreferredTerm, Requirement, Taint
from tests.scheduling.cycle.test_schedule_pod_properties import unanimous
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.random_objects import OWNERS, some_workloads, spread_constraint
from tests.support.thoroughness import examples

NAMES = "abcdefgh"
DEDICATED = (Taint("dedicated", Effect.NO_SCHEDULE),)


def some_node(dice: Random, name: str) -> Node:
    """Return a node in some domains; a hostname may be shared, and any key may be missing."""
    labels = {
        ZONE_LABEL: dice.choice(["x", "x", "y", "z", None]),
        HOSTNAME_LABEL: dice.choice([name, name, name, name, "a", None]),
        "rank": dice.choice(["5", "7", None]),
        "pool": dice.choice(["1", "2"]),
    }
    return node(
        name,
        created=dice.randint(0, 3),
        cpu=8_000 + 8_000 * dice.randint(0, 1),
        labels={key: value for key, value in labels.items() if value is not None},
        taints=DEDICATED if dice.random() < 0.25 else (),
    )


def bound_pod(dice: Random, name: str) -> Pod:
    """Return a pod of the application, or of another one, on some node."""
    return pod(
        name,
        on=dice.choice(NAMES),
        labels={"app": dice.choice(["web", "web", "web", "db"])},
        namespace=dice.choice(["default"] * 5 + ["other"]),
        terminating=dice.random() < 0.1,
    )


def pending_pod(dice: Random, name: str) -> Pod:
    """Return a pod with constraints, or without, which the system default then spreads."""
    near = NodeSelectorTerm((Requirement("pool", Operator.IN, ("1",)),))
    return pod(
        name,
        labels=dice.choice([{"app": "web"}, {"app": "web"}, {"app": "web", "rank": "5"}, {}]),
        owner=dice.choice(OWNERS),
        spread=tuple(spread_constraint(dice) for _ in range(dice.randint(0, 3))),
        node_selector=dice.choice([{}, {}, {"pool": "1"}, {"rank": "5"}]),
        preferred_terms=dice.choice([(), (PreferredTerm(dice.randint(1, 100), near),)]),
    )


def play(dice: Random) -> int:
    """Schedule a few pods one after the other, as nodes change their domains; return how many were placed."""
    nodes = [some_node(dice, name) for name in NAMES[: dice.randint(1, 8)]]
    bound = [bound_pod(dice, f"bound-{i}") for i in range(dice.randint(0, 16))]
    cluster, workloads, count = cluster_of(nodes, bound), some_workloads(dice), 0
    for workload in workloads:
        cluster.workloads.put(workload)
    for i in range(3):
        assumed = unanimous(cluster, nodes, bound, pending_pod(dice, f"pod-{i}"), workloads=workloads)
        if assumed is not None:
            cluster.put_pod(assumed)
            bound.append(assumed)
            count += 1
        if dice.random() < 0.3:
            nodes[0] = some_node(dice, nodes[0].name)
            cluster.put_node(nodes[0])
    return count


@settings(max_examples=examples(30))
@given(dice=st.randoms(use_true_random=False))
def test_spreading_is_the_obvious_one(dice: Random) -> None:
    """Refusals, feasible nodes and the choice agree with the oracle; failures are shrunk."""
    play(dice)


@pytest.mark.parametrize("part", range(examples(5)))
def test_spreading_is_the_obvious_one_a_thousand_times(part: int) -> None:
    """The same with ordinary random numbers, so often that rare cases come together."""
    assert sum(play(Random(seed)) for seed in range(part * 200, part * 200 + 200)) > 300
