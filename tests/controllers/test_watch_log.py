"""What people are told of the devices on a node."""

from contextlib import suppress

import attrs
import pytest

from neuron_scheduler.kube.objects.base import Malformed
from tests.support.builders import node, pod
from tests.support.handlers import World, world_that_refuses


@pytest.fixture
def world() -> World:
    return world_that_refuses()


def test_pods_that_claim_the_same_cores_are_reported_once_each(world: World) -> None:
    """One log line and two Events per pod, not one for every pair of pods; the same when a replica takes over."""
    reported = world.conflicts
    world.nodes.on_added(node("n", "trn1.32xlarge"))
    for i in range(20):
        world.pods.on_added(pod(f"p{i}", devices=2, ids=(0, 1), on="n"))
    assert len(reported) == 2 * 19
    assert ("p19", "p0") in reported
    reported.clear()
    world.watch_log.report_all()
    assert [name for name, _ in reported] == [f"p{i}" for i in range(20)]


def test_cores_of_a_pod_that_a_list_no_longer_has_are_not_claimed_twice(world: World) -> None:
    """A list hands over new pods before it removes those that are gone; a real conflict is reported at its end."""
    reported = world.conflicts
    world.nodes.on_added(node("b", "trn1.32xlarge", created=1))
    gone = pod("gone", devices=1, on="b", ids=(3,))
    world.pods.on_added(gone)
    with suppress(TimeoutError), world.watches.observers.list_context():
        world.pods.on_added(pod("successor", devices=1, on="b", ids=(3,)))
        raise TimeoutError("the list breaks off")
    with world.watches.observers.list_context():
        for name in ("one", "other"):
            world.pods.on_added(pod(name, devices=1, on="b", ids=(5,)))
        world.pods.on_deleted(gone)
        assert reported == []
    assert sorted(reported) == [("one", "other"), ("other", "one")]
    world.pods.on_added(pod("third", devices=1, on="b", ids=(5,)))
    assert ("third", "one") in reported


def test_an_unknown_holder_is_reported_once_by_each_leader(world: World) -> None:
    """A change of the pod or another list does not repeat it; a new leader does."""
    world.nodes.on_added(node("b", "trn1.32xlarge", created=1))
    forgot = pod("forgot", devices=1, on="b", scheduler_name="default-scheduler")
    want = [("forgot", "no annotation names its ids")]
    world.pods.on_added(forgot)
    changed = attrs.evolve(forgot, labels={"x": "y"}, resource_version="2")
    world.pods.on_updated(forgot, changed)
    world.pods.on_added(changed)
    assert world.unknown == want
    world.watch_log.report_all()
    assert world.unknown == want * 2
    world.pods.on_deleted(changed)
    world.watch_log.report_all()
    assert world.unknown == want * 2


def test_a_pod_that_cannot_be_read_is_an_unknown_holder(world: World) -> None:
    """It is reported once; a pod without a node uses nothing, and a pod that was readable keeps its devices."""
    for name, uid, on in (("odd", "odd", "a"), ("odd", "odd", "a"), ("pending", "pending", ""), ("d0", "uid-d0", "a")):
        world.pods.on_malformed(Malformed("Pod", f"default/{name}", "bad", uid=uid, node_name=on))
    assert world.unknown == [("odd", "the pod object cannot be read")]


def test_a_node_that_cannot_be_read_is_called_malformed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """As the runbook says of the alert, and not a doubt about its devices."""
    world.nodes.on_added(node("odd", "trn1.32xlarge", refusal="node cannot be read: bad"))
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == ["Skipping malformed node"]


def test_a_node_is_warned_of_again_when_it_was_gone_or_well(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A doubt is logged once, and again if the node was recreated or without doubt in between."""
    doubtful = node("b", "trn1.32xlarge", uid="1", created=1, devices=15)
    well = node("b", "trn1.32xlarge", uid="1", created=1)

    def warnings() -> int:
        return sum(record.message == "Neuron devices of node are not as expected" for record in caplog.records)

    world.nodes.on_added(doubtful)
    world.nodes.on_updated(doubtful, attrs.evolve(doubtful, unschedulable=True))
    assert warnings() == 1
    world.nodes.on_deleted(doubtful)
    world.nodes.on_added(attrs.evolve(doubtful, uid="2"))
    assert warnings() == 2
    world.nodes.on_updated(doubtful, well)
    world.nodes.on_updated(well, doubtful)
    assert warnings() == 3
