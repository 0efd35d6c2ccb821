"""A plan in whose pauses anything may happen: members and nodes come and go, and others take the space."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any
from unittest import mock

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.trial import ChangedError, Trial
from neuron_scheduler.scheduling.groups.gang import GroupPlan, GroupRefusal, complaint_about, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.groups.regions import fixed_domains
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.oracle import refusals
from tests.support.random_groups import PROFILE, World, some_world
from tests.support.thoroughness import examples


@attrs.define
class Meanwhile:
    """What happens in the pauses; `gone` are the uids of pods that do not wait any more."""

    world: World
    cluster: Cluster
    dice: Random
    gone: set[str] = attrs.field(factory=set)
    left: set[str] = attrs.field(factory=set)

    def happen(self) -> None:
        """Let something happen to nodes or to a pod."""
        nodes, there = self.world.nodes, self.dice.choice(self.world.nodes)
        member = self.dice.choice([each for each in self.world.waiting if each.uid not in self.gone] or [None])
        match self.dice.randrange(8):
            case 0:
                for each in (there, *self.dice.sample(nodes, self.dice.choice([0, 0, len(nodes) // 2]))):
                    self.cluster.remove_node(each.name)
                    self.left.add(each.name)
            case 1:
                own = {key: there.labels[key] for key in (INSTANCE_TYPE_LABEL, HOSTNAME_LABEL)}
                labels = {**self.dice.choice(nodes).labels, **own}
                self.cluster.put_node(attrs.evolve(there, unschedulable=self.dice.random() < 0.5, labels=labels))
            case 2:  # so many empty slots are left behind that all nodes get new ones
                for i in range(2 * len(nodes) + 70):
                    self.cluster.put_node(node(f"short-{i}", created=9e9))
                    self.cluster.remove_node(f"short-{i}")
            case 3:
                rival = pod(f"rival-{self.dice.random()}", devices=4, ids=range(4, 8), cpu=999, on=there.name)
                self.cluster.put_pod(rival)
            case 4 if self.world.bound:
                self.delete(self.dice.choice(self.world.bound))
            case 5 if member is not None:
                self.delete(member)
            case 6 | 7 if member is not None:
                changed = attrs.evolve(member, terminating=True, node_name=self.dice.choice(["", there.name]))
                self.cluster.groups.put(changed)
                self.gone.add(member.uid)
                if changed.node_name:
                    self.cluster.put_pod(changed)

    def delete(self, pod: Pod) -> None:
        """Delete a pod, as its handler does."""
        self.gone.add(pod.uid)
        self.cluster.groups.remove(pod.uid)
        self.cluster.clear_nomination(pod.uid)
        self.cluster.remove_pod(pod.uid)


def check(world: World, cluster: Cluster, meanwhile: Meanwhile, placed: dict[str, str]) -> None:
    """Look at each member as the cluster is now: on a node that takes it, or without a trace of the trial."""
    assert placed.keys().isdisjoint(meanwhile.gone)
    assert {each.uid: cluster.node_of(each.uid) for each in world.waiting if cluster.is_assumed(each.uid)} == placed
    domains = set[str | None]()
    for uid, name in placed.items():
        row = cluster.node(name)
        assert row is not None
        pods = {other: each.pod for other, each in row.pod_infos.items()}
        assert not refusals(row.node, [other for other in pods.values() if other.uid != uid], pods[uid])
        assert not cluster.conflicts(uid)
        domains.add(row.node.labels.get(world.group.topology))
    assert len(domains) < 2
    kept = {e.pod.uid: (name, e.cores) for name, e in world.kept if name not in meanwhile.left}
    kept = {uid: where for uid, where in kept.items() if uid not in meanwhile.gone | placed.keys()}
    assert {uid: (now[0], now[1].cores) for uid in kept if (now := cluster.nomination(uid))} == kept


def play(seed: int) -> str:
    """Plan while things happen; return what the result was."""
    dice = Random(seed)
    world = some_world(dice)
    cluster = world.cluster()
    meanwhile, often = Meanwhile(world, cluster, dice), dice.choice([0.03, 0.1, 0.3])
    steps = plan_group(cluster, gang_of(cluster, world.waiting), PROFILE, IndexWarmup())
    while True:
        try:
            next(steps)
        except StopIteration as end:
            taken = end.value.members if isinstance(end.value, GroupPlan) else ()
            check(world, cluster, meanwhile, {each.pod.uid: each.decision.node_name for each in taken})
            return type(end.value).__name__
        except ChangedError:
            check(world, cluster, meanwhile, {})
            return ChangedError.__name__
        while dice.random() < often:
            meanwhile.happen()


@pytest.mark.parametrize("part", range(examples(8)))
def test_nothing_that_happens_in_a_pause_spoils_a_plan(part: int) -> None:
    """No exception, no member that is gone, no node that would refuse a member, no nomination lost."""
    counts = Counter(map(play, range(part * 250, part * 250 + 250)))
    assert min(counts["GroupPlan"], counts["GroupRefusal"], counts["ChangedError"]) > 10


@pytest.mark.parametrize("leaving", [pytest.param(100, id="some"), pytest.param(260, id="most")])
def test_nodes_leave_in_any_one_pause(leaving: int) -> None:
    """Indexes and domains are counted in several steps meanwhile; if most nodes leave, the others get new slots."""
    pause, ended = 0, False
    while not ended:
        cluster = cluster_of(
            node(f"n{i}", "trn1.32xlarge", labels={HOSTNAME_LABEL: f"n{i}"}, created=i) for i in range(280)
        )
        group = PodGroup(GroupKey(Dialect.KUEUE, "default", "train"), topology=HOSTNAME_LABEL)
        members = [pod(f"m{i}", devices=4, group=group) for i in range(2)]
        for member in members:
            cluster.groups.put(member)
        steps = plan_group(cluster, gang_of(cluster, members), PROFILE, IndexWarmup())
        ended = any(next(steps, "end") == "end" for _ in range(pause))
        for i in range(280 - leaving, 280):
            cluster.remove_node(f"n{i}")
        with suppress(ChangedError):
            found = None if ended else run(steps)
            assert not isinstance(found, GroupRefusal)
            for taken in () if found is None else found.members:
                assert cluster.node(taken.decision.node_name)
        pause += 1


def test_what_looks_at_all_members_has_a_step_of_its_own() -> None:
    """A group of thousands is looked at as a whole before its members are placed, and once more at the end."""
    cluster = cluster_of(node(f"n{i}", "trn1.32xlarge", created=i) for i in range(3))
    group = PodGroup(GroupKey(Dialect.KUEUE, "default", "train"))
    members = [pod(f"m{i}", devices=1, group=group) for i in range(40)]
    for member in members:
        cluster.groups.put(member)
    looks, in_steps = list[str](), list[list[str]]()

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def look(*asked: Any) -> Any:
            looks.append(name)
            return function(*asked)

        return look

    with (
        mock.patch(f"{plan_group.__module__}.complaint_about", noted("complaint", complaint_about)),
        mock.patch(f"{plan_group.__module__}.fixed_domains", noted("regions", fixed_domains)),
        mock.patch.object(Trial, "place", noted("place", Trial.place)),
        mock.patch.object(Trial, "check", noted("check", Trial.check)),
    ):
        steps = plan_group(cluster, gang_of(cluster, members), PROFILE, IndexWarmup())
        while next(steps, "end") != "end":
            in_steps.append([*looks])
            looks.clear()
    assert [name for name in looks if name != "check"] == []
    assert all(len(step) < 2 for step in in_steps)
    assert [step for step in in_steps if step and step != ["place"]] == [["complaint"], ["regions"]]
