"""A new node looks like the older ones of its type, without what is theirs alone, and joins a fork only."""

from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, join, known_types
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Owner
from neuron_scheduler.model.resources import CPU, NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.model.volumes import CSINode
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from tests.support.builders import node, pod

TRN1 = "trn1.32xlarge"
PROFILE = default_profile("my-scheduler")
NEURON_TAINT = Taint("aws.amazon.com/neuron", Effect.NO_SCHEDULE, "true")


def cluster_of(*nodes: Any) -> Cluster:
    """Return a cluster with these nodes."""
    cluster = Cluster()
    for made in nodes:
        cluster.put_node(made)
    return cluster


def only(cluster: Cluster, instance_type: str = TRN1) -> FreshNode:
    """Return the one shape of a new node of a type."""
    (fresh,) = fresh_nodes(cluster.view, instance_type, cluster.view.live, {})
    return fresh


def test_it_has_the_lasting_labels_and_its_own_name() -> None:
    """The zone and the group stay; its host name is its own; what says where one machine is has gone."""
    old = {
        HOSTNAME_LABEL: "a",
        ZONE_LABEL: "z1",
        "group": "blue",
        "neuron.amazonaws.com/ultraserver-server-id-4": "0a",
        "topology.k8s.aws/network-node-layer-3": "nn-1",
        "instance-id": "i-0123456789abcdef0",
    }
    cluster = cluster_of(node("a", TRN1, labels=old))
    fresh = only(cluster)
    fork = cluster.fork()
    name = join(fork, fresh, 7)
    joined = fork.node(name)
    assert joined is not None
    assert joined.node.labels == {INSTANCE_TYPE_LABEL: TRN1, HOSTNAME_LABEL: name, ZONE_LABEL: "z1", "group": "blue"}
    assert (fresh.like, fresh.zone, name) == ("a", "z1", "new-trn1.32xlarge-007")


def test_a_passing_state_is_not_copied() -> None:
    """A new node is neither cordoned nor ill, has all its devices, and only the lasting taints."""
    passing = ("node.kubernetes.io/not-ready", "ToBeDeletedByClusterAutoscaler", "ebs.csi.aws.com/agent-not-ready")
    taints = (NEURON_TAINT, *(Taint(key, Effect.NO_SCHEDULE) for key in passing))
    sick = node(
        "a", TRN1, taints=taints, unschedulable=True, neuron_fault="NeuronHealth", allocatable={NEURON_DEVICE: 15}
    )
    fresh = only(cluster_of(sick)).node
    assert (fresh.taints, fresh.unschedulable, fresh.neuron_fault) == ((NEURON_TAINT,), False, "")
    assert fresh.allocatable[NEURON_DEVICE] == 16


def test_its_daemon_pods_use_what_they_use_elsewhere() -> None:
    """Pods of DaemonSets and static pods run on it; others do not, and neither the cordon nor they take its devices."""
    cluster = cluster_of(node("a", TRN1, cpu=10_000, unschedulable=True))
    cluster.put_pod(pod("ds", on="a", cpu=1500, owner=Owner("apps/v1", "DaemonSet", "ds")))
    cluster.put_pod(pod("static", on="a", cpu=500, owner=Owner("v1", "Node", "a")))
    cluster.put_pod(pod("forged", on="a", cpu=100, owner=Owner("example.com/v1", "DaemonSet", "nobody's")))
    cluster.put_pod(pod("job", on="a", cpu=4000, devices=16, ids=range(16), owner=Owner("batch/v1", "Job", "j")))
    fork = cluster.fork()
    joined = fork.node(join(fork, only(cluster)))
    assert joined is not None
    assert (joined.free(CPU), joined.free(NEURON_DEVICE), len(joined.pod_infos)) == (8000, 16, 2)
    assert cluster.pod_count == 4
    assert isinstance(schedule_pod(fork, pod("p", devices=16, cpu=8000), PROFILE), Decision)


def test_a_daemon_pod_of_one_node_is_not_on_every_new_one() -> None:
    """Who may create a DaemonSet for one node keeps nobody from a new machine; young nodes lack some pods yet."""
    old, young = (node(name, TRN1, created=1.0) for name in "abc"), (node(name, TRN1, created=900.0) for name in "defg")
    cluster, agent = cluster_of(*old, *young), Owner("apps/v1", "DaemonSet", "agent")
    for name in "abc":
        cluster.put_pod(pod(f"agent-{name}", on=name, cpu=100, owner=agent))
    cluster.put_pod(pod("ds", on="b", devices=16, ids=range(16), owner=Owner("apps/v1", "DaemonSet", "ds")))
    cluster.put_pod(pod("static", on="g", devices=16, ids=range(16), owner=Owner("v1", "Node", "g")))
    assert [daemon.name.partition("-")[0] for daemon in only(cluster).daemons] == ["agent"]


def test_its_volume_limits_are_those_of_its_sister() -> None:
    """A new node has the CSI drivers of the node that it is shaped like, and nothing attached."""
    cluster = cluster_of(node("a", TRN1))
    cluster.put_storage(CSINode("c", "a", {"ebs.csi.aws.com": 25}, drivers=frozenset({"ebs.csi.aws.com"})))
    fork = cluster.fork()
    joined = fork.node(join(fork, only(cluster)))
    assert joined is not None
    assert dict(joined.storage.limits) == {"ebs.csi.aws.com": 25}


def test_there_is_a_shape_for_each_group() -> None:
    """Zones are different shapes, however old and few their nodes; HyperPod's are found without their prefix."""
    nodes = [node(f"n{i}", f"ml.{TRN1}", labels={ZONE_LABEL: f"z{i > 0}"}, created=i) for i in range(200)]
    view = cluster_of(*nodes).view
    shapes = [*fresh_nodes(view, TRN1, view.live, {})]
    assert [(shape.zone, shape.like) for shape in shapes] == [("zFalse", "n0"), ("zTrue", "n199")]


def test_a_sound_node_is_the_model() -> None:
    """A node whose device plugin has not reported everything is no model while another one is sound."""
    cluster = cluster_of(node("a", TRN1, devices=16), node("b", TRN1, devices=4, created=9.0))
    assert only(cluster).like == "a"


@pytest.mark.parametrize("instance_type", ["trn1.32xlarge", "inf2.24xlarge", "trn2.48xlarge"])
def test_a_type_that_the_cluster_lacks_comes_from_the_catalog(instance_type: str) -> None:
    """It has all its devices, as much cpu as anybody asks for, and a shape for each zone of the cluster."""
    cluster = cluster_of(node("m", "m5.xlarge", labels={ZONE_LABEL: "z1"}), node("k", labels={ZONE_LABEL: "z2"}))
    shapes = [*fresh_nodes(cluster.view, instance_type, cluster.view.live, {})]
    assert [(shape.like, shape.zone) for shape in shapes] == [("", "z1"), ("", "z2")]
    fork = cluster.fork()
    join(fork, shapes[1])
    whole = pod("p", devices=INSTANCE_TYPES[instance_type].devices, cpu=400_000)
    decision = schedule_pod(fork, whole, PROFILE)
    assert isinstance(decision, Decision)
    assert decision.node_name == f"new-{instance_type}-001"


def test_an_unknown_type_has_no_shape() -> None:
    """Neither does a type of which the cluster has only nodes without Neuron."""
    cluster = cluster_of(node("m", "m5.xlarge"), node("t", TRN1))
    for name in ("m5.xlarge", "x1.huge"):
        assert not [*fresh_nodes(cluster.view, name, cluster.view.live, {})]
    types = known_types(cluster.view)
    assert types[0] == TRN1
    assert "m5.xlarge" not in types
    assert set(types) == set(INSTANCE_TYPES)


def test_its_row_is_the_one_it_has_after_joining() -> None:
    """A question about one new node needs no fork: the row that is added for it is the one that a fork would have."""
    daemon = pod("agent", on="a", devices=1, ids=(0,), cpu=100, owner=Owner("apps/v1", "DaemonSet", "agent"))
    cluster = cluster_of(node("a", TRN1, labels={HOSTNAME_LABEL: "a"}))
    cluster.put_pod(daemon)
    fresh = only(cluster)
    fork = cluster.fork()
    joined = fork.node(join(fork, fresh))
    assert joined == fresh.row
    assert joined is not None
    assert joined.pod_infos == fresh.row.pod_infos
    assert len(joined.pod_infos) == 1


def test_it_is_like_the_youngest_whatever_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new node may have the slot of one that is gone."""
    monkeypatch.setattr("neuron_scheduler.cluster.fresh_node._MOST_READ", 1)
    monkeypatch.setattr("neuron_scheduler.cluster.tables.nodes._MOST_HOLES", 0)
    cluster = cluster_of(*(node(f"old-{n}", TRN1, created=n) for n in range(4)))
    for name in ("old-0", "old-1", "old-2"):
        cluster.remove_node(name)
    cluster.put_node(node("new", TRN1, created=9))
    assert cluster.view.slot("new") == 0
    assert only(cluster).like == "new"
