"""One row: a node, its pods, and the sums that follow from them."""

import attrs
import pytest

from neuron_scheduler.cluster.rows import node_info as rows
from neuron_scheduler.cluster.rows.node_info import NeuronUsage, NodeInfo, on_node, with_pod, without_pod
from neuron_scheduler.cluster.rows.pod_info import PodInfo, pod_info_of
from neuron_scheduler.model.annotations import NEURON_ALLOC_TIME
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import CPU, NEURON_CORE, NEURON_DEVICE, PODS
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from tests.support.builders import node, pod

INF2 = node("n", "inf2.24xlarge")  # 6 devices of 2 cores


def row(*pods: Pod) -> NodeInfo:
    """Return the row of an inf2.24xlarge with pods on it."""
    empty = on_node(INF2)
    return on_node(INF2, {p.uid: pod_info_of(p, empty.machine) for p in pods})


def test_pods_that_came_before_their_node_are_summed_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may create thousands of pods with the name of a node: they are not added one after the other."""
    pods = [
        pod("plain", on="n", cpu=1000, host_ports=(HostPort("TCP", 80),), priority=5),
        pod("known", on="n", cpu=500, devices=2, ids=(1, 2), host_ports=(HostPort("TCP", 80),)),
        pod("unknown", on="n", cores=3, volume_claims=("data",)),
    ]
    added = on_node(INF2)
    for each in pods:
        added = with_pod(added, pod_info_of(each, added.machine))
    monkeypatch.setattr(rows, "with_pod", None)
    assert row(*pods) == added
    assert (row(*pods).pod_infos, row(*pods).last_alloc_time) == (added.pod_infos, added.last_alloc_time)


@pytest.mark.parametrize(
    ("pod_info", "free_cores", "unknown"),
    [
        pytest.param(pod("p", cpu=1000, on="n"), 0b111111111111, (0, 0), id="no Neuron"),
        pytest.param(pod("p", devices=2, on="n", ids=(1, 2)), 0b111111000011, (0, 0), id="devices"),
        pytest.param(pod("p", cores=3, on="n", ids=(1, 2, 3)), 0b111111110001, (0, 0), id="cores"),
        pytest.param(pod("p", devices=6, on="n"), 0, (0, 0), id="whoever asks for all has all"),
        pytest.param(pod("p", devices=2, on="n"), 0b111111111111, (2, 4), id="devices without ids"),
        pytest.param(pod("p", cores=3, on="n"), 0b111111111111, (3, 3), id="cores without ids"),
        pytest.param(pod("p", devices=2, on="n", ids=(1,)), 0b111111111111, (2, 4), id="too few ids"),
        pytest.param(pod("p", devices=2, on="n", ids=(5, 6)), 0b111111111111, (2, 4), id="an id beyond the machine"),
        pytest.param(pod("p", devices=2, cores=3, on="n", ids=(0, 1)), 0b111111111111, (6, 12), id="a mixed request"),
        pytest.param(pod("p", devices=2, cores=4, on="n", ids=(0, 1)), 0b111111110000, (0, 0), id="devices with cores"),
        pytest.param(pod("p", devices=2, cores=4, on="n"), 0b111111111111, (6, 8), id="and the kubelet chose both"),
        pytest.param(pod("p", devices=1, cores=3, on="n", ids=(0,)), 0b111111111111, (4, 5), id="with too many"),
    ],
)
def test_neuron_usage(pod_info: Pod, free_cores: CoreMask, unknown: tuple[int, int]) -> None:
    """What is certainly held is not free; what an unknown holder holds counts as the most it may be."""
    node_info = row(pod_info)
    assert (node_info.free_cores, (node_info.neuron_usage.unknown_devices, node_info.neuron_usage.unknown_cores)) == (
        free_cores,
        unknown,
    )


def test_an_unreadable_pod_may_hold_everything() -> None:
    """Of a pod whose object cannot be decoded, not even the amount is known."""
    node_info = with_pod(on_node(INF2), PodInfo(pod("p", on="n"), cores=None, unreadable=True))
    assert node_info.neuron_usage == NeuronUsage(
        CoreMask(0xFFF), unknown_holders=1, unknown_devices=6, unknown_cores=12
    )


def test_a_core_claimed_twice_is_free_when_both_are_gone() -> None:
    """Two pods that claim one core hold it both; each is named to the other's owner."""
    first, second = pod("a", devices=2, on="n", ids=(0, 1)), pod("b", devices=2, on="n", ids=(1, 2))
    node_info = row(first, second)
    assert (node_info.free_cores, node_info.neuron_usage.double_booked) == (CoreMask(0b111111000000), CoreMask(0b1100))
    assert (node_info.conflicts("uid-a"), node_info.conflicts("uid-b")) == ((second,), (first,))
    alone = without_pod(node_info, "uid-a")
    assert (alone.free_cores, alone.neuron_usage.double_booked) == (CoreMask(0b111111000011), NO_CORES)


@pytest.mark.parametrize(
    ("pod_info", "want"),
    [
        (pod("p", devices=1, on="n", ids=(0,)), False),
        (pod("p", cores=1, on="n", ids=(0,)), False),
        (pod("p", devices=2, on="n", ids=(0, 1)), True),
        (pod("p", devices=6, on="n"), False),
        (pod("p", cpu=1, on="n"), False),
    ],
)
def test_has_multi_unit_pod(pod_info: Pod, want: bool) -> None:
    """Some pod holds more than one unit and less than the machine: one-unit pods prefer other nodes."""
    assert row(pod_info).neuron_usage.has_multi_unit_pod is want


def test_sums() -> None:
    """Requests add up, pods are counted, and each port is counted as often as it is used."""
    port = HostPort("TCP", 80)
    pods = [pod(name, cpu=500, devices=1, host_ports=(port,), on="n") for name in "ab"]
    node_info = row(*pods)
    assert node_info.used == {CPU: 1000, NEURON_DEVICE: 2, PODS: 2}
    assert (
        node_info.free(CPU),
        node_info.free(NEURON_DEVICE),
        node_info.free(NEURON_CORE),
        node_info.free("none"),
    ) == (
        191_000,
        4,
        12,
        0,
    )
    assert node_info.ports == {port: 2}
    assert without_pod(node_info, "uid-a").ports == {port: 1}


def test_free_is_never_negative() -> None:
    """When a node shrinks, more may be used than there is; then nothing is free."""
    assert on_node(attrs.evolve(INF2, allocatable={CPU: 1})).free(PODS) == 0
    assert row(pod("p", cpu=10**9, on="n")).free(CPU) == 0


def test_the_last_time_is_remembered() -> None:
    """Allocation times rise for each node, also after the latest pod is removed."""
    times = {
        name: pod(name, devices=1, ids=(0,), on="n", allocation={NEURON_ALLOC_TIME: name * 3})
        for name in ("1", "3", "2")
    }
    node_info = row(*times.values())
    assert node_info.last_alloc_time == 333
    assert without_pod(node_info, "uid-3").last_alloc_time == 333
