"""NodeUnschedulable and NodeName: nodes that take no pod, or only pods that tolerate or name them."""

import pytest

from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import Effect, Toleration
from neuron_scheduler.scheduling.plugins import node_name, node_unschedulable
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal, schedule

CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration(CORDON, exists=True), True),
        (Toleration(CORDON, exists=True, effect=Effect.NO_SCHEDULE), True),
        (Toleration(CORDON), True),
        (Toleration(exists=True), True),
        (Toleration(CORDON, exists=True, effect=Effect.NO_EXECUTE), False),
        (Toleration("other", exists=True), False),
    ],
)
def test_cordons(toleration: Toleration, fits: bool) -> None:
    """A cordon is a taint of effect NoSchedule without a value."""
    cluster = cluster_of([node("n", unschedulable=True)])
    assert refusal(cluster, pod()).text == "0/1 nodes are available: 1 node(s) were unschedulable."
    pending = pod(tolerations=(toleration,))
    if fits:
        assert schedule(cluster, pending) == ("n", ())
    else:
        assert refusal(cluster, pending).plugins == {"NodeUnschedulable"}


def test_a_node_that_cannot_be_read_takes_nobody() -> None:
    """Whatever a pod tolerates, and whatever else is wrong with the node."""
    cluster = cluster_of([Node(uid="u", name="n", unschedulable=True, refusal="no taint effect of that name")])
    assert refusal(cluster, pod(tolerations=(Toleration(exists=True),))).text == (
        "0/1 nodes are available: 1 node(s) had an object that could not be read."
    )


def test_neither_is_resolved_by_eviction() -> None:
    """Pods that go change nothing about it."""
    cluster = cluster_of([node("n", unschedulable=True)])
    refusals = [
        *node_unschedulable.filter_nodes(cluster.view, pod(), NodeSet(1)),
        *node_name.filter_nodes(cluster.view, pod(on="other"), NodeSet(1)),
    ]
    assert {r.reason for r in refusals if r.nodes} == {
        "node(s) were unschedulable",
        "node(s) didn't match the requested node name",
    }
    assert all(r.unresolvable for r in refusals)
