"""Nodes with nominations are asked about twice, and refused as kube-scheduler refuses them."""

import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.pod import HostPort, Pod
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal

PORT = (HostPort("TCP", 80),)
TOO_MANY = "0/1 nodes are available: 1 Too many pods."
KEPT = "Nominated: 1 node has room, but it is kept for pods of the same or a higher priority."
TAKEN = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."


@pytest.mark.parametrize(
    ("nominated", "pending", "text"),
    [
        pytest.param(
            pod("first"),
            pod(cpu=9_000),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods.",
            id="one reason lacks now, the other with the nominated pod",
        ),
        pytest.param(pod("first"), pod(), f"{TOO_MANY} {KEPT}", id="what will lack is lacking"),
        pytest.param(
            pod("first", host_ports=PORT),
            pod(cpu=9_000, host_ports=PORT),
            TAKEN,
            id="an earlier filter that minds who will come goes before a later one that minds already",
        ),
        pytest.param(
            pod("first", priority=-1),
            pod(cpu=9_000),
            "0/1 nodes are available: 1 Insufficient cpu.",
            id="who is less important is not heard",
        ),
    ],
)
def test_nominated_pods_are_there_when_a_node_is_asked_first(nominated: Pod, pending: Pod, text: str) -> None:
    """Reasons are those with the nominated pods, if there are any, else those without (upstream: `framework.go`)."""
    cluster = cluster_of([node("n", cpu=8_000, pods=2)], [pod("bound", on="n")])
    cluster.nominate("n", Nomination(nominated))
    assert refusal(cluster, pending).text == text
