"""The victims are the cheapest legal set there is: every set of lower pods is tried, on nodes small enough for that."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.neuron.catalog import Machine, machine_of
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import legal_sets, place
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.preemption.comparison import NoPreemption, Preemption
from neuron_scheduler.scheduling.preemption.search import search
from tests.support.builders import machine, node, pod, request
from tests.support.harness import cluster_of, decide
from tests.support.oracle_preemption import Cost, cheapest, cost, reprieved
from tests.support.thoroughness import examples

PROFILE = default_profile("my-scheduler")
TYPES = ("inf2.24xlarge", "trn1.32xlarge", "inf1.6xlarge", "inf2.xlarge")
ASKED: tuple[dict[str, Any], ...] = (
    *({"devices": count} for count in (1, 2, 3, 4, 8, 16)),
    *({"cores": count} for count in (1, 2, 4, 8)),
    {"devices": (1, 1)},
    {"devices": 1, "init": (4,)},
)
SELECTORS = tuple(
    LabelSelector(requirements)
    for requirements in (
        (Requirement("app", Operator.IN, ("a",)),),
        (Requirement("app", Operator.IN, ("b",)),),
        (Requirement("app", Operator.IN, ("a", "b")),),
        (Requirement("tier", Operator.EXISTS),),
        (Requirement("app", Operator.NOT_IN, ("a",)),),
    )
)


def some_budgets(dice: Random, bound: Sequence[Pod], *, most: int = 4) -> list[DisruptionBudget]:
    """Return budgets that overlap; some of the pods are on their way out already, as far as a budget knows."""
    return [
        DisruptionBudget(
            f"b{number}",
            "default",
            f"b{number}",
            dice.choice(SELECTORS),
            dice.randint(0, 3),
            frozenset(p.name for p in bound if dice.random() < 0.1),
        )
        for number in range(dice.randint(0, most))
    ]


def some_tenant(dice: Random, name: str, on: Node, **asked: Any) -> Pod:
    """Return a bound pod of any priority, with or without labels."""
    labels = {key: value for key, value in (("app", dice.choice("ab")), ("tier", "x")) if dice.random() < 0.6}
    priority, started = dice.choice([-3, 0, 0, 1, 2, 3, 5, 7, 9]), dice.choice([None, 1.0, 2.0, 3.0])
    return pod(name, on=on.name, priority=priority, started=started, labels=labels, **asked)


def some_holders(dice: Random, on: Node) -> list[Pod]:
    """Return up to seven pods that hold disjoint legal sets, and most of the silicon."""
    found: list[Pod] = []
    silicon = machine_of(on)
    assert silicon is not None
    free = silicon.all_cores
    for number in range(7):
        choices = [
            (asked, wanted, sets)
            for asked in ASKED[:10]
            for wanted in (request(**asked),)
            if (sets := _free_sets(silicon, wanted, free))
        ]
        if not choices:
            break
        asked, wanted, sets = dice.choice(choices)
        placement = place(silicon, dice.choice(sets), wanted)
        assert placement is not None
        free &= ~placement.cores
        found.append(some_tenant(dice, f"{on.name}{number}", on, ids=placement.ids, **asked))
    return found


def some_workers(dice: Random, on: Node, amounts: Sequence[int]) -> list[Pod]:
    """Return pods that hold all of a node's cpu."""
    found, left = [], on.allocatable[CPU]
    while left > 0:
        cpu = min(left, dice.choice(amounts))
        left -= cpu
        found.append(some_tenant(dice, f"{on.name}{left}", on, cpu=cpu))
    return found


def _free_sets(silicon: Machine, wanted: NeuronRequest, free: CoreMask) -> list[CoreMask]:
    return [cores for cores in legal_sets(silicon, wanted) or () if not cores & ~free]


def found_by_search(
    nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, budgets: Sequence[DisruptionBudget]
) -> Preemption | NoPreemption | None:
    """Search to the end; None if the pod fits as it is."""
    cluster = cluster_of(nodes, bound)
    refused = decide(cluster, pending)
    if isinstance(refused, Decision):
        return None
    *_, found = search(cluster, pending, PROFILE, refused=refused, budgets=budgets)
    return found


def cost_of(found: Preemption | NoPreemption, budgets: Sequence[DisruptionBudget]) -> Cost | None:
    """Return what the victims cost, which must be what the search says of their budgets; None if there are none."""
    if isinstance(found, NoPreemption):
        return None
    costs = cost(found.victims.pods, budgets)
    assert found.victims.violations == costs[0]
    return costs


@pytest.mark.parametrize("seed", range(examples(20)))
def test_the_victims_are_the_cheapest_legal_set(seed: int) -> None:
    """As every set of lower pods of every node is tried, none is cheaper; where none would do, nobody leaves."""
    dice = Random(seed)
    preempted = 0
    for _ in range(40):
        types = dice.choice((TYPES, TYPES, *((instance_type,) for instance_type in TYPES)))
        nodes = [node(name, dice.choice(types), created=age) for age, name in enumerate("abc"[: dice.randint(1, 3)])]
        bound = [pod_info for each in nodes for pod_info in some_holders(dice, each)]
        pending = pod("pending", priority=dice.choice([1, 4, 9, 10]), **dice.choice(ASKED))
        budgets = some_budgets(dice, bound)
        found = found_by_search(nodes, bound, pending, budgets)
        if found is not None:
            assert cost_of(found, budgets) == cheapest(nodes, bound, pending, budgets)
            preempted += isinstance(found, Preemption)
    assert preempted > 10


@pytest.mark.parametrize("seed", range(examples(20)))
@pytest.mark.parametrize("amounts", [(1000,), (1000, 2000)])
def test_without_silicon_nobody_is_dearer_than_kube_schedulers_choice(seed: int, amounts: Sequence[int]) -> None:
    """For what is counted it reprieves in its order, which is not always cheapest; where all ask for as much it is."""
    dice = Random(seed)
    for _ in range(40):
        nodes = [node(name, created=age, cpu=6000) for age, name in enumerate("abc"[: dice.randint(1, 3)])]
        bound = [pod_info for each in nodes for pod_info in some_workers(dice, each, amounts)]
        pending = pod("pending", priority=dice.choice([1, 4, 9, 10]), cpu=1000 * dice.randint(1, 5))
        budgets = some_budgets(dice, bound, most=dice.choice([1, 4]))
        found = found_by_search(nodes, bound, pending, budgets)
        if found is None:
            continue
        chosen = [reprieved(n, [p for p in bound if p.node_name == n.name], pending, budgets) for n in nodes]
        costs, theirs = cost_of(found, budgets), [cost(victims, budgets) for victims in chosen if victims]
        assert (costs is None) == (not theirs)
        assert costs is None or costs <= min(theirs)
        if len(budgets) < 2 and len(amounts) < 2:
            assert costs == cheapest(nodes, bound, pending, budgets)


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
        found = place(silicon, CoreMask(dice.getrandbits(silicon.core_count)), wanted)
        assert found is None or found.cores in sets
