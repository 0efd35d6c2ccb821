"""Changes wake only the pods that they could help; the order of pods and what they wait for is the queue's."""

import attrs
import msgspec
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.selecting_kinds import NAMESPACES
from neuron_scheduler.model.node import ZONE_LABEL, Node
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
    Taint,
)
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.plugins import inter_pod_affinity
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.queue_observer import QueueObserver
from tests.support.builders import node, pod
from tests.support.handlers import World, world_that_refuses
from tests.support.queueing import popped


@pytest.fixture
def world() -> World:
    return world_that_refuses()


def test_pods_of_every_profile_are_queued(world: World) -> None:
    """Only pods with one of our scheduler names are queued."""
    assert world.queue.count(Place.UNSCHEDULABLE) == 3
    assert {name for _, name in world.queue.refused_by_plugin()} == {"one", "two"}


def test_pending_pods_of_other_schedulers_are_known(world: World) -> None:
    """Those with Neuron, until they have a node, are being deleted, or are gone."""
    observer = world.watches.observers.observers[0]
    assert isinstance(observer, QueueObserver)
    theirs = [pod(name, scheduler_name="other", devices=1) for name in ("bound", "ending", "gone", "stays")]
    for each in (*theirs, pod("cpu", scheduler_name="other"), pod("ours", scheduler_name="one", devices=1)):
        world.pods.on_added(each)
    assert [each.name for each in observer.unserved.values()] == ["bound", "ending", "gone", "stays"]
    world.pods.on_updated(theirs[0], attrs.evolve(theirs[0], node_name="a"))
    world.pods.on_updated(theirs[1], attrs.evolve(theirs[1], terminating=True))
    world.pods.on_deleted(theirs[2])
    assert [each.name for each in observer.unserved.values()] == ["stays"]


def test_what_happens_while_nobody_waits_wakes_nobody() -> None:
    """The loop is woken by an event that could help a waiting pod, and by a new pod."""
    world, woken = World(), list[str]()

    def happens(prefix: str) -> list[str]:
        woken.clear()
        world.queue.on_change = lambda: woken.append(prefix)
        world.nodes.on_added(node(f"n{prefix}", cpu=1000))
        there = pod(f"p{prefix}", on=f"n{prefix}", cpu=1000)
        world.pods.on_added(there)
        world.pods.on_updated(there, attrs.evolve(there, labels={"a": "b"}))
        world.pods.on_deleted(there)
        return woken

    assert happens("first") == []
    world.pods.on_added(pod("big", scheduler_name="one", cpu=9000))
    assert woken == ["first"]
    assert world.settle() == ["big"]
    assert happens("second")


def test_a_nomination_wakes_others_once_its_pod_is_elsewhere(world: World) -> None:
    """Whichever scheduler bound it, its nominated space is free for pods of its priority or lower."""
    world.nodes.on_added(node("b", cpu=4000, created=1))
    nominated = pod("nominated", scheduler_name="one", cpu=4000, priority=5)
    world.cluster.nominate("b", Nomination(nominated))
    world.pods.on_added(pod("lower", scheduler_name="one", cpu=4000))
    assert "lower" in world.settle()
    world.pods.on_added(attrs.evolve(nominated, node_name="elsewhere"))
    assert "lower: placed" in world.settle()


@pytest.mark.parametrize("bound_to", ["b", "c"])
def test_a_nomination_ends_with_a_binding_that_cannot_be_read(world: World, bound_to: str) -> None:
    """Others are tried for the nominated space, and the pod counts once: on its node."""
    for name in ("b", "c"):
        world.nodes.on_added(node(name, cpu=4000, created=1))
    world.cluster.put_pod(pod("there", on="c", cpu=4000))
    nominated = pod("nominated", scheduler_name="one", cpu=4000, priority=5)
    world.pods.on_added(nominated)
    world.cluster.nominate("b", Nomination(nominated))
    world.pods.on_added(pod("lower", scheduler_name="one", cpu=3000))
    assert "lower" in world.settle()
    world.pods.on_malformed(Malformed("Pod", nominated.key, "bad", uid=nominated.uid, node_name=bound_to))
    assert world.cluster.nomination(nominated.uid) is None
    assert world.cluster.node_of(nominated.uid) == bound_to
    assert "lower: placed" in world.settle()


def test_what_a_pod_leaves_wakes_whom_it_suffices(world: World) -> None:
    """Too little free space wakes no pod; enough devices in pieces do so once; then only a block does."""
    idle = pod("idle", on="a", cpu=500)
    world.pods.on_added(idle)
    world.pods.on_deleted(idle)
    assert world.settle() == []
    world.pods.on_deleted(pod("d1", devices=4, on="a"))
    assert world.settle() == []
    world.pods.on_deleted(pod("d2", devices=4, on="a"))
    assert world.settle() == ["devices"]
    world.pods.on_added(idle)
    world.pods.on_deleted(idle)
    assert world.settle() == []
    world.pods.on_deleted(pod("d3", devices=4, on="a"))
    assert world.settle() == ["devices: placed"]
    world.pods.on_deleted(pod("c", cpu=3000, on="a"))
    assert world.settle() == ["cpu: placed"]


def test_a_pod_that_is_deleted_on_its_way_to_a_node_is_not_tried_again(world: World) -> None:
    """A finalizer may keep the pod for ever; its space is kept until the outcome of its Binding is known."""
    world.nodes.on_added(node("n1", devices=4))
    waiting = pod("p", devices=1, scheduler_name="one", priority=1)
    world.pods.on_added(waiting)
    queued = world.queue.pop(world.now)
    assert queued is not None
    assert queued.pod is waiting
    world.cluster.assume(attrs.evolve(waiting, node_name="n1"), CoreMask(0b11))
    world.pods.on_updated(waiting, attrs.evolve(waiting, terminating=True))
    assert world.cluster.is_assumed(waiting.uid)
    world.queue.put_back_failed(queued, world.now)  # the server has refused
    assert waiting.uid not in world.queue


def in_zone(name: str) -> tuple[NodeSelectorTerm, ...]:
    """Return the node affinity of a pod that requires a zone."""
    return (NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, (name,)),)),)


def test_a_heartbeat_wakes_nobody(world: World) -> None:
    """A heartbeat of the kubelet, or another image, is nothing that a pod waits for."""

    def reported(at: str, *images: str) -> Node:
        status = {
            "allocatable": {"cpu": "4", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}],
            "images": [{"names": [name], "sizeBytes": 5} for name in images],
        }
        metadata = {"name": "b", "uid": "b", "resourceVersion": at, "creationTimestamp": "2026-11-21T08:00:00Z"}
        decoded = NODES.decode(msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": {}, "status": status})))
        assert isinstance(decoded.value, Node)
        return decoded.value

    first, second = reported("2026-11-21T08:00:00Z"), reported("2026-11-21T08:05:00Z", "web:1")
    world.nodes.on_added(attrs.evolve(first, unschedulable=True))
    world.settle()
    world.nodes.on_updated(attrs.evolve(first, unschedulable=True), attrs.evolve(second, unschedulable=True))
    assert world.settle() == []


def test_a_label_wakes_the_pod_that_waits_for_it(world: World) -> None:
    """Another label wakes no pod; the right one wakes the pod that asks for it, once."""
    before = node("a", "trn1.32xlarge", cpu=4000, labels={})
    for labels, want in (({"a": "b"}, []), ({"team": "blue"}, ["label"]), ({"team": "blue", "c": "d"}, [])):
        after = attrs.evolve(before, labels={**node("a", "trn1.32xlarge").labels, **labels}, unschedulable=True)
        world.nodes.on_updated(before, after)
        tried = world.settle()
        assert [name for name in tried if name != "cpu"] == want
        before = after


def test_a_node_that_can_be_read_again_wakes_pods_by_what_has_changed(world: World) -> None:
    """The change is computed from the last good state, by which pods were refused."""
    good = node("a", "trn1.32xlarge", cpu=4000, taints=(Taint("dedicated", Effect.NO_SCHEDULE),))
    world.nodes.on_updated(node("a", "trn1.32xlarge", cpu=4000), good)
    world.pods.on_added(pod("tainted", scheduler_name="one"))
    assert world.settle() == ["tainted"]
    broken = Node(uid=good.uid, name="a", refusal="cannot be read")
    world.nodes.on_updated(good, broken)
    assert world.settle() == []
    world.nodes.on_updated(broken, attrs.evolve(good, taints=()))
    assert "tainted: placed" in world.settle()


def test_a_deleted_node_wakes_pods_with_anti_affinity_to_its_pods(world: World) -> None:
    """Its pods do not count any more, even before they are deleted themselves."""
    world.nodes.on_added(node("b", labels={ZONE_LABEL: "x"}, created=1))
    world.nodes.on_added(node("c", labels={ZONE_LABEL: "x"}, created=2))
    apart = PodAffinityTerm(ZONE_LABEL, LabelSelector(), frozenset({"default"}))
    world.pods.on_added(pod("there", on="b"))
    world.pods.on_added(pod("apart", scheduler_name="one", anti_affinity=(apart,), required_terms=in_zone("x")))
    assert "apart: placed" not in world.settle()
    world.nodes.on_deleted(node("b"))
    assert world.settle() == ["apart: placed"]


def test_the_labels_of_a_namespace_wake_pods_and_its_end_or_an_unreadable_object_does_not() -> None:
    """Affinity terms may select other pods than before."""
    world, woken = World(), list[int]()
    world.queue.add(pod("waiting", scheduler_name="one"), 0.0)
    world.queue.put_back_refused(popped(world.queue, 0.0), frozenset({inter_pod_affinity.NAME}), 0.0)
    world.queue.on_change = lambda: woken.append(1)
    namespaces = world.watches.of(NAMESPACES)
    plain, labelled = Namespace("u", "ns"), Namespace("u", "ns", {"team": "a"})
    namespaces.on_added(plain)
    namespaces.on_updated(plain, labelled)
    unreadable = Malformed("Namespace", "ns", "labels: expected object", "u")
    namespaces.on_malformed(unreadable)
    namespaces.on_malformed_gone(unreadable)
    assert world.cluster.namespaces.labels("ns") == {"team": "a"}
    namespaces.on_deleted(labelled)
    assert len(woken) == 2
