"""What the watch reports of nodes goes to the cluster, and wakes only the pods it could help."""

import attrs
import msgspec
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.kube.objects.nodes import NODES
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
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.support.builders import node, pod
from tests.support.handlers import World


def in_zone(name: str) -> tuple[NodeSelectorTerm, ...]:
    """Return the node affinity of a pod that insists on a zone."""
    return (NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.IN, (name,)),)),)


def test_a_heartbeat_wakes_nobody(world: World) -> None:
    """A kubelet that reports that it lives, or another image, changes nothing that anybody waits for."""

    def reported(at: str, *images: str) -> Node:
        status = {
            "allocatable": {"cpu": "4", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": at}],
            "images": [{"names": [name], "sizeBytes": 5} for name in images],
        }
        metadata = {"name": "b", "uid": "b", "resourceVersion": at, "creationTimestamp": "2026-11-21T08:00:00Z"}
        found = NODES.decode(msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": {}, "status": status})))
        assert isinstance(found.value, Node)
        return found.value

    first, second = reported("2026-11-21T08:00:00Z"), reported("2026-11-21T08:05:00Z", "web:1")
    world.nodes.added(attrs.evolve(first, unschedulable=True))
    world.settle()
    world.nodes.updated(attrs.evolve(first, unschedulable=True), attrs.evolve(second, unschedulable=True))
    assert world.settle() == []


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


def test_a_promise_does_not_outlive_the_machine(world: World) -> None:
    """Cores were promised that are others now that the device plugin counts them otherwise; a label changes nothing."""
    told: list[str] = []
    world.nodes.nomination_lost = lambda pod: told.append(pod.name)
    before = node("b", "trn1.32xlarge", created=1)
    world.nodes.added(before)
    world.cluster.nominate("b", Nomination(pod("promised", scheduler_name="one", devices=1), cores=CoreMask(3)))
    labelled = attrs.evolve(before, labels={**before.labels, "x": "y"})
    world.nodes.updated(before, labelled)
    assert told == []
    world.nodes.updated(labelled, node("b", created=1))
    assert told == ["promised"]
