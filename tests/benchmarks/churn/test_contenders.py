"""The other preferences choose the node that they are named for."""

import pytest

from benchmarks.churn.contenders import FragmentationGradientDescent, prefer_emptiest, prefer_fullest, preferring
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.contract import Prefer
from tests.support import builders


def cluster(*used: int) -> Cluster:
    """Return trn1.32xlarge nodes n0, n1, ... with so many devices in use, from 0 on."""
    nodes = Cluster()
    for i, count in enumerate(used):
        nodes.put_node(builders.node(f"n{i}", "trn1.32xlarge", created=float(i)))
        for device in range(count):
            nodes.assume(builders.pod(f"n{i}-{device}", devices=1, on=f"n{i}"), CoreMask(0b11 << 2 * device))
    return nodes


@pytest.mark.parametrize(("prefer", "expected"), [(prefer_fullest, "n2"), (prefer_emptiest, "n1")])
def test_packing_and_spreading_go_by_the_free_devices(prefer: Prefer, expected: str) -> None:
    """Of the feasible nodes, the one with the fewest or the most free devices."""
    decision = schedule_pod(cluster(4, 0, 9, 16), builders.pod("new", devices=1), preferring(prefer))
    assert isinstance(decision, Decision)
    assert decision.node_name == expected


def sizes(**shares: float) -> dict[NeuronRequest, float]:
    """Return requests for devices (`d1=0.5`) with the share of each."""
    return {builders.request(int(name[1:])): share for name, share in shares.items()}


def test_fragmentation_counts_cores_that_the_next_pod_cannot_use() -> None:
    """With 4 of 16 devices held, half of the pods (16 devices) can use none of the 24 free cores."""
    policy, machine = FragmentationGradientDescent(sizes(d1=0.5, d16=0.5)), builders.machine("trn1.32xlarge")
    assert policy.fragmentation(machine, machine.all_cores) == 0
    assert policy.fragmentation(machine, machine.all_cores & ~CoreMask(0xFF)) == 12


def test_the_gradient_prefers_a_broken_node() -> None:
    """On the empty node one device adds 15 cores of fragmentation; on the broken one it removes one."""
    policy, nodes = FragmentationGradientDescent(sizes(d1=0.5, d16=0.5)), cluster(0, 4)
    pod = builders.pod("new", devices=1)
    rows = {state.node.name: state for state in nodes.view.rows()}
    assert policy.growth(rows["n0"], builders.request(1)) == 15
    assert policy.growth(rows["n1"], builders.request(1)) == -1
    decision = schedule_pod(nodes, pod, preferring(policy))
    assert isinstance(decision, Decision)
    assert decision.node_name == "n1"
