"""NodePorts: a host port is taken once per protocol and address."""

import pytest

from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.model.pod import HostPort
from neuron_scheduler.scheduling.plugins import node_ports
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule

ANY = HostPort("TCP", 80)
LOCAL = HostPort("TCP", 80, "127.0.0.1")


@pytest.mark.parametrize(
    ("taken", "asked", "fits"),
    [
        pytest.param(ANY, ANY, False, id="every address twice"),
        pytest.param(ANY, LOCAL, False, id="every address holds each"),
        pytest.param(LOCAL, ANY, False, id="every address needs each"),
        pytest.param(LOCAL, LOCAL, False, id="the same address"),
        pytest.param(LOCAL, HostPort("TCP", 80, "10.0.0.1"), True, id="another address"),
        pytest.param(ANY, HostPort("UDP", 80), True, id="another protocol"),
        pytest.param(ANY, HostPort("TCP", 81), True, id="another port"),
    ],
)
def test_conflicts(taken: HostPort, asked: HostPort, fits: bool) -> None:
    """Two ports exclude each other if protocol, number and address meet; it ends with the pod that has it."""
    cluster = cluster_of([node("n")], [pod("holder", host_ports=(taken,), on="n")])
    pending = pod("p", host_ports=(HostPort("TCP", 1), asked))
    if not fits:
        assert refusal(cluster, pending).text == (
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
        )
        assert [r.unresolvable for r in node_ports.filter_nodes(cluster.view, pending, NodeSet(1))] == [False]
        cluster.remove_pod("uid-holder")
    assert schedule(cluster, pending) == ("n", ())


def test_a_port_taken_twice_is_free_when_both_are_gone() -> None:
    """Whoever bound the second one, the first does not free it."""
    cluster = cluster_of([node("n")], [pod(name, host_ports=(ANY,), on="n") for name in "ab"])
    cluster.remove_pod("uid-a")
    assert refusal(cluster, pod(host_ports=(ANY,))).plugins == {"NodePorts"}
    cluster.remove_pod("uid-b")
    assert schedule(cluster, pod(host_ports=(ANY,))) == ("n", ())
