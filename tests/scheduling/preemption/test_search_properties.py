"""The victims are the cheapest legal set there is: every set of lower pods is tried, on nodes small enough for that."""

from collections.abc import Sequence
from random import Random
from typing import Any

import attrs
import pytest

from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement
from neuron_scheduler.neuron.catalog import Machine, machine_of
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import legal_sets, place
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on
from neuron_scheduler.scheduling.preemption.search import NoPreemption, Preemption, search
from neuron_scheduler.steps import run
from tests.support.builders import machine, node, pod, request
from tests.support.harness import cluster_of, decide, with_budgets
from tests.support.oracle_preemption import Cost, cheapest, cost, reprieved

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
    """Return budgets that overlap; some count pods as disrupted already."""
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


def some_bound_pod(dice: Random, name: str, on: Node, **asked: Any) -> Pod:
    """Return a bound pod of any priority, with or without labels."""
    labels = {key: value for key, value in (("app", dice.choice("ab")), ("tier", "x")) if dice.random() < 0.6}
    priority, started = dice.choice([-3, 0, 0, 1, 2, 3, 5, 7, 9]), dice.choice([None, 1.0, 2.0, 3.0])
    return pod(name, on=on.name, priority=priority, started=started, labels=labels, **asked)


def some_holders(dice: Random, on: Node) -> list[Pod]:
    """Return up to seven pods with disjoint legal sets that use most of the devices."""
    holders: list[Pod] = []
    machine = machine_of(on)
    assert machine is not None
    free = machine.all_cores
    for number in range(7):
        choices = [
            (asked, wanted, sets)
            for asked in ASKED[:10]
            for wanted in (request(**asked),)
            if (sets := _free_sets(machine, wanted, free))
        ]
        if not choices:
            break
        asked, wanted, sets = dice.choice(choices)
        placement = place(machine, dice.choice(sets), wanted)
        assert placement is not None
        free &= ~placement.cores
        holders.append(some_bound_pod(dice, f"{on.name}{number}", on, ids=placement.ids, **asked))
    return holders


def some_workers(dice: Random, on: Node, amounts: Sequence[int]) -> list[Pod]:
    """Return pods that use all of a node's cpu."""
    workers, left = [], on.allocatable[CPU]
    while left > 0:
        cpu = min(left, dice.choice(amounts))
        left -= cpu
        workers.append(some_bound_pod(dice, f"{on.name}{left}", on, cpu=cpu))
    return workers


def _free_sets(machine: Machine, wanted: NeuronRequest, free: CoreMask) -> list[CoreMask]:
    return [cores for cores in legal_sets(machine, wanted) or () if not cores & ~free]


def result_of_search(
    nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, budgets: Sequence[DisruptionBudget]
) -> Preemption | NoPreemption | None:
    """Return the result of a search; None if the pod fits as it is."""
    cluster = with_budgets(cluster_of(nodes, bound), budgets)
    refused = decide(cluster, pending)
    if isinstance(refused, Decision):
        return None
    return run(search(cluster, pending, PROFILE, refused=refused))


def cost_of(result: Preemption | NoPreemption, budgets: Sequence[DisruptionBudget]) -> Cost | None:
    """Return what the victims cost, which must be what the search says of their budgets; None if there are none."""
    if isinstance(result, NoPreemption):
        return None
    costs = cost(result.victims.pods, budgets)
    assert result.victims.violations == costs[0]
    return costs


@pytest.mark.parametrize("seed", range(20))
def test_the_victims_are_the_cheapest_legal_set(seed: int) -> None:
    """No set of lower pods of any node is cheaper than the victims; where no set makes room, no pod is evicted."""
    dice = Random(seed)
    preempted = 0
    for _ in range(40):
        types = dice.choice((TYPES, TYPES, *((instance_type,) for instance_type in TYPES)))
        nodes = [node(name, dice.choice(types), created=age) for age, name in enumerate("abc"[: dice.randint(1, 3)])]
        bound = [pod_info for n in nodes for pod_info in some_holders(dice, n)]
        pending = pod("pending", priority=dice.choice([1, 4, 9, 10]), **dice.choice(ASKED))
        budgets = some_budgets(dice, bound)
        result = result_of_search(nodes, bound, pending, budgets)
        if result is not None:
            assert cost_of(result, budgets) == cheapest(nodes, bound, pending, budgets)
            preempted += isinstance(result, Preemption)
    assert preempted > 10


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("amounts", [(1000,), (1000, 2000)])
def test_without_neuron_the_victims_cost_at_most_those_of_kube_scheduler(seed: int, amounts: Sequence[int]) -> None:
    """The victims cost no more than kube-scheduler's would; with equal requests they are the cheapest."""
    dice = Random(seed)
    for _ in range(40):
        nodes = [node(name, created=age, cpu=6000) for age, name in enumerate("abc"[: dice.randint(1, 3)])]
        bound = [pod_info for n in nodes for pod_info in some_workers(dice, n, amounts)]
        pending = pod("pending", priority=dice.choice([1, 4, 9, 10]), cpu=1000 * dice.randint(1, 5))
        budgets = some_budgets(dice, bound, most=dice.choice([1, 4]))
        result = result_of_search(nodes, bound, pending, budgets)
        if result is None:
            continue
        chosen = [reprieved(n, [p for p in bound if p.node_name == n.name], pending, budgets) for n in nodes]
        costs, theirs = cost_of(result, budgets), [cost(victims, budgets) for victims in chosen if victims]
        assert (costs is None) == (not theirs)
        assert costs is None or costs <= min(theirs)
        if len(budgets) < 2 and len(amounts) < 2:
            assert costs == cheapest(nodes, bound, pending, budgets)


@pytest.mark.parametrize("seed", range(10))
def test_a_search_after_others_finds_what_a_first_one_finds(seed: int) -> None:
    """What is kept with rows holds for as long as they do and the budgets of their pods: pods and budgets change."""
    dice = Random(seed)
    nodes = [node(name, dice.choice(TYPES[:2]), created=age) for age, name in enumerate("abcdef")]
    bound = {pod_info.uid: pod_info for n in nodes for pod_info in some_holders(dice, n)}
    budgets = tuple(some_budgets(dice, list(bound.values())))
    cluster, ended, preempted = cluster_of(nodes, bound.values()), list[Pod](), 0
    for number in range(60):
        pending = pod(f"pending{number}", priority=dice.choice([4, 9]), **dice.choice(ASKED[1:5]))
        changed = bound[dice.choice(list(bound))]
        while ended and dice.random() < 0.8:
            bound[ended[-1].uid] = ended[-1]
            cluster.put_pod(ended.pop())
        match dice.choice(("pod", "end", "budget", "budgets", "nothing")):
            case "pod":
                bound[changed.uid] = attrs.evolve(changed, started=dice.choice([None, 1.0, 9.0]))
                cluster.put_pod(bound[changed.uid])
            case "end":
                ended.append(bound.pop(changed.uid))
                cluster.remove_pod(changed.uid)
            case "budget" if budgets:
                budgets = (attrs.evolve(budgets[0], allowed=dice.randint(0, 3)), *budgets[1:])
            case "budgets":
                budgets = tuple(some_budgets(dice, list(bound.values())))
        fresh = result_of_search(nodes, list(bound.values()), pending, budgets)
        if fresh is not None:
            refused = decide(cluster, pending)
            assert not isinstance(refused, Decision)
            there = with_budgets(dice.choice((cluster, cluster.fork())), budgets)
            assert run(search(there, pending, PROFILE, refused=refused)) == fresh
            preempted += isinstance(fresh, Preemption)
    assert preempted > 10


def some_terms(dice: Random) -> tuple[PodAffinityTerm, ...]:
    """Return up to two anti-affinity terms; one is about a label that few nodes have."""
    keys, names = (HOSTNAME_LABEL, HOSTNAME_LABEL, ZONE_LABEL, "rack"), frozenset({"default"})
    return tuple(
        PodAffinityTerm(dice.choice(keys), dice.choice(SELECTORS), names) for _ in range(dice.choice((0, 0, 1, 2)))
    )


@pytest.mark.parametrize("seed", range(10))
def test_pods_leave_whose_terms_keep_the_pod_away(seed: int) -> None:
    """Without its victims a node takes the pod, beside each of them it does not; else no node takes it at all."""
    dice = Random(seed)
    preempted = refused = 0
    for _ in range(40):
        nodes = [
            node(name, created=age, cpu=6000, labels={ZONE_LABEL: f"z{age % 2}", HOSTNAME_LABEL: name, key: "r"})
            for age, name in enumerate("abc"[: dice.randint(1, 3)])
            for key in [dice.choice(("rack", "other"))]
        ]
        bound = [
            some_bound_pod(dice, f"{there.name}{n}", there, cpu=1000, anti_affinity=some_terms(dice))
            for there in nodes
            for n in range(dice.randint(1, 6))
        ]
        labels = {"app": dice.choice("ab")}
        pending = pod("pending", labels=labels, priority=dice.choice([1, 4, 9]), cpu=1000 * dice.randint(1, 4))
        result = result_of_search(nodes, bound, pending, ())
        if isinstance(result, Preemption):
            gone = [victim.uid for victim in result.victims.pods]
            stay = [each for each in bound if each.uid not in gone]
            chosen = (PROFILE, result.node_name)
            assert isinstance(decide_on(cluster_of(nodes, stay), pending, *chosen), Decision)
            for victim in result.victims.pods:
                assert not isinstance(decide_on(cluster_of(nodes, [*stay, victim]), pending, *chosen), Decision)
            preempted += 1
        elif result is not None:
            for there in nodes:
                stay = [p for p in bound if p.node_name != there.name or p.priority >= pending.priority]
                assert not isinstance(decide_on(cluster_of(nodes, stay), pending, PROFILE, there.name), Decision)
            refused += 1
    assert min(preempted, refused) > 2


@pytest.mark.parametrize("instance_type", TYPES)
@pytest.mark.parametrize("asked", ASKED)
def test_the_legal_sets_are_all_that_place_can_give(instance_type: str, asked: dict[str, Any]) -> None:
    """`place` gives each listed set where only it is free, and gives no set that is not listed."""
    whole, wanted = machine(instance_type), request(**asked)
    sets = legal_sets(whole, wanted)
    assert sets is not None
    assert all((placed := place(whole, cores, wanted)) is not None and placed.cores == cores for cores in sets)
    dice = Random(7)
    for _ in range(200):
        placement = place(whole, CoreMask(dice.getrandbits(whole.core_count)), wanted)
        assert placement is None or placement.cores in sets
