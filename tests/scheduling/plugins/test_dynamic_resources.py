"""DynamicResources, VolumeBinding, SchedulingGates: what is refused for the pod's own sake."""

from typing import Any

import pytest

from neuron_scheduler.scheduling.plugins import dynamic_resources
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal


@pytest.mark.parametrize(
    ("asked", "plugin", "reason"),
    [
        (
            {"resource_claims": ("claim",)},
            "DynamicResources",
            dynamic_resources.OFF,
        ),
        (
            {"volume_claims": ("data",)},
            "VolumeRestrictions",
            'persistentvolumeclaim "data" not found',
        ),
        (
            {"inline_volumes": ("disk",)},
            "VolumeRestrictions",
            'volume "disk" is of an in-tree type that no CSI driver serves; use a PersistentVolumeClaim',
        ),
        ({"refusal": "two names"}, "NeuronTopology", "two names"),
    ],
)
def test_refusals(asked: dict[str, Any], plugin: str, reason: str) -> None:
    """The reason is the only one, names its plugin, and buys no nodes."""
    fit_error = refusal(cluster_of([node("a"), node("b")]), pod(**asked))
    assert fit_error.text == f"0/2 nodes are available: {reason}."
    assert fit_error.plugins == {plugin}
    assert fit_error.new_node_cannot_help
