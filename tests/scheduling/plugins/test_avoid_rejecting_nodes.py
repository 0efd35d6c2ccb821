"""NodeRejections: who has rejected pods comes last, and with other ids."""

from collections.abc import Mapping
from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, PreferredTerm, Requirement, Taint
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, schedule

NODES = tuple(node(name, "trn1.32xlarge", labels={"name": name}, created=number) for number, name in enumerate("abc"))
ROW = CoreMask(0xFF)  # the cores of devices 0 to 3
BEST_A = (PreferredTerm(100, NodeSelectorTerm((Requirement("name", Operator.IN, ("a",)),))),)


def aside(**marks: CoreMask) -> Cluster:
    """Return three nodes, some of them set aside."""
    cluster = cluster_of(NODES)
    for name, mark in marks.items():
        cluster.set_aside(name, mark)
    return cluster


@pytest.mark.parametrize(
    ("marks", "asked", "want"),
    [
        pytest.param({}, {"devices": 4}, ("a", (0, 1, 2, 3)), id="nothing is set aside"),
        pytest.param({"a": ROW}, {"devices": 4}, ("b", (0, 1, 2, 3)), id="another node"),
        pytest.param({"a": NO_CORES}, {"cpu": 1}, ("b", ()), id="a pod without Neuron, too"),
        pytest.param({"a": ROW}, {"devices": 4, "preferred_terms": BEST_A}, ("b", (0, 1, 2, 3)), id="before wishes"),
        pytest.param({"a": ROW}, {"devices": 4, "node_selector": {"name": "a"}}, ("a", (4, 5, 6, 7)), id="no choice"),
        pytest.param(
            {"a": ROW, "b": NO_CORES, "c": NO_CORES},
            {"devices": 4},
            ("a", (4, 5, 6, 7)),
            id="all: any of them, with other ids",
        ),
        pytest.param(
            {"a": CoreMask((1 << 32) - 1)},
            {"devices": 4, "node_selector": {"name": "a"}},
            ("a", (0, 1, 2, 3)),
            id="all ids: any of them",
        ),
        pytest.param(
            {"a": CoreMask(1)},
            {"devices": 16, "node_selector": {"name": "a"}},
            ("a", tuple(range(16))),
            id="whoever asks for all gets all",
        ),
    ],
)
def test_what_is_set_aside(
    marks: Mapping[str, CoreMask], asked: Mapping[str, Any], want: tuple[str, tuple[int, ...]]
) -> None:
    """Nodes and ids come last, and are used where nothing else will do."""
    assert schedule(aside(**marks), pod(**asked)) == want


def test_before_discouraging_taints() -> None:
    """A pod that fails helps nobody: a node that would rather have none is better."""
    cluster = aside(a=NO_CORES, b=NO_CORES)
    cluster.put_node(node("c", "trn1.32xlarge", created=2, taints=(Taint("spot", Effect.PREFER_NO_SCHEDULE),)))
    assert schedule(cluster, pod(devices=4)) == ("c", (0, 1, 2, 3))


def test_a_profile_without_it() -> None:
    """What a configuration leaves out has no say in the choice of the node; the ids still come last."""
    decision = schedule_pod(aside(a=ROW), pod(devices=4), default_profile("p", preferences=["SmallestBlock"]))
    assert isinstance(decision, Decision)
    assert decision.placement is not None
    assert (decision.node_name, decision.placement.ids) == ("a", (4, 5, 6, 7))
