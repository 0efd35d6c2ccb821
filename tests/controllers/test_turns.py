"""Who gets a turn, how each ends, and that a new leader gives the same."""

from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.turns import WITHOUT_PROGRESS, Turns
from neuron_scheduler.model.node import ULTRASERVER_2, ULTRASERVER_4, ULTRASERVER_PLACES, Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.groups.gang import GroupPlan, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.preemption.nominations import lost_nominations
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import run
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.queueing import new_queue, popped

HOUR: Final = 3600.0
RACK: Final = ULTRASERVER_2
PROFILE: Final = default_profile("my-scheduler")
ELSEWHERE: Final = pod(node_selector={"disk": "ssd"}).constraints


def machine(number: int, **fields: Any) -> Node:
    rack = {RACK: "ab"[number // 2], ULTRASERVER_4: "ab"[number // 2]}
    labels = rack | {ULTRASERVER_PLACES[key]: str(number % 2) for key in rack}
    return node(f"n{number}", "trn1.32xlarge", labels=labels, **fields)


@attrs.define(eq=False)
class World:
    """Four machines in two UltraServers with a holder each, the youngest on the last one, and pods that wait."""

    cluster: Cluster = attrs.field(init=False)
    queue: SchedulingQueue = attrs.field(init=False)
    turns: Turns = attrs.field(init=False)
    now: float = 0.0
    told: list[tuple[str, str]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        nodes = [machine(number) for number in range(4)]
        holders = [
            pod(f"h{number}", devices=4, ids=range(4), on=f"n{number}", started=float(number)) for number in range(4)
        ]
        self.cluster = cluster_of(nodes, holders)
        self.start()

    def start(self) -> None:
        """Begin as a new leader does, with nothing but the cluster; the pods are added again."""
        self.queue = new_queue(groups=GroupWaits(self.cluster.groups), view=self.cluster.view)
        self.turns = Turns(
            cluster=self.cluster,
            queue=self.queue,
            profiles={"my-scheduler": PROFILE},
            bounds={"my-scheduler": HOUR},
            warmup=IndexWarmup(),
            pod_list=PodList(),
            report=lambda pod, text: self.told.append((pod.name, text)),
            clock=lambda: self.now,
            errors=UnexpectedErrors(lambda _: None),
        )

    def add(self, name: str, **fields: Any) -> Pod:
        new = pod(name, scheduler_name="my-scheduler", **{"devices": 16, **fields})
        self.cluster.groups.put(new)
        self.queue.add(new, self.now)
        if new.group is not None:
            self.queue.group_changed(new.group.key, self.now)
        return new

    def try_all(self) -> None:
        while (queued := self.queue.pop(self.now)) is not None:
            decision = schedule_pod(self.cluster, queued.pod, PROFILE)
            if isinstance(decision, Decision):
                self.queue.remove(queued.pod.uid)
                self.cluster.assume(attrs.evolve(queued.pod, node_name=decision.node_name), decision.cores)
            else:
                self.queue.put_back_refused(queued, decision.plugins, self.now)

    def pass_time(self, seconds: float) -> None:
        """Try all pods, and look at the turns after a while."""
        self.try_all()
        self.now += seconds
        run(self.turns.review())
        self.try_all()

    @property
    def kept(self) -> dict[str, str]:
        """The nodes that are kept, by the pod that has the turn."""
        rows = self.cluster.view.rows()
        return {kept.pod.name: row.node.name for row in rows for kept in row.nominations if kept.awaited}


def test_the_first_that_has_waited_gets_the_node_that_drains_first() -> None:
    """One at a time; the other one waits for the next turn, and a small pod for none."""
    world = World()
    world.add("small", devices=8, priority=5)
    world.add("first")
    world.add("second", priority=-1)
    world.pass_time(HOUR - 60)
    assert world.kept == {}
    world.pass_time(60)
    assert world.kept == {"first": "n3"}
    assert world.told == [("first", "Kept for it as it comes free: n3 (1 pod).")]
    world.pass_time(60)
    assert len(world.told) == 1


def test_a_turn_ends_with_its_pod() -> None:
    """The next one of its kind gets a turn at the same look."""
    world = World()
    first = world.add("first")
    world.add("second")
    world.pass_time(HOUR)
    world.queue.remove(first.uid)
    world.cluster.clear_nomination(first.uid)  # as the fold does
    world.pass_time(60)
    assert world.kept == {"second": "n3"}


@pytest.mark.parametrize("holder", ["h3", "h0"])
def test_a_turn_ends_when_its_pod_is_placed(holder: str) -> None:
    """On the node that was kept, or on another one that came free sooner."""
    world = World()
    first = world.add("first")
    world.pass_time(HOUR)
    world.cluster.remove_pod(f"uid-{holder}")
    world.queue.activate(first.uid, world.now)
    world.try_all()
    assert world.cluster.node_of(first.uid) == f"n{holder[1]}"
    world.pass_time(60)
    assert world.kept == {}


@pytest.mark.parametrize("reason", ["a pod of higher priority", "a cordon"])
def test_a_turn_ends_when_its_node_is_lost(reason: str) -> None:
    """Whoever drops the nomination; the next look gives another one, if a machine is half free still."""
    world = World()
    world.add("first")
    world.pass_time(HOUR)
    if reason == "a cordon":
        world.cluster.put_node(machine(3, unschedulable=True))
    else:
        for name in ("n0", "n1", "n2"):
            world.cluster.put_pod(pod(f"full-{name}", devices=8, ids=range(8, 16), on=name, started=0.5))
        world.add("urgent", devices=8, priority=1)
        world.try_all()
        assert world.cluster.node_of("uid-urgent") == "n3"
    row = world.cluster.node("n3")
    assert row is not None
    for lost in lost_nominations(row, lambda uid: queued.pod if (queued := world.queue.get(uid)) else None):
        world.cluster.clear_nomination(lost.uid)  # as the recheck does
    world.pass_time(60)
    assert world.kept == ({"first": "n2"} if reason == "a cordon" else {})


def test_a_turn_without_progress_ends_and_the_next_one_has_its_own() -> None:
    """Whoever had it waits the bound again; a holder that leaves is progress."""
    world = World()
    world.add("first")
    world.add("second")
    world.cluster.put_pod(pod("early", devices=4, ids=range(4, 8), on="n3", started=3.0))
    world.pass_time(HOUR)
    assert world.kept == {"first": "n3"}
    world.pass_time(WITHOUT_PROGRESS - 60)
    world.cluster.remove_pod("uid-early")
    world.pass_time(60)
    assert world.kept == {"first": "n3"}
    world.pass_time(WITHOUT_PROGRESS)
    assert world.kept == {"second": "n3"}


def test_a_turn_ends_when_its_pod_does_not_take_the_free_node() -> None:
    """Something else keeps it off, such as a claim that is gone: nobody else waits for that."""
    world = World()
    first = world.add("first")
    world.pass_time(HOUR)
    world.queue.add(attrs.evolve(first, node_name="", constraints=ELSEWHERE), world.now)
    world.cluster.remove_pod("uid-h3")
    world.pass_time(60)
    assert world.kept == {"first": "n3"}
    world.pass_time(60)
    assert world.kept == {}


def test_a_new_leader_gives_the_same_turn() -> None:
    """
    A pod whose condition says that it has the turn waits for no bound, and comes before others of its kind.

    It has it at the first look, although less is free in pieces by now than it asks for.
    """
    world = World()
    world.add("first")
    world.pass_time(HOUR)
    before, (_, text) = world.kept, world.told[0]
    world.cluster.clear_nomination("uid-first")
    for name in ("n0", "n1", "n2"):
        world.cluster.put_pod(pod(f"full-{name}", devices=8, ids=range(4, 12), on=name, started=0.5))
    world.start()
    world.add("other", priority=3)
    world.add("first", scheduled=PodCondition("False", "Unschedulable", f"0/4 nodes are available. {text}"))
    run(world.turns.review())
    assert world.kept == before
    world.pass_time(60)
    assert world.kept == before
    assert len(world.told) == 1


def test_requests_that_can_get_no_turn_keep_none_from_later_ones() -> None:
    """Four are looked at each time, then the next ones."""
    world = World()
    for number in range(5):
        world.add(f"nowhere-{number}", node_selector={"disk": "ssd"})
    world.add("first")
    world.pass_time(HOUR)
    assert world.kept == {}
    world.pass_time(60)
    assert world.kept == {"first": "n3"}


def group_of(topology: str) -> PodGroup:
    key = GroupKey(Dialect.COSCHEDULING, "default", "train")
    return PodGroup(key, least=2, expected=2, topology=topology)


@pytest.mark.parametrize(
    "group",
    [group_of(RACK), attrs.evolve(group_of(ULTRASERVER_4), least=0, expected=0)],
    ids=["declared", "inferred, of fewer than the domain has nodes"],
)
def test_a_group_with_a_topology_gets_the_domain_that_drains_first(group: PodGroup) -> None:
    """Its members are placed there in the order of their ranks, when all of it is free."""
    world = World()
    members = [world.add(f"m{rank}", group=group, rank=rank) for rank in range(2)]
    world.now += 5.0  # an inferred group waits for more members at first
    refused = popped(world.queue, world.now)
    for each in [refused, *run(world.queue.take_companions(group.key, world.now))]:
        world.queue.put_back_refused(each, frozenset(), world.now, waits_for=frozenset(), together=True)
    world.now += HOUR
    run(world.turns.review())
    assert world.kept == {"m0": "n2", "m1": "n3"}
    for holder in ("h2", "h3"):
        world.cluster.remove_pod(f"uid-{holder}")
    plan = run(plan_group(world.cluster, gang_of(world.cluster, members), PROFILE, IndexWarmup()))
    assert isinstance(plan, GroupPlan)
    assert {taken.pod.name: taken.decision.node_name for taken in plan.members} == {"m0": "n2", "m1": "n3"}


def test_a_group_that_may_go_anywhere_gets_none() -> None:
    """It would only make the queue first come, first served."""
    world = World()
    for rank in range(2):
        world.add(f"m{rank}", group=group_of(""), rank=rank)
    world.now += 2 * HOUR
    run(world.turns.review())
    assert world.kept == {}
