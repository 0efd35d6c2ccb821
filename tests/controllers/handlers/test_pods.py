"""What the watch tells goes to the cluster and the queue, and wakes only whom it could help."""

from typing import Any

import attrs
import msgspec
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers.handlers.pods import NodeHandler, PodHandler
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.nodes import NODE
from neuron_scheduler.model.node import ZONE_LABEL, Node
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
    Taint,
)
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.queue.queued_pod import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import node, pod

BACKOFF = 11.0  # seconds: longer than any backoff, short of the time after which all are tried again


@attrs.define(eq=False)
class World:
    """Handlers, cluster and queue of two profiles, without a loop."""

    now: float = 0.0
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    pods: PodHandler = attrs.field(init=False)
    nodes: NodeHandler = attrs.field(init=False)
    unknown: list[tuple[str, str]] = attrs.field(factory=list)
    left: list[str] = attrs.field(factory=list)
    started: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        shared: dict[str, Any] = {"cluster": self.cluster, "queue": self.queue, "metrics": Metrics()}
        shared |= {"wake": lambda: None, "gone": lambda _: None}
        self.pods = PodHandler(
            **shared,
            scheduler_names={"one", "two"},
            clock=lambda: self.now,
            came=lambda _: None,
            left=lambda pod_info: self.left.append(pod_info.pod.name),
            started=lambda pod_info: self.started.append(pod_info.pod.name),
            double_booked=lambda _, __: None,
            unknown=lambda pod, problem, _: self.unknown.append((pod.name, problem)),
        )
        self.nodes = NodeHandler(**shared, nomination_lost=lambda _: None)

    def settle(self) -> list[str]:
        """Try every pod that may be tried, after all backoffs; return their names, and which of them fit."""
        self.now += BACKOFF
        tried = []
        while (queued := self.queue.pop(self.now)) is not None:
            found = schedule_pod(self.cluster, queued.pod, default_profile(queued.pod.scheduler_name))
            if isinstance(found, FitError):
                self.queue.unschedulable(queued, found.plugins, self.now)
                tried.append(queued.pod.name)
            else:
                self.queue.remove(queued.pod.uid)
                tried.append(f"{queued.pod.name}: placed")
        return tried


def in_zone(name: str) -> tuple[NodeSelectorTerm, ...]:
    """Return the node affinity of a pod that insists on a zone."""
    return (NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, (name,)),)),)


@pytest.fixture
def world() -> World:
    """Return a world where one pod waits for a label, another for devices, a third for cpu."""
    world = World()
    world.nodes.added(node("a", "trn1.32xlarge", cpu=4000))
    for index in range(4):
        world.pods.added(pod(f"d{index}", devices=4, on="a", ids=range(index * 4, index * 4 + 4)))
    world.pods.added(pod("c", cpu=3000, on="a"))
    world.pods.added(pod("label", scheduler_name="one", node_selector={"team": "blue"}, cpu=1))
    world.pods.added(pod("devices", scheduler_name="two", devices=8))
    world.pods.added(pod("cpu", scheduler_name="one", cpu=2000))
    world.pods.added(pod("theirs", scheduler_name="three", cpu=2000))
    assert world.settle() == ["label", "devices", "cpu"]
    return world


def test_pods_of_every_profile_are_queued(world: World) -> None:
    """The names that are served are ours, and no other."""
    assert world.queue.count(Place.UNSCHEDULABLE) == 3
    assert {name for _, name in world.queue.refused_by_plugin()} == {"one", "two"}


def test_a_heartbeat_wakes_nobody(world: World) -> None:
    """A kubelet that reports that it lives, or another image, changes nothing that anybody waits for."""

    def reported(at: str, *images: str) -> Node:
        status = {
            "allocatable": {"cpu": "4", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}],
            "images": [{"names": [name], "sizeBytes": 5} for name in images],
        }
        metadata = {"name": "b", "uid": "b", "resourceVersion": at, "creationTimestamp": "2026-11-21T08:00:00Z"}
        found = NODE.decode(msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": {}, "status": status})))
        assert isinstance(found.value, Node)
        return found.value

    first, second = reported("2026-11-21T08:00:00Z"), reported("2026-11-21T08:05:00Z", "web:1")
    world.nodes.added(attrs.evolve(first, unschedulable=True))
    world.settle()
    world.nodes.updated(attrs.evolve(first, unschedulable=True), attrs.evolve(second, unschedulable=True))
    assert world.settle() == []


def test_what_happens_while_nobody_waits_wakes_nobody() -> None:
    """The loop is woken by what could help a pod that waits, and by one that comes."""
    world, woken = World(), list[str]()

    def happens(what: str) -> list[str]:
        woken.clear()
        world.pods.wake = world.nodes.wake = lambda: woken.append(what)
        world.nodes.added(node(f"n{what}", cpu=1000))
        there = pod(f"p{what}", on=f"n{what}", cpu=1000)
        world.pods.added(there)
        world.pods.updated(there, attrs.evolve(there, labels={"a": "b"}))
        world.pods.deleted(there)
        return woken

    assert happens("first") == []
    world.pods.added(pod("big", scheduler_name="one", cpu=9000))
    assert woken == ["first"]
    assert world.settle() == ["big"]
    assert happens("second")


def test_a_label_wakes_who_waits_for_it(world: World) -> None:
    """Another label wakes nobody, the right one the pod that asks for it, and the right one again nobody."""
    before = node("a", "trn1.32xlarge", cpu=4000, labels={})
    for labels, want in (({"a": "b"}, []), ({"team": "blue"}, ["label"]), ({"team": "blue", "c": "d"}, [])):
        after = attrs.evolve(before, labels={**node("a", "trn1.32xlarge").labels, **labels}, unschedulable=True)
        world.nodes.updated(before, after)
        tried = world.settle()
        assert [name for name in tried if name != "cpu"] == want
        before = after


def test_a_node_that_can_be_read_again_wakes_who_waits_for_what_is_new(world: World) -> None:
    """What has changed meanwhile is told from the last good state, by which pods were refused."""
    good = node("a", "trn1.32xlarge", cpu=4000, taints=(Taint("dedicated", Effect.NO_SCHEDULE),))
    world.nodes.updated(node("a", "trn1.32xlarge", cpu=4000), good)
    world.pods.added(pod("tainted", scheduler_name="one"))
    assert world.settle() == ["tainted"]
    broken = Node(uid=good.uid, name="a", refusal="cannot be read")
    world.nodes.updated(good, broken)
    assert world.settle() == []
    world.nodes.updated(broken, attrs.evolve(good, taints=()))
    assert "tainted: placed" in world.settle()


def test_a_node_is_warned_of_again_when_it_was_gone_or_well(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A doubt is told once; of a node made anew under the same name, or well in between, it is news."""
    doubtful = node("b", "trn1.32xlarge", uid="1", created=1, devices=15)
    well = node("b", "trn1.32xlarge", uid="1", created=1)

    def warnings() -> int:
        return sum(record.message == "Neuron devices of node are not as expected" for record in caplog.records)

    world.nodes.added(doubtful)
    world.nodes.updated(doubtful, attrs.evolve(doubtful, unschedulable=True))
    assert warnings() == 1
    world.nodes.deleted(doubtful)
    world.nodes.added(attrs.evolve(doubtful, uid="2"))
    assert warnings() == 2
    world.nodes.updated(doubtful, well)
    world.nodes.updated(well, doubtful)
    assert warnings() == 3


def test_a_node_that_goes_wakes_who_could_not_bear_its_pods(world: World) -> None:
    """They count no more, before they are gone themselves."""
    world.nodes.added(node("b", labels={ZONE_LABEL: "x"}, created=1))
    world.nodes.added(node("c", labels={ZONE_LABEL: "x"}, created=2))
    apart = PodAffinityTerm(ZONE_LABEL, LabelSelector(), frozenset({"default"}))
    world.pods.added(pod("there", on="b"))
    world.pods.added(pod("apart", scheduler_name="one", anti_affinity=(apart,), required_terms=in_zone("x")))
    assert "apart: placed" not in world.settle()
    world.nodes.deleted(node("b"))
    assert world.settle() == ["apart: placed"]


def test_a_promise_wakes_others_once_its_pod_is_elsewhere(world: World) -> None:
    """Whoever bound the pod: what was kept for it is free for those of its priority or a lower one."""
    world.nodes.added(node("b", cpu=4000, created=1))
    promised = pod("promised", scheduler_name="one", cpu=4000, priority=5)
    world.cluster.nominate("b", Nomination(promised))
    world.pods.added(pod("lower", scheduler_name="one", cpu=4000))
    assert "lower" in world.settle()
    world.pods.added(attrs.evolve(promised, node_name="elsewhere"))
    assert "lower: placed" in world.settle()


def test_who_loses_a_promise_is_told(world: World) -> None:
    """A pod that others bind to a node may take what was promised there; a node that goes takes it for certain."""
    told: list[str] = []
    world.pods.came = told.append
    world.nodes.nomination_lost = lambda pod: told.append(pod.name)
    world.nodes.added(node("b", cpu=4000, created=1))
    world.cluster.nominate("b", Nomination(pod("promised", scheduler_name="one", cpu=4000)))
    foreign = pod("foreign", on="b", cpu=1000)
    world.pods.added(foreign)
    world.pods.updated(foreign, attrs.evolve(foreign, labels={"x": "y"}))
    world.nodes.deleted(node("b"))
    assert told == ["b", "promised"]


def test_a_promise_does_not_outlive_the_machine(world: World) -> None:
    """Cores were promised that are others now that the device plugin counts them otherwise; a label changes nothing."""
    told: list[str] = []
    world.nodes.nomination_lost = lambda pod: told.append(pod.name)
    before = node("b", "trn1.32xlarge", created=1)
    world.nodes.added(before)
    world.cluster.nominate("b", Nomination(pod("promised", scheduler_name="one", devices=1), cores=3))
    labelled = attrs.evolve(before, labels={**before.labels, "x": "y"})
    world.nodes.updated(before, labelled)
    assert told == []
    world.nodes.updated(labelled, node("b", created=1))
    assert told == ["promised"]


def test_many_pods_that_claim_the_same_cores_are_told_once_each(world: World) -> None:
    """A line and two Events a pod, not one of each for every pair of pods; the same when a replica takes over."""
    told = list[tuple[str, str]]()
    world.pods.double_booked = lambda pod, rival: told.append((pod.name, rival.name))
    world.nodes.added(node("n", "trn1.32xlarge"))
    for i in range(20):
        world.pods.added(pod(f"p{i}", devices=2, ids=(0, 1), on="n"))
    assert len(told) == 2 * 19
    assert ("p19", "p0") in told
    told.clear()
    world.pods.tell_doubts()
    assert [name for name, _ in told] == [f"p{i}" for i in range(20)]


def test_what_was_contested_before_is_told_again(world: World) -> None:
    """Both owners hear of it, for whom nobody spoke while no replica was leading."""
    told: list[tuple[str, str]] = []
    world.pods.double_booked = lambda pod, rival: told.append((pod.name, rival.name))
    world.nodes.added(node("b", "trn1.32xlarge", created=1))
    for name in ("one", "other"):
        world.pods.added(pod(name, devices=1, on="b", ids=(3,)))
    told.clear()
    world.pods.tell_doubts()
    assert sorted(told) == [("one", "other"), ("other", "one")]
    assert world.unknown == []


def test_an_unknown_holder_is_told_once_and_by_the_next_leader_again(world: World) -> None:
    """A change of the pod is no news, nor is another listing; a replica that takes over has not said it yet."""
    world.nodes.added(node("b", "trn1.32xlarge", created=1))
    forgot = pod("forgot", devices=1, on="b", scheduler_name="default-scheduler")
    want = [("forgot", "no annotation names its ids")]
    world.pods.added(forgot)
    changed = attrs.evolve(forgot, labels={"x": "y"}, resource_version="2")
    world.pods.updated(forgot, changed)
    world.pods.added(changed)
    assert world.unknown == want
    world.pods.tell_doubts()
    assert world.unknown == want * 2
    world.pods.deleted(changed)
    world.pods.tell_doubts()
    assert world.unknown == want * 2


def test_a_pod_that_cannot_be_read_is_an_unknown_holder(world: World) -> None:
    """Its owner hears of it once; one that is on no node holds nothing, and one that was read keeps what it had."""
    for name, uid, on in (("odd", "odd", "a"), ("odd", "odd", "a"), ("pending", "pending", ""), ("d0", "uid-d0", "a")):
        world.pods.malformed(Malformed("Pod", f"default/{name}", "bad", uid=uid, node_name=on))
    assert world.unknown == [("odd", "the pod object cannot be read")]


def test_what_a_pod_leaves_wakes_whom_it_suffices(world: World) -> None:
    """Too little is no help; devices enough are, once, though in pieces; then only a block is."""
    idle = pod("idle", on="a", cpu=500)
    world.pods.added(idle)
    world.pods.deleted(idle)
    assert world.settle() == []
    world.pods.deleted(pod("d1", devices=4, on="a"))
    assert world.settle() == []
    world.pods.deleted(pod("d2", devices=4, on="a"))
    assert world.settle() == ["devices"]
    world.pods.added(idle)
    world.pods.deleted(idle)
    assert world.settle() == []
    world.pods.deleted(pod("d3", devices=4, on="a"))
    assert world.settle() == ["devices: placed"]
    world.pods.deleted(pod("c", cpu=3000, on="a"))
    assert world.settle() == ["cpu: placed"]


def test_who_leaves_before_it_started_may_have_been_rejected(world: World) -> None:
    """A pod that ran, that somebody deleted, that had no node or could not be read was not."""
    for each in (
        pod("rejected", devices=1, on="a"),
        pod("ran", devices=1, on="a", started=5.0),
        pod("deleted", devices=1, on="a", terminating=True),
        pod("pending", scheduler_name="one", devices=16),
    ):
        world.pods.added(each)
        world.pods.deleted(each)
    world.pods.malformed(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="a"))
    world.pods.mended(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="a"))
    assumed = pod("assumed", scheduler_name="one", cpu=1)  # bound and rejected between two lists
    world.pods.added(assumed)
    world.cluster.assume(attrs.evolve(assumed, node_name="a"))
    world.pods.deleted(assumed)
    assert world.left == ["rejected", "assumed"]


def test_who_starts_is_told_once(world: World) -> None:
    """A start time appears once; a pod that has it when it is first seen started some time ago."""
    begun = pod("d1", devices=4, on="a", ids=range(4, 8), started=5.0)
    world.pods.updated(attrs.evolve(begun, started=None), begun)
    world.pods.updated(begun, attrs.evolve(begun, labels={"a": "b"}))
    world.pods.added(pod("old", on="a", started=5.0))
    assert world.started == ["d1"]


def test_a_pod_that_is_deleted_on_its_way_to_a_node_is_not_tried_again(world: World) -> None:
    """A finalizer may keep it for ever; its place is kept until the outcome of its Binding is known."""
    world.nodes.added(node("n1", devices=4))
    waiting = pod("p", devices=1, scheduler_name="one", priority=1)
    world.pods.added(waiting)
    queued = world.queue.pop(world.now)
    assert queued is not None
    assert queued.pod is waiting
    world.cluster.assume(attrs.evolve(waiting, node_name="n1"), 0b11)
    world.pods.updated(waiting, attrs.evolve(waiting, terminating=True))
    assert world.cluster.is_assumed(waiting.uid)
    world.queue.failed(queued, world.now)  # the server has refused
    assert waiting.uid not in world.queue
