"""Larger groups than a brute force can judge: members that few nodes take, and how much one attempt may decide."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any, Final
from unittest import mock

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import HOSTNAME_LABEL, ULTRASERVER_4, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import (
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
)
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.trial import Trial
from neuron_scheduler.scheduling.groups.gang import GroupPlan, GroupRefusal, gang_of
from neuron_scheduler.scheduling.groups.plan import MOST_DECISIONS, plan_group
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.random_groups import PROFILE
from tests.support.thoroughness import examples

KEY: Final = GroupKey(Dialect.COSCHEDULING, "default", "train")
APART: Final = PodAffinityTerm(
    HOSTNAME_LABEL, LabelSelector((Requirement("job", Operator.IN, ("train",)),)), frozenset({"default"})
)
POOLS: Final = (1, 4, 8, 64)
"""Sizes of pools of nodes, each in the next."""
SHARES: Final = ((16,), (8, 8), (8, 4, 4), (4, 4, 4, 4))
"""Devices of members that fill a machine."""


def fleet(count: int, instance_type: str = "trn1.32xlarge") -> Cluster:
    """Return free machines, four to an UltraServer, each with the pools to which it belongs."""
    pools = [{f"pool-{size}": str(number // size) for size in POOLS} for number in range(count)]
    ids = [{HOSTNAME_LABEL: f"n{number}", ULTRASERVER_4: f"u{number // 4}"} for number in range(count)]
    return cluster_of(
        node(f"n{number}", instance_type, labels={**ids[number], **pools[number]}, created=float(number))
        for number in range(count)
    )


def of_pool(number: int, size: int) -> tuple[NodeSelectorTerm, ...]:
    """Return the term that a member has which only the nodes of a machine's pool take."""
    return (NodeSelectorTerm((Requirement(f"pool-{size}", Operator.IN, (str(number // size),)),)),)


def attempt(cluster: Cluster, members: Sequence[Pod]) -> tuple[GroupPlan | GroupRefusal, int]:
    """Plan for a group; return the result, and how many decisions that took."""
    for each in members:
        cluster.groups.put(each)
    with mock.patch.object(Trial, "place", autospec=True, side_effect=Trial.place) as place:
        return run(plan_group(cluster, gang_of(cluster, members), PROFILE, IndexWarmup())), place.call_count


@pytest.mark.parametrize("part", range(examples(8)))
def test_a_group_with_choosy_members_is_placed_where_it_fits(part: int) -> None:
    """Each member has a place of its own, which is known because it was made for it; it says only how choosy it is."""
    for seed in range(part * 25, part * 25 + 25):
        dice = Random(seed)
        count = dice.randint(1, 40)
        used = dice.sample(range(count), dice.randint(1, count))
        shares = [(number, share) for number in used for share in dice.choice(SHARES)]
        group = PodGroup(KEY, least=len(shares), expected=len(shares))
        members = [
            pod(f"m{rank}", devices=share, group=group, rank=rank, required_terms=of_pool(number, dice.choice(POOLS)))
            for rank, (number, share) in enumerate(dice.sample(shares, len(shares)))
        ]
        found, _ = attempt(fleet(count), members)
        assert isinstance(found, GroupPlan), seed


def test_a_choosy_member_is_considered_where_the_domain_is_chosen() -> None:
    """Of many domains with equal room only the last will do, because one member takes no node of the others."""
    group = PodGroup(KEY, least=4, expected=4, topology=ULTRASERVER_4)
    members = [pod(f"m{rank}", devices=16, group=group, rank=rank) for rank in range(3)]
    found, _ = attempt(fleet(80), [*members, pod("m3", devices=16, group=group, required_terms=of_pool(79, 1))])
    assert isinstance(found, GroupPlan)


@pytest.mark.parametrize("topology", ["", ULTRASERVER_4, HOSTNAME_LABEL])
@pytest.mark.parametrize("shape", ["apart", "unlike", "choosy", "elastic", "few"])
def test_one_attempt_has_few_decisions(shape: str, topology: str) -> None:
    """Whatever its members ask, and however many domains there are: three for each member, and a constant."""
    count = 5 if shape == "few" else 65
    group = PodGroup(KEY, least=1 + count // 2 if shape == "elastic" else count, expected=count, topology=topology)
    members = [
        pod(
            f"m{rank}",
            devices=16 if shape == "choosy" else 1,
            cpu=1 if shape == "apart" else 1 + rank,
            group=group,
            rank=rank,
            labels={"job": "train"},
            anti_affinity=() if shape == "choosy" else (APART,),
            required_terms=of_pool(rank, 1) if shape == "choosy" and rank < 2 else None,
        )
        for rank in range(count)
    ]
    _, decisions = attempt(fleet(64), members)
    assert decisions <= 3 * count + MOST_DECISIONS


@pytest.mark.parametrize("part", range(examples(8)))
def test_members_with_an_affinity_to_themselves_find_the_zone_with_room(part: int) -> None:
    """One job in one zone, or two of a group in a zone each, whichever zone the first member would go to."""
    found = Counter[str]()
    for seed in range(part * 10, part * 10 + 10):
        dice = Random(seed)
        zones = [dice.randint(0, 9) for _ in range(dice.randint(1, 4))]
        parts = [dice.randint(1, 9) for _ in range(dice.randint(1, 2))]
        group = PodGroup(KEY, least=sum(parts), expected=sum(parts))
        members = [pod(f"j{job}-{rank}", devices=16, group=group, **in_one_zone(job))
                   for job, size in enumerate(parts) for rank in range(size)]  # fmt: skip
        nodes = [
            node(f"z{z}-{n}", "trn1.32xlarge", labels={ZONE_LABEL: f"z{z}"})
            for z, free in enumerate(zones)
            for n in range(free)
        ]
        plan, _ = attempt(cluster_of(nodes), members)
        fits = any(
            all(sum(size for size, where in zip(parts, choice, strict=True) if where == z) <= free
                for z, free in enumerate(zones))
            for choice in product(range(len(zones)), repeat=len(parts))
        )  # fmt: skip
        assert isinstance(plan, GroupPlan) == fits, (zones, parts)
        found[type(plan).__name__] += 1
    assert len(found) == 2


def in_one_zone(job: int) -> dict[str, Any]:
    labels = {"job": str(job)}
    mine = LabelSelector((Requirement("job", Operator.IN, (str(job),)),))
    return {"labels": labels, "affinity": (PodAffinityTerm(ZONE_LABEL, mine, frozenset({"default"})),)}


def test_a_refusal_for_want_of_room_costs_one_round() -> None:
    """No domain is tried that is known to be too small: a backlog of AWS's recipe is refused again and again."""
    term = PodAffinityTerm(ULTRASERVER_4, APART.selector, frozenset({"default"}))
    group = PodGroup(KEY, topology=ULTRASERVER_4)
    members = [
        pod(f"m{rank}", devices=16, group=group, rank=rank, labels={"job": "train"}, affinity=(term,))
        for rank in range(5)
    ]
    found, decisions = attempt(fleet(64), members)
    assert isinstance(found, GroupRefusal)
    assert found.fitting == 4
    assert decisions < 2 * len(members)


@pytest.mark.parametrize("needed", [5, 0], ids=["declared", "inferred"])
def test_a_member_that_does_not_say_the_domain_goes_where_it_can(needed: int) -> None:
    """A launcher has no affinity, and may run on no machine of its workers; where it is fixes nothing."""
    group = PodGroup(KEY, least=needed, expected=needed)
    recipe = attrs.evolve(group, topology=ULTRASERVER_4)
    workers = [pod(f"w{rank}", devices=16, group=recipe, rank=rank) for rank in range(4)]
    launcher = pod("launcher", group=group, required_terms=of_pool(4, 1))
    cluster = fleet(8)
    found, _ = attempt(cluster, [*workers, launcher])
    assert isinstance(found, GroupPlan)
    nodes = {taken.pod.name: taken.decision.node_name for taken in found.members}
    assert nodes == {"launcher": "n4", **{f"w{rank}": f"n{rank}" for rank in range(4)}}
    again = pod("w4", devices=16, group=recipe, rank=0)
    cluster.forget("uid-w0")
    cluster.groups.remove("uid-w0")
    found, _ = attempt(cluster, [again])
    assert isinstance(found, GroupPlan)
    assert [taken.decision.node_name for taken in found.members] == ["n0"]
