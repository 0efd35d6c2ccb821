"""DynamicResources, VolumeBinding, SchedulingGates: what is refused for the pod's own sake."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.model.devices import NEVER, NO_CLASS, DeviceRequest, WantedDevices
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.resources import NEURON_CLAIMS
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


def test_a_missing_class_is_awaited() -> None:
    """The condition's reason is `Unschedulable`, as upstream's; autoscalers see that the class is missing."""
    missing = pod(refusal=f'resourceclaim "c", request "r": device class x {NO_CLASS}')
    assert not refusal(cluster_of([node("a")]), missing).new_node_cannot_help


def test_a_node_without_devices_is_told_from_one_where_they_are_in_use() -> None:
    """Preemption makes no room there."""
    wanted = WantedDevices((DeviceRequest("r", ""),))
    request = NeuronRequest(Unit.DEVICE, (0,), 0, resource=NEURON_CLAIMS, wanted=wanted)
    asking = attrs.evolve(pod(), neuron=request)
    assert refusal(cluster_of([node("a")]), asking).text == f"0/1 nodes are available: 1 {NEVER}."
