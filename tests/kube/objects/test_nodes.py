"""Nodes from the API server become values; one that cannot be read takes no pods."""

from typing import Any

import pytest

from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.model.node import Image, Node
from neuron_scheduler.model.selectors import Effect, Taint
from tests.support.wire_objects import encoded, node

DEVICE, CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"


def test_a_node() -> None:
    """Labels, taints, amounts and the health condition are read; heartbeats are not."""
    status = {
        "allocatable": {"cpu": "8", DEVICE: "16", "pods": "110"},
        "capacity": {"cpu": "8", DEVICE: "16", CORE: "32"},
        "conditions": [{"type": "NeuronHealth", "status": "True"}, {"type": "Ready", "status": "True"}],
        "images": [
            {"names": ["web@sha256:0", "web:1"], "sizeBytes": 70},
            {"names": ["web@sha256:0", "web:1"], "sizeBytes": 70},
            {"names": None},
        ],
        "declaredFeatures": ["GuaranteedQoSPodCPUResize"],
    }
    spec = {
        "unschedulable": True,
        "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-21T08:00:00Z"}],
    }
    value = NODES.decode(encoded(node(metadata={"labels": {"a": "b"}}, spec=spec, status=status))).value

    assert (
        Node(
            uid="uid-n",
            name="n",
            labels={"a": "b"},
            taints=(Taint("k", Effect.NO_SCHEDULE),),
            declared_features=("GuaranteedQoSPodCPUResize",),
            unschedulable=True,
            allocatable={"cpu": 8000, DEVICE: 16, "pods": 110},
            capacity={DEVICE: 16, CORE: 32},
            neuron_fault="NeuronHealth",
            images=(Image(("web@sha256:0", "web:1"), 70), Image((), 0)),
        )
        == value
    )


@pytest.mark.parametrize(
    ("condition", "fault"),
    [
        ({"type": "NeuronHealth", "status": "False", "reason": "NeuronHasNoError"}, ""),
        ({"type": "NeuronHealth", "status": "True"}, "NeuronHealth"),
        ({"type": "AcceleratedHardwareReady", "status": "True", "reason": "NeuronAcceleratedHardwareIsReady"}, ""),
        ({"type": "AcceleratedHardwareReady", "status": "Unknown", "reason": "NeuronDMAError"}, ""),
        ({"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID13Error"}, ""),
        ({"type": "AcceleratedHardwareReady", "status": "False"}, ""),
        (
            {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NeuronDMAError"},
            "AcceleratedHardwareReady",
        ),
    ],
)
def test_the_conditions_that_report_a_fault(condition: dict[str, str], fault: str) -> None:
    """AWS's detector says True, EKS's agent False, of other devices, too."""
    value = NODES.decode(encoded(node(status={"conditions": [{"type": "Ready", "status": "True"}, condition]}))).value
    assert isinstance(value, Node)
    assert value.neuron_fault == fault


def test_nodes_with_the_same_images_share_them() -> None:
    """Equal images are one object, and so are equal lists."""
    status = {"images": [{"names": ["web:1"], "sizeBytes": 7}, {"names": ["db:1"], "sizeBytes": 5}]}
    first, second = (NODES.decode(encoded(node(name, status=status))).value for name in "ab")
    other = NODES.decode(encoded(node("c", status={"images": status["images"][:1]}))).value
    assert isinstance(first, Node)
    assert isinstance(second, Node)
    assert isinstance(other, Node)
    assert first.images is second.images
    assert other.images[0] is first.images[0]


def test_nodes_of_one_type_share_their_amounts() -> None:
    """Equal quantities are one mapping, of Neuron even if nodes differ in what their capacity says of others."""
    first, second = (
        NODES.decode(
            encoded(node(status={"allocatable": {"cpu": "4"}, "capacity": {DEVICE: "1", "memory": memory}}))
        ).value
        for memory in ("7812500Ki", "7812504Ki")
    )
    assert isinstance(first, Node)
    assert isinstance(second, Node)
    assert first.allocatable is second.allocatable
    assert first.capacity is second.capacity
    assert first.capacity == {DEVICE: 1}


@pytest.mark.parametrize(
    "status",
    [{"allocatable": {"cpu": "many"}}, {"allocatable": {"cpu": "-1"}}, {"allocatable": 3}, "down"],
)
def test_a_malformed_node_takes_no_pods(status: Any) -> None:
    """A node whose name can be read is kept, with a refusal."""
    decoded = NODES.decode(encoded(node(status=status)))

    assert isinstance(decoded.value, Node)
    assert decoded.value.refusal
    assert (decoded.key, decoded.uid, decoded.resource_version) == ("n", "uid-n", "7")


def test_an_unknown_taint_effect_refuses_the_node() -> None:
    """A taint with an unknown effect is not ignored."""
    value = NODES.decode(encoded(node(spec={"taints": [{"key": "k", "effect": "Maybe"}]}))).value

    assert isinstance(value, Node)
    assert "unknown effect" in value.refusal
