"""The nodes that a pod suits best, as looked for node by node, and as the sense of it demands."""

from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, from_slots, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import place
from neuron_scheduler.scheduling.plugins.silicon_balance import STEPS, Size, balance_size_of, prefer_balanced
from tests.support.builders import GI, node, pod

TYPES = ("trn1.32xlarge", "inf2.48xlarge", "inf2.24xlarge", "inf2.xlarge")


def growth(node_info: NodeInfo, pending: Pod) -> int:
    """Return what a pod does to one node, from the node as it is: in steps, times its devices."""
    machine, request = node_info.machine, pending.neuron
    assert machine is not None
    assert request is not None
    placement = place(machine, machine.all_cores, request)
    taken = placement.cores.bit_count() if placement else request.total * machine.cores_per_device
    (size,) = balance_size_of(node_info.node)
    assert isinstance(size, Size)
    grown = 0
    for resource, alike in ((CPU, size.cpu), (MEMORY, size.memory)):
        whole = node_info.node.allocatable[resource]
        if whole:
            free_silicon = Fraction(node_info.free_cores.bit_count(), machine.core_count)
            surplus = floor((Fraction(node_info.free(resource), whole) - free_silicon) * STEPS)
            more = (Fraction(pending.requests.get(resource, 0), alike) - Fraction(taken, machine.core_count)) * STEPS
            delta = ceil(more) if more > 0 else floor(more)
            grown += abs(surplus - delta) - abs(surplus)
    return grown * machine.devices


def cluster_of(*rows: tuple[Node, int, int, int]) -> Cluster:
    """Return nodes of which so many cores, and so much cpu and memory, is in use."""
    cluster = Cluster()
    for i, (some_node, cores, cpu, memory) in enumerate(rows):
        cluster.put_node(some_node)
        used = pod(f"used-{i}", cores=1 if cores else 0, cpu=cpu, memory=memory, on=some_node.name)
        cluster.assume(used, CoreMask((1 << cores) - 1))
    return cluster


amounts = st.sampled_from(
    [(128_000, 512 * GI), (128_000, 512 * GI - 4096), (192_000, 512 * GI), (4_000, 16 * GI), (0, GI)]
)
rows = st.tuples(st.sampled_from(TYPES), amounts, st.integers(0, 32), st.integers(0, 130_000), st.integers(0, 520))


@given(
    made=st.lists(rows, min_size=1, max_size=12),
    devices=st.sampled_from((1, 1, 2, 4)),
    cpu=st.integers(0, 60_000),
    memory=st.integers(0, 200),
    among=st.integers(0, (1 << 12) - 1).map(NodeSet),
)
def test_the_nodes_are_those_that_one_finds_node_by_node(
    made: list[tuple[str, tuple[int, int], int, int, int]], devices: int, cpu: int, memory: int, among: NodeSet
) -> None:
    """Whatever is in use, of whatever sizes the nodes are: all with the least growth, and no other."""
    rows = []
    for i, (kind, (cpus, bytes_), cores, used_cpu, used_memory) in enumerate(made):
        some_node = node(f"n{i:02}", kind, cpu=cpus, memory=bytes_, created=float(i))
        most = some_node.allocatable["aws.amazon.com/neuroncore"]
        rows.append((some_node, min(cores, most), used_cpu, used_memory * GI))
    cluster = cluster_of(*rows)
    pending = pod("new", devices=devices, cpu=cpu, memory=memory * GI)
    among &= NodeSet((1 << len(made)) - 1)
    grown = {slot: growth(cluster.view.row(slot), pending) for slot in slots_of(among)}
    wanted = [slot for slot, growth in grown.items() if growth == min(grown.values())]
    assert prefer_balanced(cluster.view, pending, among) == from_slots(wanted, len(made))


def preferred(cluster: Cluster, pending: Pod) -> list[str]:
    """Return the names of the preferred nodes."""
    nodes = prefer_balanced(cluster.view, pending, cluster.view.live)
    return [cluster.view.row(slot).node.name for slot in slots_of(nodes)]


def trn1(name: str) -> Node:
    """Return a node with 8 vCPUs and 32 GiB for each of 16 devices."""
    return node(name, "trn1.32xlarge", cpu=128_000, memory=512 * GI)


@pytest.mark.parametrize(
    ("cpu", "want"),
    [
        pytest.param(2_000, "short", id="little cpu: where it is short"),
        pytest.param(14_000, "plenty", id="much cpu: where there is plenty"),
    ],
)
def test_a_pod_goes_where_it_mends(cpu: int, want: str) -> None:
    """Half of the silicon is left on all nodes; the node that is most even now mends for neither pod."""
    cluster = cluster_of(
        (trn1("even"), 16, 64_000, 256 * GI),
        (trn1("plenty"), 16, 16_000, 256 * GI),
        (trn1("short"), 16, 112_000, 256 * GI),
    )
    assert preferred(cluster, pod("new", devices=1, cpu=cpu, memory=32 * GI)) == [want]


def test_what_cpu_and_memory_say_is_added_up() -> None:
    """A node that mends both halves of a pod's leaning is better than one that mends either."""
    cluster = cluster_of(
        (trn1("cpu"), 16, 32_000, 256 * GI),
        (trn1("both"), 16, 48_000, 320 * GI),
        (trn1("memory"), 16, 64_000, 384 * GI),
    )
    assert preferred(cluster, pod("new", devices=2, cpu=28_000, memory=16 * GI)) == ["both"]


def test_a_difference_below_a_step_counts() -> None:
    """A single device leans by less than a 64th of a node's cpu; rounded to nothing, all nodes would be alike to it."""
    cluster = cluster_of((trn1("even"), 16, 64_000, 256 * GI), (trn1("short"), 16, 70_000, 256 * GI))
    assert preferred(cluster, pod("new", devices=1, cpu=7_500, memory=32 * GI)) == ["short"]


def test_nodes_of_one_type_are_alike_whatever_their_kubelet_rounds() -> None:
    """Memory that differs by a few KiB makes no size of its own."""
    sizes = {
        balance_size_of(node(f"n{i}", "trn1.32xlarge", cpu=128_000, memory=511 * GI - i * 4096)) for i in range(50)
    }
    assert len(sizes) == 1
    assert balance_size_of(node("n", "")) == ()


def test_more_in_use_than_there_is_counts_as_nothing_left() -> None:
    """A node that was made smaller under its pods is as short of cpu as one whose cpu is all taken."""
    cluster = cluster_of((trn1("over"), 16, 300_000, 256 * GI), (trn1("taken"), 16, 128_000, 256 * GI))
    assert preferred(cluster, pod("new", devices=1, cpu=1_000, memory=32 * GI)) == ["over", "taken"]


def test_pods_without_neuron_and_single_candidates_are_left_alone() -> None:
    """Nothing to weigh."""
    cluster = cluster_of((trn1("a"), 0, 0, 0), (trn1("b"), 16, 0, 0))
    assert preferred(cluster, pod("new", cpu=1)) == ["a", "b"]
    assert prefer_balanced(cluster.view, pod("new", devices=1), NodeSet(0b10)) == 0b10
