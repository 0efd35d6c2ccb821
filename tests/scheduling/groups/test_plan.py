"""A plan for a group beside a brute force; `python -m tests.scheduling.groups.test_plan 0 10000` plays these seeds."""

import sys
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from itertools import count, product
from random import Random
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on, select_node
from neuron_scheduler.scheduling.groups.gang import GroupPlan, GroupRefusal, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent, node_events
from neuron_scheduler.scheduling.plugins.contract import Preference
from neuron_scheduler.scheduling.queue.events import PendingEvents, refusal_kind_of
from neuron_scheduler.steps import run
from tests.support.cluster_invariants import DEFINITIONS, check_indexes, holdings
from tests.support.oracle import refusals
from tests.support.oracle_affinity import affinity_refusals
from tests.support.oracle_spread import spread_refusals
from tests.support.random_groups import PROFILE, World, assume, assumed, settled, some_world
from tests.support.thoroughness import examples

MOST_QUESTIONS: Final = 3_000


class UndecidedError(Exception):
    """The brute force has asked too many questions."""


@attrs.define
class BruteForce:
    """Tries all members on all nodes in all orders; members of one kind are not told apart."""

    cluster: Cluster
    kinds: dict[str, Hashable]
    names: Collection[str]
    questions: int = 0
    on_nodes: dict[str, Hashable] = attrs.field(factory=dict)
    seen: set[frozenset[Any]] = attrs.field(factory=set)

    def fit(self, waiting: Sequence[Pod], count: int) -> bool:
        """Return whether so many of the members fit at once beside those that are assumed."""
        firsts = {self.kinds[each.uid]: each for each in reversed(waiting)} if len(waiting) >= count else {}
        return count <= 0 or any(
            self.fit_beside(member, name, [each for each in waiting if each is not member], count - 1)
            for member in firsts.values()
            for name in sorted(self.names)
        )

    def fit_beside(self, member: Pod, name: str, rest: Sequence[Pod], count: int) -> bool:
        """Return whether so many of the rest fit at once beside a member on a node, unless that was asked before."""
        self.questions += 1
        if self.questions > MOST_QUESTIONS:
            raise UndecidedError
        decision = decide_on(self.cluster, member, PROFILE, name)
        if not isinstance(decision, Decision):
            return False
        self.on_nodes[member.uid] = (self.kinds[member.uid], name, decision.ids)
        state, found = frozenset(Counter(self.on_nodes.values()).items()), False
        if state not in self.seen:
            self.seen.add(state)
            with assumed(self.cluster, member, decision):
                found = self.fit(rest, count)
        del self.on_nodes[member.uid]
        return found


def possible(world: World, count: int) -> bool:
    """Return whether so many waiting members fit at once, in one domain if that is required."""
    unlike = {each.pod.uid for _, each in world.kept} | {e.uid for e in world.waiting if e.constraints.volume_claims}
    kinds: dict[str, Hashable] = {e.uid: e.uid if e.uid in unlike else e.labels["role"] for e in world.waiting}
    return not count or any(
        BruteForce(world.cluster(), kinds, names).fit(world.waiting, count) for names in world.regions
    )


def traces(cluster: Cluster) -> list[object]:
    """Return everything that a trial changes."""
    rows = [(attrs.evolve(row, nominations=()), holdings(row)) for row in cluster.view.rows()]
    nominations = [sorted(each.pod.uid for each in row.nominations) for row in cluster.view.rows()]
    storage = [(cluster.volumes.claim(f"default/data-{i}"), cluster.volumes.volume(f"pv{i}")) for i in range(6)]
    return [rows, nominations, storage, cluster.pod_count, cluster.has_nominations]


def check_untouched(world: World, cluster: Cluster, dice: Random) -> None:
    """Compare a cluster after a trial with a new one: what is in it, and what its indexes say."""
    fresh = world.cluster()
    assert traces(cluster) == traces(fresh)
    assert cluster.assumed_count == 0
    check_indexes(cluster, dice.sample(range(DEFINITIONS), 5))
    for member in world.waiting:
        assert select_node(cluster, member, PROFILE) == select_node(fresh, member, PROFILE)


def check_plan(world: World, cluster: Cluster, found: GroupPlan) -> None:
    """Place the members one after the other where the plan says, as the filters and the oracle allow it."""
    fresh, bound, nodes = world.cluster(), list(world.bound), {each.name: each for each in world.nodes}
    for taken in found.members:
        there = nodes[taken.decision.node_name]
        decision = decide_on(fresh, taken.pod, PROFILE, there.name)
        assert isinstance(decision, Decision), decision
        assert decision.ids == taken.decision.ids
        assert not refusals(there, [each for each in bound if each.node_name == there.name], taken.pod)
        assert not spread_refusals(world.nodes, bound, taken.pod, there)
        assert not affinity_refusals(world.nodes, bound, taken.pod, there, {})
        bound.append(settled(fresh, taken.pod, decision))
        assume(fresh, taken.pod, decision)
    assert traces(cluster) == traces(fresh)
    assert len(found.members) >= world.missing
    names = {taken.decision.node_name for taken in found.members}
    region = next((each for each in world.regions if names <= each), None)
    assert region is not None or not names
    out = {pod.uid for pod, _ in found.left_out}
    assert out == {each.uid for each in world.waiting} - {taken.pod.uid for taken in found.members}
    for pod, reason in found.left_out:
        assert reason.plugins
        assert not any(isinstance(decide_on(cluster, pod, PROFILE, name), Decision) for name in region or ())


def play(seed: int) -> str:
    """Plan for a group in a random cluster, and judge the result; return what it was."""
    dice = Random(seed)
    world = some_world(dice)
    cluster = world.cluster()
    gang = gang_of(cluster, world.waiting)
    found = run(plan_group(cluster, gang, PROFILE, IndexWarmup()))
    if isinstance(found, GroupPlan):
        check_plan(world, cluster, found)
        return "planned"
    assert isinstance(found, GroupRefusal)
    check_untouched(world, cluster, dice)
    assert found.reason.plugins
    needed = max(world.missing, 1)  # a complaint is about members beyond the count, too
    try:
        assert not possible(world, needed), "missed"
        assert found.fitting < needed
        assert possible(world, found.fitting)
        assert found.fitting or not possible(attrs.evolve(world, waiting=gang.waiting[:1]), 1)
    except UndecidedError:
        return "undecided"
    return "refused"


@pytest.mark.parametrize("part", range(examples(8)))
def test_a_plan_is_found_where_there_is_one(part: int) -> None:
    """It is legal, members beyond the count are where they fit, and a refusal has no trace and the right number."""
    counts = Counter(map(play, range(part * 250, part * 250 + 250)))
    assert min(counts["planned"], counts["refused"]) > 80 > 20 * counts["undecided"]


def happen(dice: Random, world: World, cluster: Cluster) -> PendingEvents:
    """Have a pod end, or a node come or become like another one; return the events. No member goes."""
    bound, events = [each for each in world.bound if each.group is None], PendingEvents()
    if bound and dice.random() < 0.6:
        gone = dice.choice(bound)
        cluster.remove_pod(gone.uid)
        events.note(ClusterEvent.ASSIGNED_POD_GONE, [gone], cluster.node(gone.node_name))
        return events
    old, other = dice.choice(world.nodes), dice.choice(world.nodes)
    if dice.random() < 0.5:
        events.note(ClusterEvent.NODE_ADDED, [], cluster.put_node(attrs.evolve(other, name="new")))
        return events
    return become(old, other, cluster)


def become(old: Node, other: Node, cluster: Cluster) -> PendingEvents:
    """Have a node become like another one; return the events."""
    events = PendingEvents()
    new = attrs.evolve(old, labels=other.labels, taints=other.taints, unschedulable=other.unschedulable)
    for event in node_events(old, new):
        events.note(event, [], cluster.put_node(new))
    return events


def is_woken(members: tuple[Pod, ...], found: GroupRefusal, events: PendingEvents, cluster: Cluster) -> bool:
    """Return whether events may help any member of a refused group."""
    kinds = [refusal_kind_of(each, found.reason.plugins, found.plugins_for(each)) for each in members]
    present = events.as_of_now(cluster.node)
    return any(any(present.wake_ups(each, kind)) for each, kind in zip(members, kinds, strict=True))


@pytest.mark.parametrize("part", range(examples(8)))
def test_what_lets_a_group_in_wakes_it(part: int) -> None:
    """A refused group that waits for what lets in the next member misses nothing that lets in the group."""
    let_in = needless = 0
    for seed in range(part * 500, part * 500 + 500):
        dice = Random(seed)
        world = some_world(dice)
        cluster = world.cluster()
        found = run(plan_group(cluster, gang_of(cluster, world.waiting), PROFILE, IndexWarmup()))
        if isinstance(found, GroupPlan) or not found.plugins_for(world.waiting[0]):
            continue
        wakes = is_woken(world.waiting, found, happen(dice, world, cluster), cluster)
        again = run(plan_group(cluster, gang_of(cluster, world.waiting), PROFILE, IndexWarmup()))
        assert wakes or not isinstance(again, GroupPlan), seed
        let_in += isinstance(again, GroupPlan)
        needless += not wakes
    assert min(let_in, needless) > 5


@pytest.mark.parametrize("seed", [881, 2310, 3749, 6419, 7626])
def test_a_group_moves_with_the_node_of_a_member(seed: int) -> None:
    """A node on which a member runs gets other labels: the group has another domain then, or any."""
    dice, let_in = Random(seed), 0
    world = some_world(dice)
    cluster, on = world.cluster(), {each.node_name for each in world.bound if each.group is not None}
    found = run(plan_group(cluster, gang_of(cluster, world.waiting), PROFILE, IndexWarmup()))
    assert isinstance(found, GroupRefusal)
    for old, other in product([each for each in world.nodes if each.name in on], world.nodes):
        cluster = world.cluster()
        wakes = is_woken(world.waiting, found, become(old, other, cluster), cluster)
        again = run(plan_group(cluster, gang_of(cluster, world.waiting), PROFILE, IndexWarmup()))
        assert wakes or not isinstance(again, GroupPlan)
        let_in += isinstance(again, GroupPlan)
    assert let_in


def test_leaders_without_neuron_whose_workers_are_to_come() -> None:
    """No UltraServer has room for them."""
    assert play(19304) == "refused"


@pytest.mark.parametrize("seed", [3483, 4254, 5435, 9965])
def test_a_refusal_looks_beyond_the_roomiest_domain(seed: int) -> None:
    """The members' rules about other pods keep all of them from that one; in another one a member fits."""
    assert play(seed) == "refused"


def exploding(steps: int) -> Profile:
    """Return a profile with a preference that raises an exception when it is asked for so many times."""
    asked = count(1)

    def prefer(_: View, __: Pod, among: NodeSet) -> NodeSet:
        if next(asked) == steps:
            raise ArithmeticError
        return among

    return attrs.evolve(PROFILE, preferences=(Preference("Bomb", prefer), *PROFILE.preferences))


@pytest.mark.parametrize("part", range(examples(8)))
def test_an_exception_leaves_no_trace(part: int) -> None:
    """Whether it comes from a decision or into a pause: nothing stays assumed, and all nominations are there."""
    broken = 0
    for seed in range(part * 100, part * 100 + 100):
        dice = Random(seed)
        world, steps = some_world(dice), dice.randint(1, 15)
        cluster = world.cluster()
        profile, pauses = (PROFILE, steps) if dice.random() < 0.5 else (exploding(steps), 9_999)
        plan = plan_group(cluster, gang_of(cluster, world.waiting), profile, IndexWarmup())
        try:
            for _ in range(pauses):
                next(plan)
            plan.throw(ArithmeticError)
        except StopIteration:
            pass
        except ArithmeticError:
            check_untouched(world, cluster, dice)
            broken += 1
    assert broken > 50


if __name__ == "__main__":
    print(Counter(map(play, range(*map(int, sys.argv[1:])))))  # noqa: T201  # asked for by hand
