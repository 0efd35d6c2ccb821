"""What happened to a node, and which plugins it concerns."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent, node_events
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY
from tests.support.builders import node

BEFORE = node("n", "trn1.32xlarge")
E = ClusterEvent


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({}, {}, [], id="a heartbeat"),
        pytest.param({}, {"labels": {"a": "b"}}, [E.NODE_LABELS], id="a label"),
        pytest.param({}, {"taints": (Taint("t", Effect.NO_EXECUTE),)}, [E.NODE_TAINTS], id="a taint"),
        pytest.param({"unschedulable": True}, {}, [E.NODE_TAINTS], id="uncordoned"),
        pytest.param({}, {"unschedulable": True}, [], id="cordoned"),
        pytest.param({}, {"allocatable": {"cpu": 1}}, [E.NODE_ALLOCATABLE], id="allocatable"),
        pytest.param({}, {"capacity": {}}, [E.NODE_ALLOCATABLE], id="capacity"),
        pytest.param({"neuron_fault": "NeuronHealth"}, {}, [E.NODE_HEALTH], id="healthy again"),
        pytest.param({}, {"neuron_fault": "NeuronHealth"}, [], id="unhealthy"),
        pytest.param({}, {"declared_features": ("a",)}, [E.NODE_FEATURES], id="features"),
        pytest.param({"refusal": "cannot be read"}, {}, [E.NODE_TAINTS], id="readable again"),
        pytest.param(
            {"unschedulable": True},
            {"labels": {}, "capacity": {}},
            [E.NODE_LABELS, E.NODE_TAINTS, E.NODE_ALLOCATABLE],
            id="all",
        ),
    ],
)
def test_node_events(before: dict[str, Any], after: dict[str, Any], want: list[ClusterEvent]) -> None:
    """Only what could help a pod is an event."""
    assert list(node_events(attrs.evolve(BEFORE, **before), attrs.evolve(BEFORE, **after))) == want


@pytest.mark.parametrize(
    ("event", "want"),
    [
        (E.NODE_ADDED, {"NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"}),
        (E.NODE_ADDED, {"NeuronTopology", "NodeName"}),
        (E.NODE_LABELS, {"NodeAffinity", "NeuronTopology"}),
        (E.NODE_TAINTS, {"TaintToleration", "NodeUnschedulable"}),
        (E.NODE_ALLOCATABLE, {"NodeResourcesFit", "NeuronTopology"}),
        (E.NODE_HEALTH, {"NeuronTopology"}),
        (E.ASSIGNED_POD_GONE, {"NodePorts", "NodeResourcesFit", "NeuronTopology", "InterPodAffinity"}),
        *(
            (event, {"PodTopologySpread", "InterPodAffinity"})
            for event in (E.ASSIGNED_POD_ADDED, E.ASSIGNED_POD_LABELS)
        ),
        *((event, {"PodTopologySpread", "InterPodAffinity"}) for event in (E.ASSIGNED_POD_GONE, E.NODE_ADDED)),
        (E.NODE_LABELS, {"PodTopologySpread", "InterPodAffinity"}),
        (E.NAMESPACE_LABELS, {"InterPodAffinity"}),
        *((event, {"PodTopologySpread"}) for event in (E.NODE_DELETED, E.NODE_TAINTS)),
    ],
)
def test_plugins_concerned(event: ClusterEvent, want: set[str]) -> None:
    """Each event concerns at least the plugins that kube-scheduler registers for it, and ours."""
    assert want <= CONCERNED_BY[event]


def test_every_event_concerns_a_plugin() -> None:
    """An event that no plugin lists would be noted for nothing."""
    assert all(CONCERNED_BY[event] for event in ClusterEvent)
