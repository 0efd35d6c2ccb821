"""Space that is kept for pending pods, and objects that a handler cannot take."""

from typing import Any

import pytest

from neuron_scheduler.capture.collection import Collection
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.kube.objects.base import Decoded, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.storage import CLAIMS, CLASSES
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import default_profile
from tests.support.builders import node, pod
from tests.support.storage import MADE, claim


def collected(*objects: Any, **fields: Any) -> Collection:
    """Return a collection of a node with 16 devices, and pods."""
    collection = Collection(taken=0.0, **fields)
    add(collection, NODES, node("a", "trn1.32xlarge"))
    for each in objects:
        add(collection, PODS, each)
    return collection


def add(collection: Collection, resource: Resource[Any], each: Any) -> None:
    collection.add(resource, Decoded(each.key if resource is PODS else each.name, each.uid, "1", each))


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        pytest.param({}, 16, id="a pod of ours"),
        pytest.param({"scheduler_name": "default-scheduler"}, 16, id="a pod with Neuron of another scheduler"),
        pytest.param({"scheduler_name": "default-scheduler", "devices": 0}, 0, id="any other pod of another scheduler"),
        pytest.param({"on": "a"}, 0, id="a pod that has arrived"),
        pytest.param({"terminating": True}, 0, id="a pod that leaves"),
        pytest.param({"nominated_node_name": "gone"}, 0, id="a node that does not exist"),
    ],
)
def test_space_is_kept_for_nominated_pods(fields: dict[str, Any], kept: int) -> None:
    """As by the process, whose own pods and those of kube-scheduler are nominated in their status."""
    defaults: dict[str, Any] = {"devices": 8, "nominated_node_name": "a"}
    nominated = pod("p", **defaults | fields)
    row = collected(nominated).capture().cluster.node("a")
    assert row is not None
    assert sum(nomination.cores.bit_count() for nomination in row.nominations) == kept


def test_pods_are_as_their_profiles_decide_them() -> None:
    """A profile may allow pairs, which changes its own pods only."""
    pods = [pod(name, devices=2, scheduler_name=name) for name in ("mine", "theirs")]
    captured = collected(*pods, profiles=(default_profile("mine", allow_aligned_pairs=True),)).capture()
    assert [each.neuron is not None and each.neuron.pairs for each in captured.waiting] == [True, False]


def test_space_is_kept_while_volumes_are_provisioned() -> None:
    """As by the process, for a pod of ours with a claim with a chosen node; other schedulers do as they like."""
    pods = [pod(name, scheduler_name=name, volume_claims=(f"of-{name}",), devices=8) for name in ("mine", "theirs")]
    for selected, kept in (("a", ["mine"]), (None, [])):
        collection = collected(*pods, profiles=(default_profile("mine"),))
        add(collection, CLASSES, MADE)
        for name in ("mine", "theirs"):
            add(collection, CLAIMS, claim(f"of-{name}", class_name="gp3", selected_node=selected))
        row = collection.capture().cluster.node("a")
        assert row is not None
        assert [nomination.pod.name for nomination in row.nominations] == kept


def test_space_is_kept_in_the_order_of_the_queue() -> None:
    """The pod of higher priority has it; a profile of another name is ours too."""
    pods = [
        pod(name, devices=16, nominated_node_name="a", priority=priority, scheduler_name="mine")
        for name, priority in (("low", 1), ("high", 9))
    ]
    row = collected(*pods, profiles=(default_profile("mine"),)).capture().cluster.node("a")
    assert row is not None
    assert [nomination.pod.name for nomination in row.nominations] == ["high"]


def test_a_mistake_of_ours_is_noted_and_nothing_looks_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod whose handling fails is an unknown holder."""
    put_pod = Cluster.put_pod

    def put(self: Cluster, each: Pod, known: PodInfo | None = None) -> Any:
        if each.name == "bad":
            raise ZeroDivisionError
        return put_pod(self, each, known)

    monkeypatch.setattr(Cluster, "put_pod", put)
    capture = collected(pod("bad", on="a", ids=(0,), devices=1), pod("good", on="a", ids=(1,), devices=1)).capture()
    row = capture.cluster.node("a")
    assert row is not None
    assert row.neuron_usage.unknown_holders == 1
    assert "1 object could not be taken in because of a mistake in this program" in capture.notes
