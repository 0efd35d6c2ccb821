"""Whether a node still takes an assumed pod; `tests/controllers/test_allocate_fence` tests what happens to the pod."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import HostPort, Pod, assigned_pod
from neuron_scheduler.model.selectors import Effect, Taint, Toleration
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.recheck import still_takes
from neuron_scheduler.scheduling.plugins.registry import PLUGINS
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

CORES = CoreMask(0b1111_0000)


def assumed(wanted: Pod, cores: CoreMask = CORES) -> Cluster:
    """Return a cluster of one node with this pod assumed on it."""
    cluster = cluster_of([node("n", "trn1.32xlarge", cpu=8000)])
    cluster.assume(assigned_pod(wanted, "n", {}), cores)
    return cluster


def takes(cluster: Cluster, wanted: Pod, cores: CoreMask = CORES) -> bool:
    """Return whether the only node takes the pod."""
    node_info = cluster.node("n")
    assert node_info is not None
    return still_takes(node_info, wanted, cores)


def change_node(**changes: Any) -> Callable[[Cluster], object]:
    """Return what gives the only node another state."""
    return lambda cluster: cluster.put_node(
        attrs.evolve(node("n", "trn1.32xlarge", cpu=8000, labels={"team": "blue"}, declared_features=("F",)), **changes)
    )


def put_pod(**fields: Any) -> Callable[[Cluster], object]:
    """Return what brings another scheduler's pod to the only node."""
    return lambda cluster: cluster.put_pod(pod("b", on="n", **fields))


WITH_PORT: dict[str, Any] = {"host_ports": (HostPort("TCP", 80),)}
REFUSED: dict[str, tuple[dict[str, Any], Callable[[Cluster], object]]] = {
    "NodeUnschedulable": ({}, change_node(unschedulable=True)),
    "TaintToleration": ({}, change_node(taints=(Taint("t", Effect.NO_EXECUTE),))),
    "NodeAffinity": ({"node_selector": {"team": "blue"}}, change_node(labels={})),
    "NodePorts": (WITH_PORT, put_pod(**WITH_PORT)),
    "NodeResourcesFit": ({"cpu": 1}, put_pod(cpu=8000)),
    "NeuronTopology": ({}, change_node(neuron_fault="NeuronHealth")),
    "NodeDeclaredFeatures": ({"required_features": ("F",)}, change_node(declared_features=())),
}
"""What a pod asks for, and what happens then to its node, so that the plugin refuses the node."""
NOT_ASKED_AGAIN = {
    *("NodeName", "DynamicResources"),  # their answers never change
    *("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"),  # these look beyond the node
    *("PodTopologySpread", "InterPodAffinity"),
}
"""A new plugin that refuses nodes needs a case above: `recheck` asks it by itself if its hint is a `NodeHint`."""


def test_a_node_that_is_as_it_was_takes_its_pod() -> None:
    """An unchanged node still takes its pod, also where other pods have taken the rest."""
    wanted = pod("a", devices=2)
    cluster = assumed(wanted)
    assert takes(cluster, wanted)
    cluster.put_pod(pod("b", on="n", cpu=8000))
    assert takes(cluster, wanted)


@pytest.mark.parametrize("rival", [{"devices": 2, "ids": (2, 3)}, {"cpu": 8001}, {"devices": 15}])
def test_a_node_where_others_took_its_share_does_not_take_it(rival: dict[str, Any]) -> None:
    """A pod has no place where pods of other schedulers claim its cores, or more than kubelet admits beside it."""
    wanted = pod("a", devices=2, cpu=1)
    cluster = assumed(wanted)
    cluster.put_pod(pod("b", on="n", **rival))
    assert not takes(cluster, wanted)


@pytest.mark.parametrize(
    ("devices", "cores", "rival", "answer"),
    [
        pytest.param(2, CORES, 2, False, id="one of several may be the rival's"),
        pytest.param(1, CoreMask(0b11_0000), 2, True, id="one is free beside it in any case"),
        pytest.param(1, CoreMask(0b11_0000), 16, False, id="not so many are free"),
    ],
)
def test_a_node_where_somebody_holds_unknown_ids(devices: int, cores: CoreMask, rival: int, answer: bool) -> None:
    """What was decided before another scheduler bound a pod there is as unsafe as what is decided afterwards."""
    wanted = pod("a", devices=devices)
    cluster = assumed(wanted, cores)
    cluster.put_pod(pod("b", on="n", devices=rival))
    node_info = cluster.node("n")
    assert node_info is not None
    assert takes(cluster, wanted, cores) is answer


@pytest.mark.parametrize(
    ("port", "answer"),
    [(HostPort("TCP", 80), False), (HostPort("UDP", 80), True), (HostPort("TCP", 81), True)],
    ids=str,
)
def test_a_host_port_is_had_by_one_pod(port: HostPort, answer: bool) -> None:
    """The kubelet rejects the second one; a pod's own port does not stand in its way."""
    wanted = pod("a", devices=2, host_ports=(HostPort("TCP", 80),))
    cluster = assumed(wanted)
    assert takes(cluster, wanted)
    cluster.put_pod(pod("b", on="n", host_ports=(port,)))
    assert takes(cluster, wanted) is answer


def test_a_pod_that_is_not_assumed_there_has_no_place() -> None:
    """A pod that was forgotten, or is assumed with other cores, has no place."""
    wanted = pod("a", devices=2)
    cluster = assumed(wanted)
    assert not takes(cluster, wanted, CoreMask(int(CORES) << 4))
    cluster.forget(wanted.uid)
    assert not takes(cluster, wanted)


def test_health_is_about_neuron() -> None:
    """A node with an unhealthy device takes only pods without Neuron, as in the filter."""
    for wanted, cores, answer in ((pod("a", devices=2), CORES, False), (pod("b"), NO_CORES, True)):
        cluster = assumed(wanted, cores)
        node_info = cluster.node("n")
        assert node_info is not None
        cluster.put_node(attrs.evolve(node_info.node, neuron_fault="NeuronHealth"))
        assert takes(cluster, wanted, cores) is answer


@pytest.mark.parametrize("plugin", sorted({plugin.name for plugin in PLUGINS} - NOT_ASKED_AGAIN))
def test_each_plugin_is_asked_again(plugin: str) -> None:
    """What a plugin refuses by now is no node for the pod, although it was when the pod was decided."""
    fields, happens = REFUSED[plugin]
    wanted = pod("a", **{"devices": 2, **fields})
    cluster = assumed(wanted)
    change_node()(cluster)
    assert takes(cluster, wanted)
    happens(cluster)
    assert not takes(cluster, wanted)


def test_tolerations_are_the_pods_present_ones() -> None:
    """Tolerations that were added to a waiting pod count."""
    wanted = pod("a", devices=2)
    cluster = assumed(wanted)
    node_info = cluster.node("n")
    assert node_info is not None
    cluster.put_node(attrs.evolve(node_info.node, unschedulable=True, taints=(Taint("t", Effect.NO_SCHEDULE),)))
    assert not takes(cluster, wanted)
    assert takes(cluster, attrs.evolve(wanted, tolerations=(Toleration(exists=True),)))


def test_a_node_selector_counts_with_the_nodes_present_labels() -> None:
    """They may have changed while the pod's victims ended."""
    wanted = pod("a", devices=2, node_selector={"team": "blue"})
    cluster = assumed(wanted)
    node_info = cluster.node("n")
    assert node_info is not None
    assert not takes(cluster, wanted)
    cluster.put_node(attrs.evolve(node_info.node, labels={**node_info.node.labels, "team": "blue"}))
    assert takes(cluster, wanted)
