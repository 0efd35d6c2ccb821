"""DynamicResources, PodTopologySpread, VolumeBinding, SchedulingGates: what is refused for the pod's own sake."""

from typing import Any

import pytest

from neuron_scheduler.scheduling.plugins import dynamic_resources
from tests.builders import node, pod
from tests.scheduling.harness import cluster_of, refusal, schedule


@pytest.mark.parametrize(
    ("asked", "plugin", "reason"),
    [
        (
            {"resource_claims": ("claim",)},
            "DynamicResources",
            dynamic_resources.REASON,
        ),
        (
            {"hard_spread": 1},
            "PodTopologySpread",
            "topology spread constraints with whenUnsatisfiable: DoNotSchedule are not supported yet",
        ),
        (
            {"volume_claims": ("data",)},
            "VolumeBinding",
            "persistent volume claims and generic ephemeral volumes are not supported yet",
        ),
        (
            {"inline_volumes": ("disk",)},
            "VolumeBinding",
            "in-tree inline volumes are not supported; use a PersistentVolumeClaim",
        ),
        ({"refusal": "two names"}, "NeuronTopology", "two names"),
    ],
)
def test_refusals(asked: dict[str, Any], plugin: str, reason: str) -> None:
    """The reason stands alone, names its plugin, and buys no nodes."""
    found = refusal(cluster_of([node("a"), node("b")]), pod(**asked))
    assert found.text == f"0/2 nodes are available: {reason}."
    assert found.plugins == {plugin}
    assert found.hopeless


def test_soft_constraints_are_ignored() -> None:
    """They are wishes; the scheduler counts the pods that had them."""
    assert schedule(cluster_of([node("n")]), pod(soft=3)) == ("n", ())
