"""The victims are the cheapest legal set there is: every set of lower pods is tried, on nodes small enough for that."""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from math import inf
from random import Random
from typing import Any

import pytest

from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.topology import legal_sets, place
from neuron_scheduler.scheduling.decide import Decision
from neuron_scheduler.scheduling.preemption import Preemption, search
from neuron_scheduler.scheduling.profile import default_profile
from tests.builders import machine, node, pod, request
from tests.scheduling import oracle
from tests.scheduling.harness import cluster_of, decide

PROFILE = default_profile("my-scheduler")
TYPES = ("inf2.24xlarge", "trn1.32xlarge", "inf1.6xlarge", "inf2.xlarge")
ASKED: tuple[dict[str, Any], ...] = (
    *({"devices": count} for count in (1, 2, 3, 4, 8, 16)),
    *({"cores": count} for count in (1, 2, 4, 8)),
    {"devices": (1, 1)},
    {"devices": 1, "init": (4,)},
)
APPS = ("a", "b")


def some_tenants(dice: Random, on: Node) -> list[Pod]:
    """Return up to seven pods that hold disjoint legal sets, until a draw does not fit."""
    found: list[Pod] = []
    silicon = machine_of(on)
    assert silicon is not None
    free = silicon.all_cores
    for number in range(dice.randint(1, 7)):
        asked = dice.choice(ASKED[:10])
        wanted = pod("x", **asked).neuron
        sets = [cores for cores in (wanted and legal_sets(silicon, wanted)) or () if not cores & ~free]
        if not sets or wanted is None:
            continue
        cores = dice.choice(sets)
        free &= ~cores
        placement = place(silicon, cores, wanted)
        assert placement is not None
        found.append(
            pod(
                f"{on.name}{number}",
                on=on.name,
                ids=placement.ids,
                priority=dice.choice([-3, 0, 0, 1, 2, 9]),
                started=dice.choice([None, 1.0, 2.0]),
                labels={"app": dice.choice(APPS)},
                **asked,
            )
        )
    return found


def groups(pods: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    """Yield every set of pods."""
    return chain.from_iterable(combinations(pods, size) for size in range(len(pods) + 1))


def cost(victims: Sequence[Pod], budgets: Sequence[DisruptionBudget]) -> tuple[float, ...]:
    """Return kube-scheduler's criteria, from the documents."""
    ordered = sorted(victims, key=lambda p: (-p.priority, inf if p.started is None else p.started, p.key))
    highest = ordered[0].priority
    starts = [inf if p.started is None else p.started for p in ordered if p.priority == highest]
    total = sum(p.priority + 2**31 for p in ordered)
    return (violations(ordered, budgets), highest, total, len(ordered), -min(starts))


def violations(ordered: Sequence[Pod], budgets: Sequence[DisruptionBudget]) -> int:
    """Return how many pods go beyond a budget, each budget counted on its own."""
    beyond = set()
    for budget in budgets:
        matching = [p for p in ordered if p.labels["app"] == budget.name]
        beyond |= {p.uid for p in matching[budget.allowed :]}
    return len(beyond)


def cheapest(
    nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, budgets: Sequence[DisruptionBudget]
) -> tuple[float, ...] | None:
    """Return the least cost of any set of lower pods of one node whose end would let the pod in; None without any."""
    costs = []
    for each in nodes:
        here = [p for p in bound if p.node_name == each.name]
        lower = [p for p in here if p.priority < pending.priority]
        for group in groups(lower):
            left = [p for p in here if p not in group]
            if group and not oracle.refusals(each, left, pending, trusting=False):
                costs.append(cost(group, budgets))
    return min(costs, default=None)


@pytest.mark.parametrize("seed", range(8))
def test_the_victims_are_the_cheapest_legal_set(seed: int) -> None:
    """As every set of lower pods is tried, none is cheaper; where none would do, nobody leaves."""
    dice = Random(seed)
    preempted = 0
    for _ in range(60):
        nodes = [node(name, dice.choice(TYPES), created=age) for age, name in enumerate("ab"[: dice.randint(1, 2)])]
        bound = [tenant for each in nodes for tenant in some_tenants(dice, each)]
        pending = pod("pending", priority=dice.choice([1, 2, 9, 10]), **dice.choice(ASKED))
        budgets = [
            DisruptionBudget(
                app, "default", app, LabelSelector((Requirement("app", Operator.IN, (app,)),)), dice.randint(0, 2)
            )
            for app in APPS
            if dice.random() < 0.5
        ]
        cluster = cluster_of(nodes, bound)
        refused = decide(cluster, pending)
        if isinstance(refused, Decision):
            continue
        *_, found = search(cluster, pending, PROFILE, refused=refused, budgets=budgets)
        want = cheapest(nodes, bound, pending, budgets)
        if isinstance(found, Preemption):
            preempted += 1
            assert cost(found.victims.pods, budgets) == want
        else:
            assert want is None
    assert preempted


@pytest.mark.parametrize("instance_type", TYPES)
@pytest.mark.parametrize("asked", ASKED)
def test_the_legal_sets_are_all_that_place_can_give(instance_type: str, asked: dict[str, Any]) -> None:
    """Each is given where it alone is free, and what is given within any free cores contains none but a listed one."""
    silicon, wanted = machine(instance_type), request(**asked)
    sets = legal_sets(silicon, wanted)
    assert sets is not None
    assert all((found := place(silicon, cores, wanted)) is not None and found.cores == cores for cores in sets)
    dice = Random(7)
    for _ in range(200):
        found = place(silicon, dice.getrandbits(silicon.cores), wanted)
        assert found is None or found.cores in sets
