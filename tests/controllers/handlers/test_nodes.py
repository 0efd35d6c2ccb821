"""Events of nodes go to the cluster, and wake only the pods that they could help."""

import attrs
import msgspec
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.model.node import ZONE_LABEL, Node
from neuron_scheduler.model.resources import NEURON_DEVICE
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
from tests.support.builders import node, pod
from tests.support.handlers import World


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
    world.nodes.added(attrs.evolve(first, unschedulable=True))
    world.settle()
    world.nodes.updated(attrs.evolve(first, unschedulable=True), attrs.evolve(second, unschedulable=True))
    assert world.settle() == []


def test_a_label_wakes_the_pod_that_waits_for_it(world: World) -> None:
    """Another label wakes no pod; the right one wakes the pod that asks for it, once."""
    before = node("a", "trn1.32xlarge", cpu=4000, labels={})
    for labels, want in (({"a": "b"}, []), ({"team": "blue"}, ["label"]), ({"team": "blue", "c": "d"}, [])):
        after = attrs.evolve(before, labels={**node("a", "trn1.32xlarge").labels, **labels}, unschedulable=True)
        world.nodes.updated(before, after)
        tried = world.settle()
        assert [name for name in tried if name != "cpu"] == want
        before = after


def test_a_node_that_can_be_read_again_wakes_pods_by_what_has_changed(world: World) -> None:
    """The change is computed from the last good state, by which pods were refused."""
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
    """A doubt is logged once, and again if the node was recreated or without doubt in between."""
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


def test_a_deleted_node_wakes_pods_with_anti_affinity_to_its_pods(world: World) -> None:
    """Its pods do not count any more, even before they are deleted themselves."""
    world.nodes.added(node("b", labels={ZONE_LABEL: "x"}, created=1))
    world.nodes.added(node("c", labels={ZONE_LABEL: "x"}, created=2))
    apart = PodAffinityTerm(ZONE_LABEL, LabelSelector(), frozenset({"default"}))
    world.pods.added(pod("there", on="b"))
    world.pods.added(pod("apart", scheduler_name="one", anti_affinity=(apart,), required_terms=in_zone("x")))
    assert "apart: placed" not in world.settle()
    world.nodes.deleted(node("b"))
    assert world.settle() == ["apart: placed"]


def test_a_nomination_does_not_outlive_the_machine(world: World) -> None:
    """When the node becomes another machine, its core numbers mean other cores; a label changes nothing."""
    lost: list[str] = []
    world.nodes.nomination_lost = lambda pod: lost.append(pod.name)
    before = node("b", "trn1.32xlarge", created=1)
    world.nodes.added(before)
    world.cluster.nominate("b", Nomination(pod("nominated", scheduler_name="one", devices=1), cores=CoreMask(3)))
    labelled = attrs.evolve(before, labels={**before.labels, "x": "y"})
    world.nodes.updated(before, labelled)
    assert lost == []
    world.nodes.updated(labelled, node("b", created=1))
    assert lost == ["nominated"]


def test_every_change_of_a_node_is_passed_on(world: World) -> None:
    """What is decided for a node is looked at again, whatever has changed; a new node has nothing decided for it."""
    changed: list[int] = []
    world.nodes.changed = lambda name: changed.append(world.row(name).node.allocatable[NEURON_DEVICE])
    before = node("b", "trn1.32xlarge", created=1)
    world.nodes.added(before)
    assert changed == []
    world.nodes.updated(before, attrs.evolve(before, allocatable={**before.allocatable, NEURON_DEVICE: 15}))
    assert changed == [15], "the cluster has it already"
    world.nodes.updated(before, attrs.evolve(before, unschedulable=True))
    assert changed == [15, 16]
