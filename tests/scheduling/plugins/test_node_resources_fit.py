"""NodeResourcesFit: requests must be free, and each resource has its own reason."""

import pytest

from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot
from neuron_scheduler.cluster.rows.node_info import on_node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins import node_resources_fit
from neuron_scheduler.scheduling.plugins.node_resources_fit import free_eighths
from tests.support.builders import GI, node, pod
from tests.support.harness import cluster_of, refusal, schedule

SMALL = node("n", cpu=1000, memory=GI, pods=2)


@pytest.mark.parametrize(
    ("pending", "want"),
    [
        pytest.param(pod(cpu=500, memory=GI), (), id="exactly what is left"),
        pytest.param(pod(cpu=501), ("Insufficient cpu",), id="a thousandth too much"),
        pytest.param(
            pod(cpu=501, memory=GI + 1), ("Insufficient cpu", "Insufficient memory"), id="a reason for each resource"
        ),
        pytest.param(
            pod(requests={"vpc.amazonaws.com/efa": 1}), ("Insufficient vpc.amazonaws.com/efa",), id="not there"
        ),
        pytest.param(pod(requests={"hugepages-2Mi": 0}), (), id="nothing asked is not checked"),
    ],
)
def test_filter(pending: Pod, want: tuple[str, ...]) -> None:
    """A node with half its cpu in use takes what fits in the other half."""
    cluster = cluster_of([SMALL], [pod("other", cpu=500, on="n")])
    if want:
        assert refusal(cluster, pending).reasons == tuple((reason, 1) for reason in want)
    else:
        assert schedule(cluster, pending) == ("n", ())


def test_too_many_pods() -> None:
    """The number of pods is a resource, asked for by every pod; terminating ones count."""
    pods = [pod("a", on="n"), pod("b", terminating=True, on="n")]
    assert refusal(cluster_of([SMALL], pods), pod(cpu=2000)).text == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."
    )


def test_what_exceeds_allocatable_cannot_be_resolved_by_eviction() -> None:
    """Two nodes lack cpu; on one of them it could be freed."""
    nodes = [node("small", cpu=1000), node("large", cpu=4000, created=1), node("free", cpu=4000, created=2)]
    cluster = cluster_of(nodes, [pod("a", cpu=3000, on="large")])
    refusals = node_resources_fit.filter_nodes(cluster.view, pod(cpu=2000), NodeSet(0b111))
    assert {(r.nodes, r.unresolvable) for r in refusals if r.nodes} == {(NodeSet(0b001), True), (NodeSet(0b010), False)}


def test_an_overcommitted_node_is_no_puzzle() -> None:
    """More in use than there is leaves nothing, and pods that ask for nothing still fit."""
    cluster = cluster_of([SMALL], [pod("a", cpu=5000, on="n")])
    assert refusal(cluster, pod(cpu=1)).reasons == (("Insufficient cpu", 1),)
    assert schedule(cluster, pod(memory=1)) == ("n", ())


@pytest.mark.parametrize(
    ("cpu", "memory", "want"),
    [(1000, GI, 8), (875, GI, 7), (999, GI, 7), (1000, 0, 0), (124, GI, 0)],
)
def test_eighths(cpu: int, memory: int, want: int) -> None:
    """The scarcer of the two counts, rounded down."""
    free = on_node(node("n", cpu=1000, memory=GI))
    used = {"cpu": 1000 - cpu, "memory": GI - memory}
    assert (
        free_eighths(cluster_of([free.node], [pod("a", requests=used, on="n")]).view.row(Slot(0)), "cpu", "memory")
        == want
    )


def test_a_resource_the_node_lacks_has_no_share() -> None:
    """Only what is there is compared."""
    assert free_eighths(on_node(node("n", memory=0)), "cpu", "memory") == 8
    assert free_eighths(on_node(node("n", cpu=0, memory=0)), "cpu", "memory") == 0
