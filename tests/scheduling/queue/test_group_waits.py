"""Groups in the queue: which members are held, how long the others wait for more, and who is tried together."""

import cProfile
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.model.node import ULTRASERVER_4
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import BINDER, SchedulingQueue
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.queueing import AFFINITY, FIT, GONE, apply_events, counts, drain, new_queue, popped

TRAIN = GroupKey(Dialect.COSCHEDULING, "default", "train")
THREE = PodGroup(TRAIN, least=3, expected=3)
INFERRED = PodGroup(GroupKey(Dialect.LEADER_WORKER_SET, "default", "recipe"), expected=4)
EIGHT = PodGroup(GroupKey(Dialect.LEADER_WORKER_SET, "default", "serve"), expected=8)
RECIPE = PodGroup(GroupKey(Dialect.AFFINITY, "default", "recipe"), topology=ULTRASERVER_4)
BY_NAME = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "named"))


@attrs.define(eq=False)
class Fed:
    """A queue and the table of members, told of pods in the order in which the handler of pods tells them."""

    groups: Groups = attrs.field(factory=Groups)
    queue: SchedulingQueue = attrs.field(init=False)
    told: dict[str, Pod] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.queue = new_queue(groups=GroupWaits(self.groups))

    def see(self, name: str, now: float = 0.0, group: PodGroup | None = THREE, **rest: Any) -> None:
        """A pod comes or changes; bound and other schedulers' pods do not wait."""
        before, new = self.told.get(name), pod(name, group=group, **{"scheduler_name": "ours", **rest})
        self.told[name] = new
        self.groups.put(new)
        self._changed(now, before, new)
        if new.node_name:
            self.queue.remove(new.uid)
        elif new.scheduler_name == "ours":
            self.queue.add(new, now)

    def lose(self, name: str, now: float = 0.0) -> None:
        """A pod is gone."""
        old = self.told.pop(name)
        self.queue.remove(old.uid)
        self.groups.remove(old.uid)
        self._changed(now, old)

    def _changed(self, now: float, *states: Pod | None) -> None:
        for group in dict.fromkeys(state.group for state in states if state is not None):
            if group is not None:
                self.queue.group_changed(group.key, now)

    def trial(self, now: float) -> list[QueuedPod]:
        """Pop a pod, and take the others of its group."""
        first = popped(self.queue, now)
        assert first.pod.group is not None
        return [first, *run(self.queue.take_companions(first.pod.group.key, now))]

    def refuse(self, now: float, plugins: frozenset[str] = FIT) -> list[QueuedPod]:
        """Try a group in vain."""
        members = self.trial(now)
        self.put_back(members, now, plugins)
        return members

    def put_back(
        self, members: list[QueuedPod], now: float, plugins: frozenset[str] = FIT, *, kept: bool = False
    ) -> None:
        """Refuse members together, and say whether space is kept for them."""
        for member in members:
            self.queue.put_back_refused(
                member, plugins, now, waits_for=plugins, together=True, cause=Cause.CAPACITY, has_nomination=kept
            )


def fed(*names: str, group: PodGroup = THREE, now: float = 0.0) -> Fed:
    """Return a queue that has seen members of a group."""
    world = Fed()
    for name in names:
        world.see(name, now, group)
    return world


def names(members: list[QueuedPod]) -> set[str]:
    return {member.pod.name for member in members}


# Held until enough members exist


def test_a_declared_group_is_held_below_its_count_and_let_in_as_a_whole() -> None:
    """Two of three wait as if a gate held them; with the third, one pop takes all. Groups are counted by state."""
    world = fed("a", "b")
    assert counts(world.queue) == {"gated": 2}
    assert world.queue.groups.counts() == {"held": 1, "refused": 0}
    assert {world.queue.cause_of(queued) for queued in world.queue.pods()} == {Cause.GROUP}
    assert world.queue.pop(0.0) is None
    world.see("c", 1.0)
    assert world.queue.groups.counts() == {"held": 0, "refused": 0}
    assert names(world.refuse(1.0)) == {"a", "b", "c"}
    assert world.queue.groups.counts() == {"held": 0, "refused": 1}


@pytest.mark.parametrize(
    "more", [{"on": "n"}, {"scheduler_name": "another"}], ids=["a placed one", "one of another scheduler"]
)
def test_members_that_are_not_ours_to_place_count(more: dict[str, Any]) -> None:
    """With one of those, two more are enough."""
    world = fed("a", "b")
    world.see("c", **more)
    assert names(world.trial(0.0)) == {"a", "b"}


@pytest.mark.parametrize("before", ["active", "refused", "in backoff"])
def test_a_group_that_loses_a_member_is_held_again(before: str) -> None:
    """Wherever its members wait, until the next one comes."""
    world = fed("a", "b", "c")
    if before == "refused":
        world.refuse(0.0)
    if before == "in backoff":
        for member in world.trial(0.0):
            world.queue.put_back_failed(member, 0.0)
    world.lose("b")
    assert counts(world.queue) == {"gated": 2}
    world.see("d", 100.0)
    assert names(world.trial(100.0)) == {"a", "c", "d"}


@pytest.mark.parametrize("ends", ["in an error", "in a refusal"])
def test_members_in_flight_are_held_when_they_come_back(ends: str) -> None:
    """A member that goes while they are tried leaves too few; no event, and no end of a backoff, lets them in."""
    world = fed("a", "b", "c")
    members = world.trial(0.0)
    world.lose("b")
    for member in members:
        if ends == "in an error":
            world.queue.put_back_failed(member, 0.0)
        else:
            world.queue.put_back_refused(member, FIT, 0.0)
    world.queue.note(GONE)
    assert drain(world.queue, 100.0) == []
    assert counts(world.queue).keys() <= {"gated", "unschedulable"}
    world.see("d", 101.0)
    assert names(world.trial(101.0)) == {"a", "c", "d"}


def test_a_pod_may_change_its_group() -> None:
    """The one that it leaves is held again, and keeps its turn; the one that it joins is complete."""
    other = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "other"), least=2)
    world = fed("a", "b", "c")
    world.see("x", group=other)
    world.see("c", group=other)
    assert counts(world.queue) == {"gated": 2, "active": 2}
    world.see("c", group=None)
    assert counts(world.queue) == {"gated": 3, "active": 1}
    world.see("d")
    assert names(world.trial(0.0)) == {"a", "b", "d"}


@pytest.mark.parametrize("least", [2, 4])
def test_a_count_may_change(least: int) -> None:
    """What the member says that was told last counts for all."""
    world = fed("a", "b", "c", group=attrs.evolve(THREE, least=6 - least))
    for name in "abc":
        world.see(name, 1.0, attrs.evolve(THREE, least=least))
    assert counts(world.queue) == ({"active": 3} if least == 2 else {"gated": 3})


def test_of_counts_that_differ_the_largest_counts() -> None:
    """Whoever says it, and whoever came last."""
    world = fed("a", "b", "c", group=attrs.evolve(THREE, least=4))
    world.see("d", group=attrs.evolve(THREE, least=2))
    world.lose("a")
    assert counts(world.queue) == {"gated": 3}


def test_a_count_goes_with_the_member_that_said_it() -> None:
    """The others are not held for a pod that nobody else asks for."""
    world = fed("a", "b", group=attrs.evolve(THREE, least=2))
    world.refuse(0.0)
    world.see("c", 1.0)
    world.lose("c", 1.0)
    assert names(world.trial(2.0)) == {"a", "b"}


# Inferred groups


def test_the_first_try_of_an_inferred_group_waits_for_the_end_of_a_burst() -> None:
    """A second after the last member, three after the first, and no idle queue cuts that short."""
    world = fed("a", group=INFERRED, now=10.0)
    assert world.queue.pop(10.9) is None
    world.see("b", 10.9, INFERRED)
    world.see("c", 11.8, INFERRED)
    for now in (11.0, 11.9, 12.7):
        assert world.queue.pop(now) is None
    assert names(world.trial(12.8)) == {"a", "b", "c"}


def test_a_burst_is_waited_for_so_long_only() -> None:
    """One member a second for ever delays the group by three seconds."""
    world, now = fed("a", group=attrs.evolve(INFERRED, expected=0)), 0.0
    while world.queue.pop(now) is None:
        now += 0.5
        if now == int(now):
            world.see(f"b{now}", now, attrs.evolve(INFERRED, expected=0))
    assert now == 3.0


def test_a_burst_ends_when_all_are_there_that_are_expected() -> None:
    """Four of four are tried at once, those too that had begun to wait; so is one that comes for the last of them."""
    world = fed("a", "b", group=INFERRED)
    assert world.queue.pop(0.5) is None
    world.see("c", 0.6, INFERRED)
    world.see("d", 0.6, INFERRED)
    assert names(world.trial(0.6)) == set("abcd")


def test_a_guess_ends_no_burst() -> None:
    """An UltraServer has four nodes, but nobody said that there are no more workers."""
    world = fed(*"abcd", group=RECIPE)
    assert world.queue.pop(0.9) is None
    for name in "efgh":
        world.see(name, 0.9, RECIPE)
    assert names(world.trial(1.9)) == set("abcdefgh")


def test_members_that_end_one_after_the_other_keep_nobody_waiting() -> None:
    """Each may be created again, for which the others wait; but not for the next one that ends."""
    group = attrs.evolve(INFERRED, expected=12)
    world = fed("waits", group=group)
    for number in range(9):
        world.see(f"runs-{number}", 0.0, group, on="n")
    world.refuse(3.0)
    for number, now in enumerate((10.0, 10.3, 10.6, 10.9)):
        world.lose(f"runs-{number}", now)
        assert world.queue.pop(now) is None
    assert names(world.trial(11.0)) == {"waits"}


# Refused groups


@pytest.mark.parametrize("event", [GONE, ClusterEvent.NODE_ADDED, ClusterEvent.CLAIM_CHANGED])
def test_a_refused_group_is_one_line_that_any_event_wakes(event: ClusterEvent) -> None:
    """Whatever refused it: only the first member is woken, and takes the others along."""
    world = fed("a", "b", "c")
    world.refuse(0.0, frozenset())
    assert counts(world.queue) == {"unschedulable": 3}
    world.queue.note(event, claim="default/claim" if event is ClusterEvent.CLAIM_CHANGED else "")
    apply_events(world.queue, 1.0)
    assert counts(world.queue) == {"unschedulable": 2, "active": 1}
    assert names(world.trial(1.0)) == {"a", "b", "c"}


def test_what_happens_while_a_group_is_tried_is_not_missed() -> None:
    """An event after its first decision wakes it at once."""
    world = fed("a", "b", "c")
    members = world.trial(0.0)
    world.queue.keep_events(members[0])
    world.queue.note(GONE)
    world.put_back(members, 0.0)
    assert names(world.trial(0.0)) == {"a", "b", "c"}


@pytest.mark.parametrize("any_event", [False, True])
def test_a_refused_group_sleeps_through_what_cannot_help(any_event: bool) -> None:
    """Another tenant's pods come and go all the time, and an attempt in vain is followed by a backoff and a pause."""
    world = Fed()
    for name in "abc":
        world.see(name, cpu=2000)
    for member in world.trial(0.0):
        world.queue.put_back_refused(member, FIT, 0.0, waits_for=frozenset() if any_event else FIT, together=True)
    gone = pod("x", on="n", cpu=9)
    world.queue.note(GONE, gone, on=NodeInfo(node("n", cpu=1999)))
    assert (world.queue.pop(100.0) is not None) == any_event
    world.queue.note(GONE, gone, on=NodeInfo(node("n", cpu=2000)))
    assert any_event or names(world.trial(100.0)) == {"a", "b", "c"}


def test_a_refused_group_is_tried_when_another_scheduler_binds_a_member() -> None:
    """Such as a launcher of kube-scheduler's: fewer of the others are needed then, which no event says."""
    world = fed("a", "b")
    world.see("launcher", scheduler_name="another")
    for member in world.trial(0.0):
        world.queue.put_back_refused(member, FIT, 0.0, waits_for=FIT, together=True)
    assert world.queue.pop(10.0) is None
    world.see("launcher", 20.0, scheduler_name="another", on="n")
    assert names(world.trial(20.0)) == {"a", "b"}


def test_a_group_misses_nothing_that_happens_while_it_is_put_back() -> None:
    """Also where the popped member is bound by another scheduler in the same moment."""
    world = fed("a", "b", "c", "d")
    first, *others = world.trial(0.0)
    world.queue.keep_events(first)
    world.put_back([first], 0.0)
    world.queue.note(GONE)
    world.see("a", on="n")
    world.put_back(others, 0.0)
    assert names(world.trial(0.0)) == {"b", "c", "d"}


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_refused_group_is_tried_without_a_member_that_is_gone(in_flight: bool) -> None:
    """No other event tells that the rest may fit; but it may be created again, or the others may go as well."""
    world = fed("a", "b", "c", group=INFERRED)
    members = world.trial(2.0) if in_flight else world.refuse(2.0)
    world.lose("a", 20.0)
    if in_flight:
        world.put_back(members, 20.0)
    assert world.queue.pop(20.9) is None
    assert names(world.trial(21.0)) == {"b", "c"}


def test_a_refused_group_keeps_its_turn_and_gets_no_better_one() -> None:
    """An older pod of the same priority comes before it."""
    world = Fed()
    world.see("older", group=None)
    older = popped(world.queue, 0.0)
    for name in "abc":
        world.see(name, 1.0)
    world.refuse(1.0)
    world.queue.put_back_refused(older, FIT, 1.0)
    world.queue.note(GONE)
    assert popped(world.queue, 2.0).pod.name == "older"


# Half-bound groups


@pytest.mark.parametrize("waits", [True, False], ids=["before its group is bound in part", "after"])
@pytest.mark.parametrize(
    ("group", "bound", "first"),
    [
        *((THREE, bound, bound == 2) for bound in (0, 2, 3, 4)),
        *((EIGHT, bound, bound == 7) for bound in (4, 7, 8)),  # of four and three more, one does not exist
        *((RECIPE, bound, bound == 3) for bound in (3, 4)),
        (BY_NAME, 1, False),
    ],
)
def test_members_of_half_bound_groups_come_first_in_their_priority(
    group: PodGroup, bound: int, first: bool, waits: bool
) -> None:
    """Before older pods, but not before those of a higher priority; later pods of a complete group are as any other."""
    world = Fed()
    world.see("older", group=None)
    world.see("urgent", group=None, priority=1)
    if waits:
        world.see("last", 1.0, group)
    for number in range(bound):
        world.see(f"m{number}", 1.0, group, on="n")
    for name in ("last", "another", "a third"):
        world.see(name, 1.0, group)
    assert drain(world.queue, 9.0)[:2] == ["urgent", "last" if first else "older"]


def test_a_refused_member_of_a_half_bound_group_comes_first_too() -> None:
    """It is asked about an event before an older pod is tried, even if it was not its turn when the event came."""
    world = Fed()
    for name, plugins in (("oldest", FIT), ("older", FIT), ("last", AFFINITY)):
        world.see(name, 1.0, EIGHT if name == "last" else None, cpu=len(name))
        world.queue.put_back_refused(popped(world.queue, 9.0), plugins, 9.0)
    world.see("older", 9.0, group=None, cpu=1)
    world.queue.note(ClusterEvent.NODE_LABELS)
    apply_events(world.queue, 9.0)
    for number in range(7):
        world.see(f"m{number}", 9.0, EIGHT, on="n")
    assert drain(world.queue, 9.0) == ["last", "older"]


@pytest.mark.parametrize(
    ("dialect", "ahead"),
    [(Dialect.COSCHEDULING, 0), (Dialect.LEADER_WORKER_SET, 0), (Dialect.LEADER_WORKER_SET, 1)],
)
def test_a_count_that_each_new_pod_raises_makes_none_of_them_first(dialect: Dialect, ahead: int) -> None:
    """What the members with a node said counts; else a tenant's pods would come before all older ones for ever."""
    world = Fed()
    for number in range(1, 9):
        group, now = PodGroup(GroupKey(dialect, "default", "grows"), expected=number + ahead), 10.0 * number
        if dialect is Dialect.COSCHEDULING:
            group = attrs.evolve(group, least=number)
        world.see("older", now, group=None)
        world.see(f"m{number}", now, group)
        second_of_two = ahead and number == 2
        assert drain(world.queue, now + 5.0) == ([f"m{number}", "older"] if second_of_two else ["older", f"m{number}"])
        world.see(f"m{number}", now + 5.0, group, on="n")
        world.lose("older", now + 5.0)


def test_a_member_that_ends_makes_the_others_first_again() -> None:
    """So does one that changes its mind about the group; a pod that leaves the group leaves its place."""
    world = fed(*"abc")
    for name in "abc":
        world.see(name, 1.0, on="n")
    world.see("older", 2.0, group=None)
    for name in "de":
        world.see(name, 3.0)
    world.lose("a", 4.0)
    world.see("d", 5.0, group=None)
    assert drain(world.queue, 9.0) == ["e", "older", "d"]


# Cost


def life_of(count: int) -> int:
    """Return the calls for a group that is created, tried in vain, woken, and bound member by member."""
    group, world = PodGroup(TRAIN, least=count), Fed()
    everyone = [f"m{number}" for number in range(count)]

    def live() -> None:
        for name in everyone:
            world.see(name, 0.0, group)
        world.refuse(0.0)
        world.queue.note(GONE)
        world.trial(1.0)
        for name in everyone:
            world.see(name, 2.0, group, on="n")

    profile = cProfile.Profile()
    profile.runcall(live)
    return sum(entry.callcount for entry in profile.getstats())


def test_a_member_of_a_large_group_costs_as_much_as_one_of_a_small_one() -> None:
    """A thousand members take ten times the calls of a hundred: no member looks at all the others."""
    assert life_of(1000) < 11 * life_of(100)


def longest_step_of(count: int) -> int:
    """Return how many calls the longest step takes of a group that completes, is tried, falls apart and is woken."""
    group, world = PodGroup(TRAIN, least=count), Fed()
    longest = 0

    def step(action: Callable[..., Any], *given: Any) -> Any:
        nonlocal longest
        profile = cProfile.Profile()
        result = profile.runcall(action, *given)
        longest = max(longest, sum(entry.callcount for entry in profile.getstats()))
        return result

    def tried(now: float) -> list[QueuedPod]:
        while step(world.queue.pop, now) is None:
            assert world.queue.next_time() == -math.inf
        taking, end = world.queue.take_companions(TRAIN, now), object()
        while step(next, taking, end) is not end:
            pass
        assert counts(world.queue) == {Place.IN_FLIGHT: count}
        return [*world.queue.groups.waiting_members(TRAIN)]

    for number in range(count):
        step(world.see, f"m{number}", 0.0, group)
    world.put_back(tried(1.0), 1.0)
    step(world.lose, "m0", 2.0)
    while world.queue.next_time() == -math.inf:
        assert step(world.queue.pop, 2.0) is None
    assert counts(world.queue) == {Place.GATED: count - 1}
    step(world.see, "m0", 3.0, group)
    tried(3.0)
    return longest


def test_nothing_is_left_of_a_large_group_that_is_gone() -> None:
    """A standby, which pops nobody, would keep it until it leads."""
    world = Fed()
    large = attrs.evolve(THREE, least=100, expected=100)
    for number in range(100):
        world.see(f"m{number}", group=large)
    for number in range(100):
        world.lose(f"m{number}")
    assert world.queue.next_time() is None


def test_no_step_looks_at_all_members_of_a_large_group() -> None:
    """Neither when the last one comes, nor when one goes, nor when they are taken along; the next steps go on."""
    assert longest_step_of(1000) < 2 * longest_step_of(200)


def test_a_member_beyond_the_count_cuts_no_backoff_short() -> None:
    """Space that a refused Binding frees wakes it, and it would take along those whose attempts ended in an error."""
    world = fed("a", "b", "c", "d")
    left_out, *members = world.trial(0.0)
    world.queue.put_back_refused(left_out, FIT, 0.0, alone=True)
    for member in members:
        world.queue.put_back_failed(member, 0.1)
    world.queue.note(GONE)
    assert world.queue.pop(0.2) is None
    assert names(world.trial(2.0)) == {"a", "b", "c", "d"}


def test_a_member_beyond_the_count_is_tried_again_once_the_group_is_complete() -> None:
    """From then on it may evict pods for itself; it is not tried before, however often the others are looked at."""
    world = fed("a", "b", "c", "d")
    left_out, *members = world.trial(0.0)
    world.queue.put_back_refused(left_out, FIT, 0.0, alone=True)
    for member in members:
        assert world.queue.pop(10.0) is None
        world.see(member.pod.name, 10.0, on="n")
    assert names(world.trial(10.0)) == {left_out.pod.name}


def test_a_member_that_an_event_has_woken_is_tried_once_its_group_is_complete() -> None:
    """The space for which it was woken is taken before its turn, but from then on it may evict pods for itself."""
    cluster = cluster_of([node("n", "trn1.32xlarge")])
    world = Fed(cluster.groups)
    world.queue = new_queue(groups=GroupWaits(cluster.groups), view=cluster.view)
    for name in "abcd":
        world.see(name, devices=16)
    left_out, *members = world.trial(0.0)
    for member in members[1:]:
        world.see(member.pod.name, on="elsewhere", devices=16)
    world.queue.put_back_refused(left_out, FIT, 0.0, alone=True)
    world.queue.note(GONE, on=cluster.node("n"))
    apply_events(world.queue, 10.0)
    cluster.put_pod(pod("rival", on="n", devices=16, ids=range(16)))
    assert left_out.place is Place.ACTIVE
    world.see(members[0].pod.name, 10.0, on="elsewhere", devices=16)
    assert popped(world.queue, 10.0) is left_out


def test_a_member_that_cannot_be_bound_waits_for_its_own_change() -> None:
    """The rest of its group is tried without an event of its own, and takes it along."""
    world = fed("a", "b", "c")
    members = world.trial(0.0)
    world.queue.put_back_refused(members[0], frozenset({BINDER}), 0.0)
    for member in members[1:]:
        world.queue.put_back_failed(member, 0.0)
    assert world.queue.pop(0.5) is None
    assert names(world.trial(1.0)) == {"a", "b", "c"}
    assert {member.place for member in members} == {Place.IN_FLIGHT}


def tries_of(
    world: Fed,
    groups: int,
    *,
    seconds: float,
    until: float,
    churn: bool = False,
    beside: bool = False,
    namespaces: Sequence[str] = ("default",),
    kept: bool = False,
) -> Counter[str]:
    """
    Have groups of two refused again and again, each in so many seconds; return how often each was tried.

    An event that may help all of them comes at any time. A group that churns is deleted when it was refused, and comes
    again with another name. A pod that comes `beside` them, of another namespace, waits for one attempt at most.
    """
    tries, now, born, waited = Counter[str](), 0.0, groups, 0

    def come(number: int, now: float) -> None:
        namespace = namespaces[number % len(namespaces)]
        group = PodGroup(GroupKey(Dialect.COSCHEDULING, namespace, f"g{number}"), least=2, expected=2)
        for member in "ab":
            world.see(f"g{number}-{member}", now, group, namespace=namespace)

    for number in range(groups):
        come(number, now)
    while now < until:
        world.queue.note(GONE)
        if beside and "single" not in world.told:
            world.see("single", now, group=None, namespace="other")
            waited = 0
        queued = world.queue.pop(now)
        if queued is None:
            now += 0.001
            continue
        if queued.pod.name == "single":
            world.lose("single", now)
            now += 0.001
            continue
        waited += 1
        assert waited == 1 or not beside
        assert queued.pod.group is not None
        name = queued.pod.group.key.name
        members = [queued, *run(world.queue.take_companions(queued.pod.group.key, now))]
        assert len(members) == 2
        tries[name] += 1
        now += seconds
        world.put_back(members, now, kept=kept)
        world.queue.groups.charge(queued.pod.group.key, 0, seconds, now)
        if churn:
            for member in "ab":
                world.lose(f"{name}-{member}", now)
            come(born, now)
            born += 1
    return tries


@pytest.mark.parametrize("churn", [False, True])
@pytest.mark.parametrize(("groups", "seconds"), [(1, 0.005), (24, 0.005), (24, 0.5)])
def test_groups_in_vain_use_a_twentieth_of_the_time(groups: int, seconds: float, churn: bool) -> None:
    """However many there are, how long they take, and whether they come anew; each has its turn."""
    tries = tries_of(Fed(), groups, seconds=seconds, until=4000 * seconds, churn=churn)
    assert 0.035 < tries.total() / 4000 <= 1 / 20
    assert max(tries.values()) - min(tries.values()) <= 2


@pytest.mark.parametrize(("kept", "apart"), [(False, 2), (True, 3)])
def test_forty_groups_in_vain_that_pay_apart_leave_half_of_the_time(kept: bool, apart: int) -> None:
    """In a namespace each, or while the victims of each end; others could have none. Each has its turn all the same."""
    namespaces = ["default" if kept else f"n{number}" for number in range(40)]
    tries = tries_of(Fed(), 40, seconds=0.1, until=400.0, namespaces=namespaces, kept=kept)
    assert 0.4 < tries.total() * 0.1 / 400.0 < 0.55
    assert max(tries.values()) - min(tries.values()) <= apart


@pytest.mark.parametrize("churn", [False, True])
def test_a_single_pod_waits_for_one_attempt_of_a_namespace(churn: bool) -> None:
    """Beside 24 groups that are new, then refused and woken by every event, or that come anew."""
    tries_of(Fed(), 24, seconds=0.005, until=3.0, churn=churn, beside=True)


def test_the_only_member_that_its_group_needs_takes_no_turn() -> None:
    """It is decided like any pod, however long the groups of its namespace have taken in vain."""
    world = Fed()
    world.queue.groups.charge(TRAIN, 0, 9.0, 0.0)
    world.see("a", 0.0, PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "serve"), least=1, expected=1))
    assert popped(world.queue, 0.0).pod.name == "a"


def test_a_group_whose_attempt_took_little_is_tried_again_soon() -> None:
    """A millisecond is paid back in twenty; other namespaces do not wait, and neither do pods without a group."""
    world = fed("a", "b", "c")
    world.refuse(0.0)
    world.queue.groups.charge(TRAIN, 0, 0.001, 0.0)
    other = PodGroup(GroupKey(Dialect.COSCHEDULING, "other", "train"), least=2, expected=2)
    for name in ("single", "x", "y"):
        world.see(name, group=None if name == "single" else other)
    world.queue.note(GONE)
    assert popped(world.queue, 0.019).pod.name == "single"
    assert names(world.trial(0.019)) == {"x", "y"}
    assert world.queue.pop(0.019) is None
    assert world.queue.next_time() == pytest.approx(0.020)
    assert names(world.trial(0.020)) == {"a", "b", "c"}


def test_a_refused_single_pod_is_asked_before_a_group_is_tried() -> None:
    """It came after the group, and may be tried in between groups as newer ones are."""
    world = fed("a", "b", "c")
    world.refuse(0.0)
    for name in ("other", "single"):
        world.see(name, group=None, cpu=len(name))
        world.queue.put_back_refused(popped(world.queue, 0.0), FIT, 0.0)
    world.queue.note(GONE)
    assert names(world.trial(0.1)) == {"a", "b", "c"}
    assert [queued and queued.pod.name for queued in map(world.queue.pop_single, (0, 0))] == ["other", None]
    queued = world.queue.pop_single(0, 0.1)
    assert queued is not None
    assert queued.pod.name == "single"


def test_an_active_pod_may_join_a_group_and_leave_it() -> None:
    """Only while it is in none, it may be tried in between groups."""
    world = Fed()
    world.see("a", group=None)
    world.see("a", group=PodGroup(TRAIN, least=1, expected=1))
    assert world.queue.pop_single(0) is None
    world.see("a", group=None)
    assert world.queue.pop_single(0) is world.queue.get("uid-a")


def test_no_event_is_evaluated_while_a_group_is_tried() -> None:
    """What the group holds may look full, and nobody says when it is given back."""
    world = Fed()
    world.see("single", group=None)
    world.queue.put_back_refused(popped(world.queue, 0.0), FIT, 0.0)
    for name in "abc":
        world.see(name, 0.1)
    members = world.trial(0.1)
    world.queue.note(GONE)
    assert world.queue.pop_single(0) is None
    world.put_back(members, 0.2)
    assert popped(world.queue, 0.2).pod.name == "single"


@pytest.mark.parametrize("kept", ["", "a"])
def test_a_group_waits_for_no_turn_of_lower_priority(kept: str) -> None:
    """Nor for any, while space is kept for a member: others were evicted for it."""
    world = fed("a", "b", "c")
    world.queue.groups.charge(TRAIN, -1, 9.0, 0.0)
    members = world.trial(0.0)
    assert names(members) == {"a", "b", "c"}
    world.queue.groups.charge(TRAIN, 0, 9.0, 0.0)
    for member in members:
        world.queue.put_back_refused(
            member, FIT, 0.0, waits_for=FIT, together=True, has_nomination=member.pod.name == kept
        )
    world.queue.note(GONE)
    assert (world.queue.pop(5.0) is None) == (not kept)


def test_a_group_whose_victims_end_pays_for_itself() -> None:
    """The end of each wakes it, but it leaves two thirds of the time; other groups do not wait for that."""
    world = fed("a", "b", "c")
    for member in world.trial(0.0):
        world.queue.put_back_refused(member, FIT, 0.0, waits_for=FIT, together=True, has_nomination=True)
    world.queue.groups.charge(TRAIN, 0, 1.0, 0.0)
    for name in ("x", "y"):
        world.see(name, group=PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "other"), least=2, expected=2))
    assert names(world.trial(0.0)) == {"x", "y"}
    world.queue.note(GONE)
    while world.queue.next_time() == -math.inf:
        assert world.queue.pop(1.9) is None
    assert names(world.trial(2.0)) == {"a", "b", "c"}


def test_no_turn_is_further_away_than_five_minutes() -> None:
    """Nor the next one than ten seconds: an attempt took a minute, as the machine stood still, and 300 groups wait."""
    world = Fed()
    world.queue.groups.charge(TRAIN, 0, 60.0, 0.0)
    for number in range(300):
        world.see(f"{number}", group=PodGroup(GroupKey(Dialect.COSCHEDULING, "default", f"{number}"), expected=1))
    while world.queue.next_time() == -math.inf:
        assert world.queue.pop(0.0) is None
    assert world.queue.next_time() == 10.0
    assert len([world.trial(300.0) for _ in range(300)]) == 300


def test_few_pods_are_put_off_in_one_step() -> None:
    """A thousand members that have to wait for their turn are looked at in many calls, and the next one is due."""
    world = Fed()
    world.queue.groups.charge(TRAIN, 0, 1.0, 0.0)
    many = PodGroup(TRAIN, least=1000, expected=1000)
    for number in range(1000):
        world.see(f"{number}", group=many)
    calls = 0
    while world.queue.next_time() == -math.inf:
        assert world.queue.pop(0.0) is None
        calls += 1
        assert world.queue.count(Place.BACKOFF) <= calls * 64
    assert (world.queue.count(Place.BACKOFF), calls) == (1000, 16)


def test_groups_of_another_namespace_double_a_pause_however_many_they_are() -> None:
    """Those of the same namespace add what their last attempts took; lower priorities count as little as their pods."""
    world, key = Fed(), TRAIN
    world.queue.groups.charge(GroupKey(Dialect.COSCHEDULING, "lower", "g"), -1, 1.0, 0.0)
    for number in range(200):
        key = GroupKey(Dialect.COSCHEDULING, ("others", "mine")[number % 2], f"g{number}")
        world.see(f"m{number}", group=PodGroup(key, least=1, expected=1), namespace=key.namespace)
        world.put_back(world.trial(0.0), 0.0, kept=True)
        world.queue.groups.charge(key, 0, 0.01 if number < 199 else 0.5, 0.0)
    assert world.queue.groups.not_before(key, 0.0) == pytest.approx(2 * 2 * (99 * 0.01 + 0.5))


def test_a_group_whose_room_is_kept_pays_twice_what_each_attempt_took() -> None:
    """Its own earlier attempts, which it has paid back, do not count again."""
    world, now = fed("a", "b", "c"), 0.0
    for _ in range(3):
        world.put_back(world.trial(now), now, kept=True)
        world.queue.groups.charge(TRAIN, 0, 1.0, now)
        world.queue.note(GONE)
        assert world.queue.pop(now + 1.99) is None
        now += 2.0
