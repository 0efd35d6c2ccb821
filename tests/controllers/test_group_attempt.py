"""A group from its trial to its Bindings: assumed as a whole or not at all, and never left half bound in silence."""

from collections.abc import Callable, Generator, Mapping
from typing import Any
from unittest import mock

import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers import group_attempt
from neuron_scheduler.controllers.pod_attempt import PodAttempts
from neuron_scheduler.controllers.preemption_executor import PostFilter
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced, InDoubt, Refused
from neuron_scheduler.model.node import HOSTNAME_LABEL
from neuron_scheduler.model.nomination import Nominate
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, NoNode
from neuron_scheduler.scheduling.cycle.trial import Trial
from neuron_scheduler.scheduling.groups.gang import held_text
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue import unschedulable_pods
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.controllers.test_binding_cycle import World, pending, running, until
from tests.support.builders import node
from tests.support.harness import cluster_of
from tests.support.queueing import AFFINITY, new_queue, popped

KEY = GroupKey(Dialect.COSCHEDULING, "default", "train")
FOUR = PodGroup(KEY, least=4, expected=4)
MEMBERS = tuple(f"m{number}" for number in range(4))
UNTIL_CHANGED = Refused(413, "too large", until_changed=True)


@attrs.define(eq=False)
class Jobs(World):
    """
    A cluster of whole machines, with members that take one each.

    Attributes:
        sending: called with the name of each pod whose Binding is sent.
    """

    sending: Callable[[str], object] = tuple

    def see(self, name: str, *, group: PodGroup | None = FOUR, on: str = "", devices: int = 16, **rest: Any) -> Pod:
        """Tell of a pod as the handler of pods does."""
        new = pending(name, group=group, devices=devices, on=on, **rest)
        self.cluster.groups.put(new)
        if group is not None:
            self.queue.group_changed(group.key, self.now)
        if on:
            self.queue.remove(new.uid)
            self.cluster.put_pod(new)
        else:
            self.queue.add(new, self.now)
        return new

    def lose(self, *names: str) -> None:
        for name in names:
            self.queue.remove(f"uid-{name}")
            self.cluster.groups.remove(f"uid-{name}")
            self.queue.group_changed(KEY, self.now)
            self.cluster.remove_pod(f"uid-{name}")

    def end(self, pod: Pod) -> None:
        """Tell of the end of a pod that ran."""
        self.cluster.remove_pod(pod.uid)
        self.queue.note(ClusterEvent.ASSIGNED_POD_GONE, pod, on=self.cluster.node(pod.node_name))
        self.scheduler.wake_up.set()

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome | InDoubt:
        """Try as the outcomes say."""
        self.sending(pod.name)
        return await super().bind(pod, node_name, annotations)

    @property
    def nodes(self) -> dict[str, str]:
        """The nodes of the pods that have one, by their names."""
        rows = {row.node.name: row for row in self.cluster.view.rows()}
        return {info.pod.name: name for name, row in sorted(rows.items()) for info in row.pod_infos.values()}

    def bound(self) -> set[str]:
        """Return the names of the pods that are bound."""
        return {name for name, told in self.reports if told in {row.node.name for row in self.cluster.view.rows()}}

    def report_wait(self, pod: Pod, _: str, message: str) -> None:
        """Remember it, if it is not what was said last of the pod."""
        if dict(self.reports).get(pod.name) != message:
            self.reports.append((pod.name, message))


def jobs_on(count: int, *names: str, group: PodGroup = FOUR, **fields: Any) -> Jobs:
    """Return a world of so many machines, with members that wait."""
    cluster = cluster_of([node(f"n{number}", "trn1.32xlarge") for number in range(count)])
    queue = new_queue(groups=GroupWaits(cluster.groups), view=cluster.view)
    world = Jobs(cluster=cluster, queue=queue, **fields)
    for name in names:
        world.see(name, group=group)
    return world


def at_the_end_of_a_plan(action: Callable[[], object]) -> Any:
    """Have something happen when the next group has just been placed, as in the last pause of its plan."""
    actions = [action]

    def interrupted(*arguments: Any) -> Generator[None, None, Any]:
        plan = yield from plan_group(*arguments)
        while actions:
            actions.pop()()
        return plan

    return mock.patch.object(group_attempt, "plan_group", interrupted)


def in_a_pause_of_a_plan(world: Jobs, seconds: float, happen: Callable[[], object], placed: int = 3) -> Any:
    """Have something happen when so many members are placed, so long after the attempt began."""
    left = [happen]

    def interrupted(*arguments: Any) -> Generator[None, None, Any]:
        steps = plan_group(*arguments)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            if left and world.cluster.assumed_count == placed:
                left.pop()()
                world.now += seconds
            yield

    return mock.patch.object(group_attempt, "plan_group", interrupted)


@pytest.mark.parametrize("group", [None, attrs.evolve(FOUR, least=2, topology=HOSTNAME_LABEL)])
async def test_a_refused_pod_or_group_keeps_its_turn_and_says_so(group: PodGroup | None) -> None:
    """Its condition ends with the nodes that are kept; no other pod is evicted or nominated."""
    world = jobs_on(2, *MEMBERS[: 2 if group else 0], group=group or FOUR)
    if not group:
        world.see(MEMBERS[0], group=None)
    for number in range(2):
        world.see(f"holder{number}", group=None, on=f"n{number}", devices=4, ids=range(4))
    for number, name in enumerate(MEMBERS[: 2 if group else 1]):
        queued = world.queue.get(f"uid-{name}")
        assert queued is not None
        kept = Nomination(queued.pod, CoreMask((1 << 32) - 1), frozenset({f"uid-holder{number}"}), awaited=True)
        world.cluster.nominate(f"n{number}", kept)
    nodes = "they come free: n0 (1 pod) and n1 (1 pod)" if group else "it comes free: n0 (1 pod)"
    async with running(world):
        await until(lambda: len(world.reports) == (2 if group else 1))
        assert {text.partition("Kept for it as ")[2] for _, text in world.reports} == {f"{nodes}."}
        assert all(world.cluster.has_turn(f"uid-{name}") for name, _ in world.reports)


async def test_a_group_for_which_there_is_no_room_leaves_no_trace_and_all_members_say_why() -> None:
    """The machines stay free for others, and when one comes, the group is placed."""
    world = jobs_on(3, *MEMBERS)
    async with running(world):
        await until(lambda: len(world.reports) == 4)
        assert world.nodes == {}
        assert {name for name, _ in world.reports} == {*MEMBERS}
        assert {text.partition(":")[0] for _, text in world.reports} == {
            "Group default/train needs room for 4 pods at once; 3 fit. With these placed, for the next one"
        }
        world.see("single", group=None)
        world.scheduler.wake_up.set()
        await until(lambda: world.bound() == {"single"})
    assert world.tried == ["single"]


async def test_a_group_is_not_planned_without_a_member_that_is_prepared_for() -> None:
    """The side lane has it: the others would be bound although there is no room for all."""
    world = jobs_on(3, *MEMBERS)
    prepared = world.queue.pop(0.0)
    assert prepared is not None
    async with running(world):
        await until(lambda: world.queue.count(Place.BACKOFF) == 3)
        assert (world.tried, world.nodes) == ([], {})
        world.queue.put_back_failed(prepared, world.now)
        world.now = 1.5
        world.scheduler.wake_up.set()
        await until(lambda: len(world.reports) == 4)
    assert (world.tried, world.nodes) == ([], {})


@pytest.mark.parametrize("late", [False, True])
async def test_a_group_is_not_planned_without_a_member_that_is_made_anew(late: bool) -> None:
    """Its controller deletes it while the members are gathered, and makes it anew before the plan, or during it."""
    world = jobs_on(3, *MEMBERS)
    happen: list[Callable[[], object]] = [lambda: world.lose("m2"), lambda: world.see("m2", uid="again")]

    async def gather(_attempts: PodAttempts) -> bool:
        if len(happen) == 2:
            happen.pop(0)()
            if not late:
                happen.pop()()
        return False

    with (
        mock.patch.object(PodAttempts, "wait_for_list", gather),
        at_the_end_of_a_plan(lambda: happen and happen.pop()()),
    ):
        async with running(world):
            await until(lambda: world.queue.count(Place.BACKOFF) == 3)
            assert (world.tried, world.nodes) == ([], {})


async def test_members_beyond_the_count_are_placed_as_they_fit() -> None:
    """Three of four are needed, and three fit: the fourth says what a single pod says."""
    world = jobs_on(3, *MEMBERS, group=attrs.evolve(FOUR, least=3))
    async with running(world):
        await until(lambda: len(world.reports) == 4)
    assert len(world.bound()) == 3
    ((_, text),) = [report for report in world.reports if report[0] not in world.bound()]
    assert text.startswith("0/3 nodes are available")


@pytest.mark.parametrize("change", ["goes", "changes", "is bound by another scheduler"])
async def test_a_member_that_changes_during_the_plan_undoes_it(change: str) -> None:
    """No Binding is sent, nothing stays assumed, and the group is decided again when it is complete."""
    world = jobs_on(5, *MEMBERS)

    def happen() -> None:
        if change == "goes":
            world.lose("m2")
        elif change == "changes":
            world.see("m2", labels={"new": "label"})
        else:
            world.see("m2", on="n4")

    async with running(world):
        with at_the_end_of_a_plan(happen):
            await until(lambda: world.queue.count(Place.BACKOFF) >= 3)
        assert world.tried == []
        assert world.nodes == ({"m2": "n4"} if change.startswith("is") else {})
        world.now = 1.5
        if change == "goes":
            world.scheduler.wake_up.set()
            await until(lambda: world.queue.count(Place.GATED) == 3)
            world.see("new")
        world.scheduler.wake_up.set()
        await until(lambda: len(world.nodes) == 4 and len(world.bound()) == (3 if "another" in change else 4))


async def test_a_member_of_a_group_that_completes_while_it_is_gathered_may_go_anywhere() -> None:
    """Two members have started, as many as the group needs; the one that is taken after that need not go with them."""
    world, two = jobs_on(2), attrs.evolve(FOUR, least=2, topology=HOSTNAME_LABEL)
    for name in MEMBERS:
        world.see(name, group=two, devices=8)
    take = SchedulingQueue.take_companions

    def take_later(*arguments: Any) -> Generator[None, None, list[QueuedPod]]:
        for name in ("m1", "m2"):
            world.see(name, on="n0", group=two, devices=8)
        return (yield from take(*arguments))

    async with running(world):
        with mock.patch.object(SchedulingQueue, "take_companions", take_later):
            await until(lambda: world.queue.count(Place.ACTIVE) + world.queue.count(Place.IN_FLIGHT) == 0)
        world.now = 2.0
        world.scheduler.wake_up.set()
        await until(lambda: len(world.nodes) == 4)
    assert world.nodes == {"m0": "n1", "m1": "n0", "m2": "n0", "m3": "n1"}


async def test_a_group_that_is_held_again_during_the_plan_is_not_bound() -> None:
    """Members that had a node have gone, and those that wait are too few without them: no space is kept for them."""
    world = jobs_on(4)
    for name, on in (("old0", "n2"), ("old1", "n3")):
        world.see(name, on=on)
    new = [world.see("m0"), world.see("m1")]

    def happen() -> None:
        world.lose("old0")
        world.lose("old1")
        world.cluster.nominate("n0", Nomination(new[0], CoreMask(1)))

    async with running(world):
        with at_the_end_of_a_plan(happen), mock.patch.object(group_attempt, "LOOK_AT_GROUPS", 0.0):
            await until(lambda: world.queue.count(Place.BACKOFF) == 2)
            await until(lambda: not world.cluster.has_nominations)
        assert (world.tried, world.nodes) == ([], {})


OUTCOMES = [Refused(500, "no"), Fenced()]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["refused", "fenced"])
async def test_the_space_of_a_member_that_is_not_bound_is_kept(outcome: BindOutcome) -> None:
    """An older rival does not get it; the member does, and comes first."""
    world = jobs_on(4, *MEMBERS, outcomes={"m1": outcome})
    async with running(world):
        await until(lambda: world.count("m1") == 1 and len(world.bound()) == 3)
        (free,) = {"n0", "n1", "n2", "n3"} - {*world.nodes.values()}
        world.see("rival", group=None, created=-1.0)
        world.scheduler.wake_up.set()
        await until(lambda: any(name == "rival" for name, _ in world.reports))
        assert world.nodes.get("rival") is None
        world.outcomes.clear()
        world.now = 2.0
        world.see("m1", labels={"smaller": "now"})
        world.scheduler.wake_up.set()
        await until(lambda: "m1" in world.bound())
    assert world.nodes["m1"] == free
    assert "rival" not in world.nodes


async def test_no_space_is_kept_for_a_member_that_cannot_be_bound_as_it_is() -> None:
    """A pod whose annotations are too large may stay so for ever."""
    world = jobs_on(4, *MEMBERS, outcomes={"m1": UNTIL_CHANGED})
    async with running(world):
        await until(lambda: world.count("m1") == 1 and len(world.bound()) == 3)
        world.see("rival", group=None)
        world.scheduler.wake_up.set()
        await until(lambda: "rival" in world.bound())


async def test_no_space_is_kept_where_no_member_has_a_node() -> None:
    """All were refused, and then one machine is taken: the group is refused as a whole, and gives up the others."""
    world = jobs_on(4, *MEMBERS, outcomes={"m": OUTCOMES[0]})
    async with running(world):
        await until(lambda: all(world.count(name) for name in MEMBERS) and not world.nodes)
        assert world.cluster.has_nominations
        world.see("first", group=None)
        world.scheduler.wake_up.set()
        await until(lambda: world.bound() == {"first"})
        world.now = 1.0
        world.see("second", group=None)
        world.scheduler.wake_up.set()
        await until(lambda: world.bound() == {"first", "second"})
    assert not world.cluster.has_nominations


@pytest.mark.parametrize("where", ["in the plan", "after it"])
async def test_a_crash_leaves_no_trace_and_is_every_member_s_error(where: str) -> None:
    """Nothing is assumed, a kept space stays kept, and all are tried again after a backoff."""
    world = jobs_on(4, *MEMBERS)
    kept = pending("m3", group=FOUR, devices=16)
    world.cluster.nominate("n2", Nomination(kept, CoreMask((1 << 32) - 1)))
    real, placed = Trial.place, list[str]()

    def place(trial: Trial, member: Pod, *rest: Any) -> Decision | NoNode:
        placed.append(member.name)
        if where == "in the plan" and len(placed) == 3:
            raise RuntimeError(where)
        return real(trial, member, *rest)

    if where == "after it":
        world.breaks["recheck"] = ""
        for number in range(4):
            world.cluster.nominate(f"n{number}", Nomination(pending(f"elsewhere-{number}")))
    async with running(world):
        with mock.patch.object(Trial, "place", place):
            await until(lambda: world.queue.count(Place.BACKOFF) == 4)
        assert {name for name, _ in world.reports} == {*MEMBERS}
        assert world.surprises == {"scheduling": 4}
        assert world.nodes == {}
        nominated = world.cluster.nomination("uid-m3")
        assert nominated is not None
        assert nominated[0] == "n2"
        world.breaks.clear()
        world.now = 1.0
        world.scheduler.wake_up.set()
        await until(lambda: world.bound() == {*MEMBERS})
    assert world.nodes["m3"] == "n2"


async def test_a_group_that_lacks_members_says_so_after_five_seconds() -> None:
    """Not in a burst; again when their number changes, and to a member that comes in the place of another."""
    world = jobs_on(4, "m0", "m1")
    said = (
        "Waiting for group default/train: {} of 4 members exist. It starts when all 4 do. Pods"
        " that have ended, or have scheduling gates, do not count."
    )
    with mock.patch.object(group_attempt, "LOOK_AT_GROUPS", 0.0):
        async with running(world):
            world.now = 4.9
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert world.reports == []
            world.now = 5.0
            await until(lambda: len(world.reports) == 2)
            world.lose("m1")
            world.see("m2")
            await until(lambda: len(world.reports) == 3)
            world.see("m3")
            await until(lambda: len(world.reports) == 6)
    assert world.reports[:3] == [(name, said.format(2)) for name in ("m0", "m1", "m2")]
    assert world.reports[3:] == [(name, said.format(3)) for name in ("m0", "m2", "m3")]


async def test_what_was_said_of_a_group_that_lacks_members_is_said_again() -> None:
    """The fourth comes, is refused with the others, and goes again, all between two looks at the group."""
    world = jobs_on(4, "m0", "m1", "m2")

    def come(pod: Pod, _: object) -> None:
        if pod.name == "single":
            world.see("m3")

    world.scheduler.attempts.listeners = (come,)
    said = (
        "Waiting for group default/train: 3 of 4 members exist. It starts when all 4 do. Pods"
        " that have ended, or have scheduling gates, do not count."
    )
    with mock.patch.object(group_attempt, "LOOK_AT_GROUPS", 0.0):
        async with running(world):
            world.now = 5.0
            await until(lambda: len(world.reports) == 3)
            with at_the_end_of_a_plan(lambda: world.lose("m3")):
                world.see("single", group=None)
                world.scheduler.wake_up.set()
                await until(lambda: len(world.reports) == 10)
    assert any("at once; 3 fit" in text for name, text in world.reports if name == "m2")
    assert dict(world.reports) == {"m0": said, "m1": said, "m2": said, "single": "n0"}


async def test_a_held_group_is_looked_at_only_after_a_change() -> None:
    world, looks = jobs_on(4, "m0", "m1", "m2"), mock.Mock(side_effect=held_text)
    with mock.patch.object(group_attempt, "LOOK_AT_GROUPS", 0.0), mock.patch.object(group_attempt, "held_text", looks):
        async with running(world):
            world.now = 5.0
            await until(lambda: len(world.reports) == 3)
            counts = []
            for _ in range(2):
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()
                counts.append(looks.call_count)
            assert counts[0] == counts[1]
            world.lose("m2")
            await until(lambda: "2 of 4" in dict(world.reports)["m1"])


async def test_members_that_are_all_gone_when_they_are_refused_are_no_error() -> None:
    """A job is deleted in the last pause of its plan."""
    world = jobs_on(3, *MEMBERS)
    async with running(world):
        with at_the_end_of_a_plan(lambda: world.lose(*MEMBERS)):
            world.see("single", group=None, created=1.0)
            world.scheduler.wake_up.set()
            await until(lambda: "single" in world.bound())
    assert (world.surprises, [name for name, _ in world.reports]) == ({}, ["single"])


@pytest.mark.parametrize("what_happens", ["their turn comes", "the group is looked at"])
async def test_no_member_is_bound_that_waited_while_its_group_fell_apart(what_happens: str) -> None:
    """All wait at the fence for a pod of another owner that has not started yet; then only one of them is left."""
    world = jobs_on(1)
    looks = what_happens == "the group is looked at"
    with mock.patch.object(group_attempt, "LOOK_AT_GROUPS", 0.0 if looks else 3600.0):
        async with running(world):
            world.see("x", group=None, devices=4)
            world.scheduler.wake_up.set()
            await until(lambda: "x" in world.bound())
            for name in ("m0", "m1", "m2"):
                world.see(name, group=attrs.evolve(FOUR, least=3), devices=4)
            world.scheduler.wake_up.set()
            await until(lambda: world.scheduler.binding_cycle.fence.waiting_count == 3)
            for name in ("m1", "m2"):
                world.lose(name)
                world.scheduler.binding_cycle.fence.recheck(f"uid-{name}")
            if looks:
                await until(lambda: not world.scheduler.binding_cycle.fence.waiting_count)
            else:
                world.cluster.put_pod(pending("x", devices=4, on="n0", ids=range(4), started=1.0, admitted=True))
                world.scheduler.binding_cycle.fence.recheck("uid-x")
                await until(lambda: world.queue.count(Place.GATED) == 1 or "m0" in world.tried)
    assert (world.tried, world.nodes) == (["x"], {"x": "n0"})


async def test_a_group_that_falls_apart_before_a_binding_is_sent_is_not_bound() -> None:
    """The second member's Binding has a worker already when the third and the fourth go."""
    world = jobs_on(4, *MEMBERS, outcomes={"m0": OUTCOMES[0]})

    def happen(name: str) -> None:
        if name == "m0":
            world.lose("m2", "m3")

    world.sending = happen
    async with running(world):
        await until(lambda: world.queue.count(Place.BACKOFF) == world.queue.count(Place.GATED) == 1)
    assert (world.tried, world.nodes) == (["m0"], {})
    assert not world.cluster.has_nominations


async def test_space_is_kept_only_while_its_member_can_use_it() -> None:
    """A group that has begun and is refused takes no space from others that none of its members can have."""
    world, two = jobs_on(2), attrs.evolve(FOUR, least=2, expected=2)
    world.see("m0", group=two, on="n0", ids=range(16))
    rival = LabelSelector((Requirement("app", Operator.IN, ("rival",)),))
    m1 = world.see("m1", group=two, anti_affinity=(PodAffinityTerm(HOSTNAME_LABEL, rival, frozenset({"default"})),))
    world.cluster.put_pod(pending("rival", on="n1", labels={"app": "rival"}))
    world.cluster.nominate("n1", Nomination(m1, CoreMask((1 << 32) - 1)))
    async with running(world):
        await until(lambda: "m1" in dict(world.reports) and not world.cluster.has_nominations)


async def test_a_group_whose_last_victim_goes_during_the_plan_keeps_its_space() -> None:
    """The plan has not seen the room; an older pod of the same priority does not get it before the next plan."""
    world, two = jobs_on(2), attrs.evolve(FOUR, least=2, expected=2)
    world.see("old", group=None)
    victim = world.cluster.put_pod(pending("low", on="n1", devices=16, ids=range(16), priority=-1)).pod
    for number, victims in enumerate((frozenset[str](), frozenset({victim.uid}))):
        member = world.see(f"m{number}", group=two)
        world.cluster.nominate(f"n{number}", Nomination(member, CoreMask((1 << 32) - 1), victims))

    def happen() -> None:
        world.cluster.remove_pod(victim.uid)
        world.queue.note(ClusterEvent.ASSIGNED_POD_GONE, victim, on=world.cluster.node("n1"))

    async with running(world):
        with at_the_end_of_a_plan(happen):
            await until(lambda: len(world.nodes) == 2)
    assert world.nodes == {"m0": "n0", "m1": "n1"}


async def test_a_group_waits_for_victims_that_are_leaving_already() -> None:
    """Its places are kept, and nobody is searched for again; an attempt while they leave is paid back by it alone."""
    world, two, searches = jobs_on(2), attrs.evolve(FOUR, least=2, expected=2), list[str]()
    victims = [pending(f"low{number}", on=f"n{number}", devices=16, ids=range(16), priority=-1) for number in range(2)]
    for victim in victims:
        world.cluster.put_pod(victim)

    async def search(_: Jobs, members: list[QueuedPod], *__: object) -> Mapping[str, PostFilter]:
        searches.append(members[0].pod.name)
        for member, victim in zip(members, victims, strict=True):
            kept = Nomination(member.pod, CoreMask((1 << 32) - 1), frozenset({victim.uid}))
            world.cluster.nominate(victim.node_name, kept)
        named = zip(members, victims, strict=True)
        return {member.pod.uid: PostFilter(nomination=Nominate(victim.node_name)) for member, victim in named}

    with mock.patch.object(Jobs, "post_filter_group", search):
        async with running(world):
            for name in ("m0", "m1"):
                world.see(name, group=two)
            world.scheduler.wake_up.set()
            await until(lambda: {"m0", "m1"} <= dict(world.reports).keys())
            assert world.cluster.nominees_among({"uid-m0", "uid-m1"}) == {"uid-m0", "uid-m1"}
            with at_the_end_of_a_plan(lambda: setattr(world, "now", 0.1)):
                world.end(victims[0])
                await until(lambda: world.queue.groups.not_before(KEY, world.now) == pytest.approx(0.3))
            world.now = 0.4
            world.end(victims[1])
            await until(lambda: len(world.nodes) == 2)
    assert len(searches) == 1


async def test_a_held_group_keeps_no_space() -> None:
    """One member is bound, one is refused, and meanwhile two have gone: the next start is a new decision."""
    world = jobs_on(4, *MEMBERS, outcomes={"m1": OUTCOMES[0]})

    def happen(name: str) -> None:
        if name == "m1":
            world.see("m0", on="n0")
            world.lose("m2", "m3")

    world.sending = happen
    async with running(world):
        await until(lambda: world.queue.count(Place.BACKOFF) == 1)
    assert world.nodes == {"m0": "n0"}
    assert not world.cluster.has_nominations


@pytest.mark.parametrize("end", ["bound", "refused", "evicts", "changed", "crashed"])
async def test_an_attempt_that_binds_nobody_is_paid_back(end: str) -> None:
    """Another group of the namespace waits for 20 times as long as it took; not after one that is bound, or evicts."""
    world = jobs_on(3 if end in ("refused", "evicts") else 4, *MEMBERS)

    def happen() -> None:
        world.now = 0.01
        if end == "changed":
            world.see("m2", labels={"new": "label"})
        if end == "crashed":
            raise RuntimeError(end)

    async def search(_: Jobs, members: list[QueuedPod], *__: object) -> Mapping[str, PostFilter]:
        return {member.pod.uid: PostFilter(held=True) for member in members if end == "evicts"}

    async with running(world):
        with at_the_end_of_a_plan(happen), mock.patch.object(Jobs, "post_filter_group", search):
            await until(lambda: not world.queue.count(Place.ACTIVE) and not world.queue.count(Place.IN_FLIGHT))
        other = attrs.evolve(KEY, name="other")
        world.see("other", group=PodGroup(other, expected=1))
        assert world.queue.groups.not_before(other, world.now) == pytest.approx(
            0.0 if end in ("bound", "evicts") else 0.21
        )


async def test_a_single_pod_does_not_wait_behind_a_member_that_is_left_out() -> None:
    """Both wait for the same, and the member is older; but its group has to wait for its turn."""
    world = jobs_on(3, *MEMBERS, group=attrs.evolve(FOUR, least=3))
    async with running(world):
        await until(lambda: len(world.reports) == 4)
        world.see("single", group=None, namespace="other")
        world.scheduler.wake_up.set()
        await until(lambda: len(world.reports) == 5)
        world.queue.groups.charge(KEY, 0, 1.0, world.now)
        world.cluster.put_node(node("n3", "trn1.32xlarge"))
        world.queue.note(ClusterEvent.NODE_ADDED, on=world.cluster.node("n3"))
        await until(lambda: world.nodes.get("single") == "n3")


async def test_the_only_member_of_an_inferred_group_is_tried_alone_after_the_burst() -> None:
    """No other is known to come, so it may evict pods and is refused as a single pod; a second one makes it a group."""
    words = PodGroup(GroupKey(Dialect.KUEUE, "default", "train"))
    world = jobs_on(0, "m0", group=words)
    async with running(world):
        world.now = 1.0
        world.scheduler.wake_up.set()
        await until(lambda: len(world.reports) == 1)
        world.see("m1", group=words)
        world.now = 30.0
        world.scheduler.wake_up.set()
        await until(lambda: len(world.reports) == 3)
    assert [text.partition(":")[0] for _, text in world.reports] == [
        "no nodes available to schedule pods",
        *["Group default/train needs room for 2 pods at once; 0 fit. For the next one"] * 2,
    ]


@pytest.mark.parametrize(
    ("seconds", "priority", "before"), [(0.6, 0, True), (0.6, 1, True), (0.6, -1, False), (0.4, 1, False)]
)
async def test_a_single_pod_waits_half_a_second_for_a_large_group(
    seconds: float, priority: int, *, before: bool
) -> None:
    """While the plan is made, it is bound in a pause; one of lower priority waits until the group has its places."""
    world = jobs_on(5, *MEMBERS)
    with in_a_pause_of_a_plan(world, seconds, lambda: world.see("single", group=None, priority=priority)):
        async with running(world):
            await until(lambda: len(world.bound()) == 5)
    assert world.tried.index("single") == (0 if before else 1)


@pytest.mark.parametrize("lines", [0, 3])
async def test_a_single_pod_waits_half_a_second_for_many_groups(lines: int) -> None:
    """None of them takes so long by itself, and all of them came first; so did pods that are asked in several steps."""
    world, placed = jobs_on(7), list[bool]()
    for line in range(lines):
        world.see(f"line{line}", group=None, node_selector={"a": str(line)})
        world.queue.put_back_refused(popped(world.queue, 0.0), AFFINITY, 0.0)
    for name in "abc":
        for member in range(2):
            world.see(f"{name}{member}", group=PodGroup(attrs.evolve(KEY, name=name), least=2, expected=2))
    world.see("single", group=None)

    def planned(*arguments: Any) -> Generator[None, None, Any]:
        placed.append(world.cluster.node_of("uid-single") is not None)
        world.now += 0.3
        world.queue.note(ClusterEvent.NODE_LABELS, on=world.cluster.node("n6"))
        return (yield from plan_group(*arguments))

    with mock.patch.object(group_attempt, "plan_group", planned), mock.patch.object(unschedulable_pods, "AT_ONCE", 1):
        async with running(world):
            await until(lambda: len(world.bound()) == 7)
    assert placed == [False, False, True]


@pytest.mark.parametrize("machines", [3, 4])
async def test_a_single_pod_is_not_refused_for_space_that_a_group_may_give_back(machines: int) -> None:
    """With three machines the group does not fit, and the pod gets one; it is refused once the group has all four."""
    world = jobs_on(machines, *MEMBERS)
    with in_a_pause_of_a_plan(world, 1.0, lambda: world.see("single", group=None), placed=machines):
        async with running(world):
            await until(lambda: len(world.reports) == 5)
    (text,) = [text for name, text in world.reports if name == "single"]
    assert text == "n0" if machines == 3 else text.startswith("0/4 nodes are available")


async def test_single_pods_are_bound_between_the_members_of_a_group() -> None:
    """Their Bindings do not wait until all members of a large group have theirs."""
    names = [f"m{number:02}" for number in range(20)]
    world = jobs_on(22, *names, group=PodGroup(KEY, least=20, expected=20))
    world.sending = lambda name: name == "m02" and (world.see("a", group=None), world.see("b", group=None))
    async with running(world):
        await until(lambda: len(world.bound()) == 22)
    assert max(map(world.tried.index, "ab")) < 12
    assert [name for name in world.tried if name not in "ab"] == names


async def test_a_member_that_has_to_leave_before_its_binding_is_sent_is_not_bound() -> None:
    """Its place is needed for another pod: it is queued again, and not deleted."""
    names = [f"m{number:02}" for number in range(20)]
    world = jobs_on(20, *names, group=PodGroup(KEY, least=19, expected=20))
    fence = world.scheduler.binding_cycle.fence
    world.sending = lambda name: name == "m00" and fence.give_up("uid-m10")
    async with running(world):
        await until(lambda: len(world.bound()) == 19)
        assert not fence.give_up("uid-m10")
        assert world.queue.count(Place.BACKOFF) == 1
    assert "m10" not in world.tried
