"""Of many like pods only the first is tried: one event costs one attempt, and every pod that fits is placed."""

import tracemalloc
from collections.abc import Iterable
from unittest import mock

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.cluster.view import RecordingView
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod, assigned_pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement, SpreadConstraint
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins import pod_topology_spread
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.events import PendingEvents
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.queueing import AFFINITY, FIT, GONE, apply_events, counts, drain, new_queue, popped, refuse_all
from tests.support.storage import claim, stored, volume, zone, zoned

PROFILE = default_profile("default-scheduler")


@attrs.define(eq=False)
class World:
    """Cluster and queue, and what was tried."""

    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(init=False)
    now: float = 0.0
    tried: list[str] = attrs.field(factory=list)
    there: dict[str, Pod] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.queue = new_queue(view=self.cluster.view)

    def settle(self) -> list[str]:
        """Try all ready pods; return those that were placed."""
        self.tried.clear()
        before = set(self.there)
        while (queued := self.queue.pop(self.now)) is not None:
            self.tried.append(queued.pod.name)
            decision = schedule_pod(self.cluster, queued.pod, PROFILE)
            if isinstance(decision, Decision):
                self.place(queued.pod, decision)
            else:
                kept = self.cluster.is_nominated(queued.pod.uid)
                self.queue.put_back_refused(queued, decision.plugins, self.now, has_nomination=kept)
        return [name for name in self.there if name not in before]

    def place(self, pending: Pod, decision: Decision) -> None:
        """Put a pod on a node."""
        bound = self.there[pending.name] = assigned_pod(pending, decision.node_name, {})
        self.cluster.assume(bound, decision.placement.cores if decision.placement else NO_CORES)
        self.queue.note(ClusterEvent.ASSIGNED_POD_ADDED, bound)
        self.queue.remove(bound.uid)

    def add(self, pods: Iterable[Pod]) -> None:
        for job in pods:
            self.queue.add(job, self.now)

    def see(self, new: Node) -> None:
        self.queue.note(ClusterEvent.NODE_ADDED, on=self.cluster.put_node(new))

    def end(self, name: str) -> None:
        """Delete a pod."""
        ended = self.there.pop(name)
        self.cluster.remove_pod(ended.uid)
        node_info = self.cluster.node(ended.node_name)
        assert node_info is not None
        self.queue.note(GONE, ended, on=node_info)


def jobs(count: int, *, devices: int = 16, priority: int = 0) -> list[Pod]:
    """Return pods of one size, each of its own job."""
    return [
        pod(f"{devices}-{i:04}", devices=devices, priority=priority, labels={"job-name": f"{devices}-{i}"})
        for i in range(count)
    ]


def test_a_node_that_comes_free_costs_one_attempt_and_not_a_thousand() -> None:
    """The oldest gets it; the others are not tried."""
    world = World()
    world.see(node("a", "trn1.32xlarge"))
    world.add(jobs(1_001))
    assert world.settle() == ["16-0000"]
    assert len(world.tried) == 1_001  # each is told once why it waits
    for number in range(1, 6):
        world.now += 0.1
        world.end(f"16-{number - 1:04}")
        assert world.settle() == [f"16-{number:04}"]
        assert world.tried == [f"16-{number:04}"]


def test_an_event_that_does_not_help_costs_one_attempt() -> None:
    """Only the first pod of a line finds out that a hint is wrong, and only after its backoff."""
    queue = new_queue()
    for job in jobs(1_000):
        queue.add(job, 0.0)
    refuse_all(queue, 0.0)
    tried = []
    queue.add(pod("busy", priority=-1), 0.0)
    for tick in range(1, 1_000):
        queue.note(GONE)
        while (queued := queue.pop(tick / 100)) is not None and queued.pod.name != "busy":
            tried.append(queued.pod.name)
            queue.put_back_refused(queued, FIT, tick / 100)
        queue.remove("uid-busy")
        queue.add(pod("busy", priority=-1), tick / 100)
    assert set(tried) == {"16-0000"}
    assert len(tried) == 4  # at once, then after 1, 2 and 4 seconds


def test_all_follow_where_there_is_room_for_all() -> None:
    """One after the other, by priority and age, as long as one of the nodes may take a pod."""
    world = World()
    world.add([*jobs(10), *jobs(2, devices=8), *jobs(1, priority=5, devices=4)])
    world.settle()
    world.now = 0.1
    for name in "abc":
        world.see(node(name, "trn1.32xlarge"))
    assert world.settle() == ["4-0000", "16-0000", "16-0001", "8-0000"]
    assert [name for name in world.tried if name not in world.there] == ["16-0002", "8-0001"]  # the next of each size


def test_a_pod_is_not_tried_for_a_node_where_its_volume_cannot_be_mounted() -> None:
    """The end of any pod in another zone would wake every such pod."""
    full, other = pod("full", on="b", cpu=192_000), pod("other", on="a", cpu=1)
    nodes, stored_volume = zoned(a="x", b="y"), volume(of="data", on=zone("y"))
    world = World(stored(nodes, claim(bound_to="pv"), stored_volume, pods=[full, other]))
    world.there = {each.name: each for each in (full, other)}
    world.add([pod("mounting", cpu=1000, volume_claims=("data",))])
    assert world.settle() == []
    world.end("other")
    assert world.settle() == world.tried == []
    world.end("full")
    assert world.settle() == ["mounting"]


def term_about(app: str, key: str) -> PodAffinityTerm:
    return PodAffinityTerm(key, LabelSelector((Requirement("app", Operator.IN, (app,)),)), frozenset({"default"}))


def test_terms_of_placed_pods_are_not_asked_whether_an_event_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """JobSet's exclusive placement makes one for each Job, all of which match the pods of the others."""
    apart, other = (term_about("worker", HOSTNAME_LABEL),), pod("other", on="a", cpu=1)
    cache = pod("cache", on="b", cpu=192_000, labels={"app": "cache"}, anti_affinity=apart)
    world = World(cluster_of(zoned(a="x", b="y"), [cache, other]))
    world.there = {"other": other}
    near = (term_about("cache", ZONE_LABEL),)
    world.add([pod("worker", cpu=1000, labels={"app": "worker"}, affinity=near)])
    assert world.settle() == []
    asked = mock.Mock(return_value=())
    monkeypatch.setattr(RecordingView, "terms_of_placed_pods", asked)
    world.end("other")
    assert world.settle() == world.tried == []
    assert not asked.called


@pytest.mark.parametrize("priority", [0, -1])
def test_a_pod_is_not_tried_for_a_node_that_its_spread_refuses(priority: int) -> None:
    """One zone is full, and the other has a matching pod, which does not end and which the pod may not evict."""
    spread = (SpreadConstraint(ZONE_LABEL, 1, hard=True, selector=term_about("web", ZONE_LABEL).selector),)
    web, full = pod("web", on="a", cpu=1, labels={"app": "web"}), pod("full", on="b", cpu=192_000)
    others = [pod(name, on="a", cpu=1, priority=priority) for name in ("stays", "ends")]
    world = World(cluster_of(zoned(a="x", b="y"), [web, full, *others]))
    world.there = {each.name: each for each in (full, *others)}
    waiting = pod("waiting", cpu=1000, labels={"app": "web"}, spread=spread)
    world.add([waiting])
    assert world.settle() == []
    pod_topology_spread.refuse_emptied(world.cluster.view, waiting, world.cluster.view.live)  # as a search for victims
    world.end("ends")
    assert world.settle() == world.tried == []
    world.end("full")
    assert world.settle() == ["waiting"]


@pytest.mark.parametrize(
    ("ended", "want"),
    [
        pytest.param([pod(f"x{n}", on="n", labels={"job": f"{n}"}) for n in range(200)], [], id="no term matches"),
        pytest.param([pod("x", on="n", labels={"app": "7"})], ["picky"], id="one matches"),
    ],
)
def test_a_pod_with_very_many_terms_is_compared_with_the_pods_that_end(ended: list[Pod], want: list[str]) -> None:
    """Each attempt for it would take long, and most pods have none of the labels that its terms ask for."""
    queue = new_queue()
    terms = tuple(term_about(f"{number}", HOSTNAME_LABEL) for number in range(50))
    queue.add(pod("picky", anti_affinity=terms), 0.0)
    refuse_all(queue, 0.0, frozenset({"InterPodAffinity"}))
    for gone in ended:
        queue.note(GONE, gone, on=None)
    assert drain(queue, 100.0) == want


@pytest.mark.parametrize(("parts", "want"), [(0, 300), (10_000, 1)])
def test_long_lists_are_compared_with_a_node_in_steps(parts: int, want: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node affinity with a thousand expressions takes as long as hundreds of others."""
    queue = new_queue()
    for number in range(300):
        queue.add(pod(f"p{number}", parts=parts, node_selector={"pool": f"{number}"}), 0.0)
    refuse_all(queue, 0.0, AFFINITY)
    queue.note(ClusterEvent.NODE_LABELS, on=None)
    wake_ups = mock.Mock(return_value=())
    monkeypatch.setattr(PendingEvents, "wake_ups", wake_ups)
    queue.pop(100.0)
    assert wake_ups.call_count == want


def test_a_pod_that_takes_the_free_space_sends_others_back_untried() -> None:
    """The first pod of another line was woken by the same node; the node is checked again before the pod is tried."""
    world = World()
    world.see(node("a", "trn1.32xlarge"))
    world.add([*jobs(2), *jobs(5, devices=8), *jobs(5, devices=4)])
    assert world.settle() == ["16-0000"]
    world.now = 0.1
    world.end("16-0000")
    assert world.settle() == ["16-0001"]
    assert world.tried == ["16-0001"]
    assert counts(world.queue) == {"unschedulable": 10}


def test_a_pod_that_waits_is_not_overtaken_for_its_backoff() -> None:
    """Other pods took the free space, so it gets no backoff, and finally comes before younger pods."""
    world, rivals = World(), jobs(6, priority=1)
    world.see(node("a", "trn1.32xlarge"))
    world.add([*rivals, pod("old", devices=16)])
    world.settle()
    for rival in rivals:
        world.now += 0.1
        if rival is rivals[-1]:
            world.add([pod("young", devices=16), pod("small", devices=1)])
        world.end(rival.name)
        placed_now = world.settle()
    assert placed_now == ["old"]


def test_the_next_follows_one_that_goes_away() -> None:
    """The pod that is ahead of its line may be deleted before it is tried."""
    queue = new_queue()
    for job in jobs(3):
        queue.add(job, 0.0)
    refuse_all(queue, 0.0)
    queue.add(pod("first", priority=9), 0.0)
    queue.note(GONE)
    assert popped(queue, 0.1).pod.name == "first"
    queue.remove("uid-16-0000")
    assert queue.next_time() == float("-inf")
    assert drain(queue, 0.1) == ["16-0001", "16-0002"]


@pytest.mark.parametrize("change", ["its spec", "a wish to try it"])
def test_one_that_is_ahead_is_tried_whatever_becomes_of_its_line(change: str) -> None:
    """It is not like the others any more, so their refusal says nothing about it."""
    queue = new_queue()
    for job in (*jobs(2), pod("new", devices=16, priority=9)):
        queue.add(job, 0.0)
    new = popped(queue, 0.0)
    refuse_all(queue, 0.0)
    queue.note(GONE)
    queue.add(pod("first", priority=9), 0.0)
    assert popped(queue, 0.1).pod.name == "first"
    if change == "its spec":
        queue.add(pod("16-0000", devices=4), 0.1)
    else:
        queue.activate("uid-16-0000", 0.1)
    queue.put_back_refused(new, FIT, 0.2)  # of another priority; and then one of theirs
    queue.add(pod("third", devices=16), 0.2)
    names = []
    while (queued := queue.pop(0.3)) is not None:
        names.append(queued.pod.name)
        queue.put_back_refused(queued, FIT, 0.3)
    assert names[0] == "16-0000"


def test_a_refusal_speaks_for_pods_that_are_ahead() -> None:
    """What refused a pod refuses like pods too, so they wait for the next event."""
    queue = new_queue()
    for job in jobs(2):
        queue.add(job, 0.0)
    refuse_all(queue, 0.0)
    queue.add(pod("16-0002", devices=16), 0.0)
    late = popped(queue, 0.0)
    queue.note(GONE)
    apply_events(queue, 0.1)
    queue.add(pod("first", priority=9), 0.0)
    assert popped(queue, 0.1).pod.name == "first"
    assert counts(queue) == {"active": 1, "in_flight": 2, "unschedulable": 1}
    queue.put_back_refused(late, FIT, 0.2)
    assert counts(queue) == {"in_flight": 1, "unschedulable": 3}
    queue.note(GONE)
    assert drain(queue, 0.3) == ["16-0000", "16-0001", "16-0002"]


@pytest.mark.parametrize("apart", ["preempting", "nominated", "alone", "missed", "too large"])
def test_what_sets_a_pod_apart_says_nothing_about_others(apart: str) -> None:
    """A nomination, a change during the decision, a hold: the rest of the line is tried all the same."""
    queue = new_queue()
    for job in jobs(3):
        queue.add(job, 0.0)
    refuse_all(queue, 0.0)
    queue.note(GONE)
    first = popped(queue, 0.1)
    if apart == "missed":
        queue.add(pod("16-0000", devices=4), 0.1)
    plugins = frozenset({"DefaultBinder"}) if apart == "too large" else FIT
    queue.put_back_refused(
        first,
        plugins,
        0.1,
        is_preempting=apart == "preempting",
        has_nomination=apart == "nominated",
        alone=apart == "alone",
    )
    assert {"16-0001", "16-0002"} <= set(drain(queue, 0.1))


def test_pods_of_other_labels_are_tried_where_labels_may_matter() -> None:
    """A plugin that looks at other pods, or that prevented preemption, may accept a pod that differs for it."""
    for plugins, against, tries in (
        (FIT, frozenset[str](), 1),
        (FIT | {"InterPodAffinity"}, frozenset[str](), 3),
        (FIT, frozenset({"InterPodAffinity"}), 3),
    ):
        queue, tried = new_queue(), []
        for job in jobs(3):
            queue.add(job, 0.0)
            queue.put_back_refused(popped(queue, 0.0), plugins, 0.0, waits_for=plugins | against)
        queue.note(GONE)
        while (queued := queue.pop(0.1)) is not None:
            tried.append(queued.pod.name)
            queue.put_back_refused(queued, plugins, 0.1, waits_for=plugins | against)
        assert len(tried) == tries


def test_a_line_waits_for_what_refused_the_latest_of_it() -> None:
    """The latest refusal of any pod of a signature counts for all pods of the line."""
    queue = new_queue()
    for job in jobs(2):
        queue.add(job, 0.0)
    queue.put_back_refused(popped(queue, 0.0), FIT, 0.0)
    queue.put_back_refused(popped(queue, 0.0), AFFINITY, 0.0)
    name = pod().scheduler_name
    assert queue.refused_by_plugin() == {("NodeAffinity", name): 2}
    queue.note(GONE)
    assert queue.pop(1.0) is None
    queue.note(ClusterEvent.NODE_LABELS)
    assert drain(queue, 1.0) == ["16-0000", "16-0001"]


def test_an_event_during_a_backoff_is_heard() -> None:
    """The space for which the only waiting pod was woken is taken before its backoff is over; then a node is added."""
    world = World()
    world.add(jobs(1))
    world.settle()
    (queued,) = world.queue._pods.values()
    queued.refusals = 5
    world.see(node("a", "trn1.32xlarge"))
    apply_events(world.queue, 0.1)
    world.add([pod("busy", priority=9)])
    busy = popped(world.queue, 0.1)
    assert counts(world.queue) == {"backoff": 1, "in_flight": 1}
    world.queue.remove(busy.pod.uid)
    world.add(jobs(2, priority=5)[1:])
    world.now = 0.2
    world.settle()
    assert "16-0000" not in world.there
    world.see(node("b", "trn1.32xlarge"))
    assert world.settle() == ["16-0000"]


def test_room_that_is_kept_for_a_pod_wakes_no_other_pod() -> None:
    """Each of two nodes is kept for a pod until the pod there ends; one of them ends."""
    world = World()
    for name in ("a", "b"):
        world.see(node(name, "trn1.32xlarge"))
    world.add(jobs(2))
    for victim in world.settle():
        name = world.there[victim].node_name
        wanted = pod(f"for-{name}", devices=16, priority=9)
        world.add([wanted])
        world.cluster.nominate(name, Nomination(wanted, CoreMask((1 << 32) - 1), frozenset({f"uid-{victim}"})))
    assert (world.settle(), sorted(world.tried)) == ([], ["for-a", "for-b"])
    world.now = 100.0
    world.end(next(victim for victim, bound in world.there.items() if bound.node_name == "b"))
    assert (world.settle(), world.tried) == (["for-b"], ["for-b"])


def test_a_standby_keeps_nothing_of_pods_that_are_gone() -> None:
    """Pods that the leader binds are added and removed here, and none is ever popped."""
    queue = new_queue()
    queue.add(pod("waits"), 0.0)

    def churn(count: int) -> None:
        for number in range(count):
            queue.add(pod(f"p{number}", gates=("g",) if number % 3 else ()), 0.0)
            queue.add(pod(f"p{number}", priority=number % 5), 1.0)
            queue.note(GONE, pod("gone"))
            queue.remove(f"uid-p{number}")

    churn(500)
    tracemalloc.start()
    try:
        churn(5_000)
        ours = [tracemalloc.Filter(True, pattern) for pattern in ("*/neuron_scheduler/*", "*/support/builders.py")]
        kept = tracemalloc.take_snapshot().filter_traces(ours).statistics("filename")
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in kept) < 30_000  # without what pytest itself allocates meanwhile
    assert drain(queue, 2.0) == ["waits"]
