"""Room for a group beside a brute force; `python -m tests.scheduling.groups.test_preemption 0 10000` plays seeds."""

import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Final

import attrs
import pytest

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import ULTRASERVER_4
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on
from neuron_scheduler.scheduling.groups import regions
from neuron_scheduler.scheduling.groups.gang import GroupPlan, complaint_about, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.groups.preemption import GroupPreemption, search_for_group
from neuron_scheduler.scheduling.preemption.search import NoPreemption
from neuron_scheduler.steps import run
from tests.scheduling.groups.test_plan import UndecidedError, check_untouched, possible
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, with_budgets
from tests.support.random_groups import _ASKED, PROFILE, World, settled, some_world
from tests.support.thoroughness import examples

PRIORITY: Final = 7
"""Of the group; other pods have lower, equal and higher ones."""


def crowded(world: World, dice: Random) -> World:
    """Return a world in which other pods, of several priorities, have most of what is free."""
    waiting = [attrs.evolve(each, priority=PRIORITY) for each in world.waiting]
    bound = [
        attrs.evolve(each, priority=PRIORITY)
        if each.group is not None
        else attrs.evolve(each, priority=dice.choice([-1, 0, 5, 7, 9]), labels={"app": dice.choice("ab")})
        for each in world.bound
    ]
    world = attrs.evolve(world, bound=tuple(bound), waiting=tuple(waiting))
    cluster = world.cluster()
    keys = [GroupKey(Dialect.COSCHEDULING, "default", name) for name in "gh"]
    others = [(PodGroup(key, least=dice.choice([2, 2, 3])), dice.choice([0, 5, 5, 9])) for key in keys]
    for number in range(dice.randint(4, 20)):
        group, priority = dice.choice(others) if dice.random() < 0.4 else (None, dice.choice([-1, 0, 0, 5, 5, 5, 9]))
        extra = pod(
            f"extra-{number}",
            group=group,
            priority=priority,
            labels={"app": dice.choice("ab")},
            started=float(dice.randint(0, 5)),
            **dice.choice(_ASKED),
        )
        decision = decide_on(cluster, extra, PROFILE, dice.choice(world.nodes).name)
        if isinstance(decision, Decision):
            bound.append(settled(cluster, extra, decision))
            cluster.put_pod(bound[-1])
    return attrs.evolve(world, bound=tuple(bound))


def some_budgets(dice: Random) -> list[DisruptionBudget]:
    return [
        DisruptionBudget(
            app,
            "default",
            app,
            LabelSelector((Requirement("app", Operator.IN, (app,)),)),
            allowed=dice.randint(0, 2),
        )
        for app in "ab"
        if dice.random() < 0.4
    ]


def without(world: World, gone: set[str]) -> World:
    return attrs.evolve(world, bound=tuple(each for each in world.bound if each.uid not in gone))


def lower(world: World) -> set[str]:
    return {each.uid for each in world.bound if each.priority < PRIORITY}


def is_legal(world: World, gone: set[str]) -> bool:
    """Return whether each other group keeps as many members as it needs, or none."""
    groups = dict[PodGroup, list[Pod]]()
    for each in world.bound:
        if each.group is not None:
            groups.setdefault(each.group, []).append(each)
    left = {group: {each.uid for each in members} - gone for group, members in groups.items()}
    kept = [len(left[group]) == len(members) or len(left[group]) >= group.least for group, members in groups.items()]
    return all(is_kept or not left[group] for is_kept, group in zip(kept, groups, strict=True))


def fewer(world: World, gone: set[str]) -> Iterator[set[str]]:
    """Yield the victims without one of them, or without those of one group."""
    groups = {each.group for each in world.bound if each.uid in gone and each.group is not None}
    yield from (gone - {uid} for uid in gone)
    yield from (gone - {each.uid for each in world.bound if each.group == group} for group in groups)


def check_places(world: World, found: GroupPreemption) -> None:
    """Put each member where the search says, once its node's victims are gone; all fit beside each other."""
    gone = {victim.uid for victim in found.victims.pods}
    assert gone <= lower(world)
    assert is_legal(world, gone)
    cluster = without(world, gone).cluster()
    waiting, names = {each.uid: each for each in world.waiting}, set[str]()
    assert len(found.places) >= world.missing
    for uid, (name, nomination) in found.places.items():
        names.add(name)
        assert nomination.victims == {victim.uid for victim in found.victims.pods if victim.node_name == name}
        decision = decide_on(cluster, waiting[uid], PROFILE, name)
        assert isinstance(decision, Decision), decision
        cluster.assume(settled(cluster, waiting[uid], decision), decision.cores)
    assert any(names <= region for region in world.regions)
    groups_there = {victim.group for victim in found.victims.pods if victim.node_name in names}
    assert all(
        victim.node_name in names or (victim.group is not None and victim.group in groups_there)
        for victim in found.victims.pods
    )


def play(seed: int) -> str:
    """Search for room for a group in a random cluster, and judge the result; return what it was."""
    dice = Random(seed)
    world, budgets = crowded(some_world(dice), dice), some_budgets(dice)
    cluster = with_budgets(world.cluster(), budgets)
    gang = gang_of(cluster, world.waiting)
    if complaint_about(cluster, gang) or isinstance(
        run(plan_group(world.cluster(), gang, PROFILE, IndexWarmup())), GroupPlan
    ):
        return "fits"
    found = run(search_for_group(cluster, gang, PROFILE))
    check_untouched(world, cluster, dice)
    try:
        if isinstance(found, NoPreemption):
            assert not possible(without(world, lower(world)), max(world.missing, 1)), "missed"
            return "refused"
        check_places(world, found)
        gone = {victim.uid for victim in found.victims.pods}
        for others in fewer(world, gone):
            assert not (is_legal(world, others) and possible(without(world, others), max(world.missing, 1))), "too many"
    except UndecidedError:
        return "undecided"
    return "found"


def test_what_leaves_as_a_whole_spares_the_pods_that_left_before_it() -> None:
    """The single pods are cheapest for two of three members; the third needs a group that leaves four machines."""
    key, names = GroupKey(Dialect.COSCHEDULING, "default", "g"), [f"n{number}" for number in range(6)]
    group, other = PodGroup(key, least=3), PodGroup(attrs.evolve(key, name="h"), least=4)
    waiting = [pod(f"w{number}", group=group, priority=PRIORITY, devices=16) for number in range(3)]
    bound = [
        pod(f"p-{name}", on=name, group=None if name in names[:2] else other, devices=16, ids=range(16))
        for name in names
    ]
    cluster = cluster_of([node(name, "trn1.32xlarge") for name in names], bound)
    for each in (*waiting, *bound):
        cluster.groups.put(each)
    found = run(search_for_group(cluster, gang_of(cluster, waiting), PROFILE))
    assert isinstance(found, GroupPreemption)
    assert {victim.name for victim in found.victims.pods} == {f"p-{name}" for name in names[2:]}


def test_a_member_goes_where_its_victims_leave() -> None:
    """Once the pod has left that is in its way in the rack, another node of the rack is free, too."""
    apart = PodAffinityTerm(
        "rack", LabelSelector((Requirement("job", Operator.IN, ("train",)),)), frozenset(("default",))
    )
    group = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "g"), least=2)
    member = partial(pod, group=group, priority=PRIORITY, devices=16, labels={"job": "train"}, anti_affinity=(apart,))
    racks = {"free-a": "a", "used-a": "a", "free-b": "b"}
    waiting = [member("w0"), member("w1")]
    cluster = cluster_of(
        [
            node(name, "trn1.32xlarge", created=at, labels={"rack": rack})
            for at, (name, rack) in enumerate(racks.items())
        ],
        [pod("old", on="used-a", devices=1, ids=[0], labels={"job": "train"})],
    )
    for each in waiting:
        cluster.groups.put(each)
    found = run(search_for_group(cluster, gang_of(cluster, waiting), PROFILE))
    assert isinstance(found, GroupPreemption)
    assert {name for name, _ in found.places.values()} == {"used-a", "free-b"}


@pytest.mark.parametrize("part", range(examples(8)))
def test_room_is_made_where_it_can_be(part: int) -> None:
    """No victim could stay, all of one node's victims are named there, and a refusal has no trace."""
    counts = Counter(map(play, range(part * 250, part * 250 + 250)))
    assert min(counts["found"], counts["refused"]) > 20 > 5 * counts["undecided"]


if __name__ == "__main__":
    print(Counter(map(play, range(*map(int, sys.argv[1:])))))  # noqa: T201  # asked for by hand


def test_what_would_be_free_in_domains_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if all pods of lower priority left: an index of all nodes is no step."""
    reads, of_node = [0], regions.PodRoom.__call__

    def counting(self: regions.PodRoom, node_info: NodeInfo) -> Values:
        reads[-1] += 1
        return of_node(self, node_info)

    nodes = [node(f"n{i}", "trn2u.48xlarge", labels={ULTRASERVER_4: f"u{i // 4}"}) for i in range(400)]
    low = [pod(f"low{i}", on=f"n{i}", devices=16, ids=range(16)) for i in range(400)]
    group = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "g"), least=4, topology=ULTRASERVER_4)
    members = [pod(f"p{i}", devices=16, priority=1, group=group) for i in range(4)]
    cluster = cluster_of(nodes, low)
    for member in members:
        cluster.groups.put(member)
    monkeypatch.setattr(regions.PodRoom, "__call__", counting)
    for _ in search_for_group(cluster, gang_of(cluster, members), PROFILE):
        reads += [0]
    assert sum(reads) >= 800
    assert max(reads) <= 64
