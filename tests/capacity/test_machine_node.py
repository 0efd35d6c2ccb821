"""Whether a node is the machine that a request is for, takes pods, and has any."""

from typing import Any

import pytest

from neuron_scheduler.capacity.machine_node import is_used, serves, takes_pods
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from tests.capacity.test_requests import TRN1, need
from tests.support.builders import node, pod
from tests.support.harness import cluster_of


@pytest.mark.parametrize(
    ("labels", "want"), [({"team": "a", "gen": "2"}, True), ({"team": "b", "gen": "2"}, False), ({"team": "a"}, False)]
)
def test_a_node_of_another_group_does_not_serve(labels: dict[str, str], want: bool) -> None:
    """The labels that the pod requires must be there; they may come later than the node."""
    required = (NodeSelectorTerm((Requirement("gen", Operator.EXISTS),)),)
    asked = need("a", node_selector={"team": "a"}, required_terms=required)
    assert serves(node("n", TRN1, labels=labels), asked) is want


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param(node("n", TRN1), True, id="ready"),
        pytest.param(node("n", TRN1, devices=0), False, id="no devices yet"),
        pytest.param(node("n", TRN1, unschedulable=True), False, id="cordoned"),
        pytest.param(node("n", TRN1, refusal="unreadable"), False, id="unreadable"),
        pytest.param(
            node("n", TRN1, taints=(Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE),)), False, id="not ready"
        ),
        pytest.param(
            node("n", TRN1, taints=(Taint("karpenter.sh/unregistered", Effect.NO_EXECUTE),)), False, id="unregistered"
        ),
        pytest.param(node("n", TRN1, taints=(Taint("team", Effect.NO_SCHEDULE),)), True, id="a taint that stays"),
    ],
)
def test_when_a_node_takes_pods(changed: Node, want: bool) -> None:
    """Its silicon is there, and no taint that passes."""
    assert takes_pods(changed, need("a")) is want


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param({"devices": 4, "ids": range(4)}, True, id="devices"),
        pytest.param({"devices": 1}, True, id="devices whose ids are unknown"),
        pytest.param({"cpu": 1000}, False, id="no Neuron"),
    ],
)
def test_a_machine_with_pods(asked: dict[str, Any], want: bool) -> None:
    """Only pods with Neuron count."""
    cluster = cluster_of([node("n", TRN1)], [pod("p", on="n", **asked)])
    node_info = cluster.node("n")
    assert node_info is not None
    assert is_used(node_info) is want
