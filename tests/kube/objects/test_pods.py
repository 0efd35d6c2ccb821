"""Pods from the API server become values or are malformed; nothing unreadable counts as free."""

from typing import Any

import pytest

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Owner, Pod, PodCondition
from tests.support.wire_objects import container, encoded, pod


def read(**changes: Any) -> Pod:
    """Return the decoded pod."""
    decoded = PODS.decode(encoded(pod(**changes)))
    assert isinstance(decoded.value, Pod)
    return decoded.value


def test_a_plain_pod() -> None:
    """Identity, times and the fields that a decision reads."""
    decoded = PODS.decode(encoded(pod("a", metadata={"generation": 3, "labels": {"app": "x"}}, spec={"priority": 7})))

    assert (decoded.key, decoded.uid, decoded.resource_version) == ("default/a", "uid-a", "5")
    assert isinstance(decoded.value, Pod)
    value = decoded.value
    assert (
        value.key,
        value.uid,
        value.resource_version,
        value.scheduler_name,
        value.priority,
        value.observed_generation,
    ) == ("default/a", "uid-a", "5", "my-scheduler", 7, 3)
    assert value.created == 1795248000.0
    assert value.labels == {"app": "x"}
    assert not value.terminating
    assert not value.refusal


def test_the_controller_among_the_owners() -> None:
    """One owner controls the pod; the others are left out, and so are all where none does."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    other = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "v"}
    value = read(metadata={"ownerReferences": [other, {**owner, "controller": True}]}).owner

    assert value == Owner("apps/v1", "ReplicaSet", "web")
    assert read(metadata={"ownerReferences": [owner]}).owner is None
    assert read().owner is None


@pytest.mark.parametrize(
    "key",
    [
        "AWS_NEURON_IDS",
        "NEURON_ALLOC_TIME",
        "NEURON_ALLOCATED",
        "NEURON_RESOURCE_TYPE",
        "NEURON_CORES",
        "NEURON_DEVS",
        "neuron-scheduler/allocation",
    ],
)
def test_an_allocation_annotation_is_kept(key: str) -> None:
    """Each of them is kept, whatever its value: devices of an annotation that is dropped here would count as free."""
    assert read(metadata={"annotations": {key: "?", "note": "x"}}).allocation == {key: "?"}


def test_annotations() -> None:
    """Only allocation annotations are kept, and all are measured."""
    annotations = {"AWS_NEURON_IDS": "0,1", "neuron-scheduler/allocation": "{}", "note": "ä"}
    value = read(metadata={"annotations": annotations})

    assert value.allocation == {"AWS_NEURON_IDS": "0,1", "neuron-scheduler/allocation": "{}"}
    assert value.annotations_size == 14 + 3 + 27 + 2 + 4 + 2


ADMITTED: dict[str, tuple[dict[str, Any], bool]] = {
    "bound only": ({"status": {"phase": "Pending"}}, False),
    "a start time": ({"status": {"startTime": "2026-11-22T00:00:00Z"}}, True),
    "a container": ({"status": {"containerStatuses": [{"name": "c"}]}}, True),
    "an init container": ({"status": {"initContainerStatuses": [{"name": "i"}]}}, True),
    "no containers yet": ({"status": {"containerStatuses": []}}, False),
    "handed out": ({"metadata": {"annotations": {"NEURON_ALLOCATED": "true"}}}, True),
    "not handed out": ({"metadata": {"annotations": {"NEURON_ALLOCATED": "false"}}}, False),
}


@pytest.mark.parametrize("sentence", ADMITTED)
def test_admission(sentence: str) -> None:
    """A kubelet asks the device plugin before it reports on a pod; the plugin's annotation proves it too."""
    changes, admitted = ADMITTED[sentence]
    assert read(**changes).admitted is admitted


def test_waiting_and_leaving() -> None:
    """Gates, nominations, the condition and the deletion are read."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    value = read(
        metadata={"deletionTimestamp": "2026-11-21T08:00:00Z"},
        spec={"schedulingGates": [{"name": "g"}]},
        status={"nominatedNodeName": "n1", "conditions": [condition]},
    )

    assert value.terminating
    assert value.gates == ("g",)
    assert value.nominated_node_name == "n1"
    assert PodCondition("False", "Unschedulable", "0/1") == value.scheduled


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminal_pod_counts_as_gone(phase: str) -> None:
    """A pod that has ended holds nothing, also if no field selector excludes it."""
    assert Decoded("default/p", "uid-p", "5", None) == PODS.decode(encoded(pod(status={"phase": phase})))


def test_nulls_cost_nothing() -> None:
    """An explicit null in place of an optional container is an absent one."""
    spec = dict.fromkeys(
        ("initContainers", "tolerations", "affinity", "volumes", "overhead", "nodeSelector", "priority")
    )
    manifest = pod(metadata={"labels": None, "annotations": None, "deletionTimestamp": None}, spec=spec)
    manifest["status"] = None

    assert isinstance(PODS.decode(encoded(manifest)).value, Pod)


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "a quantity that is none": ({"containers": [container(requests={"cpu": "1x"})]}, "is not a quantity"),
    "a negative request": ({"containers": [container(requests={"cpu": "-1"})]}, "negative"),
    "a null for a container": ({"containers": [None]}, "containers"),
    "a label selector that cannot be read": (
        {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "z",
                            "labelSelector": {"matchExpressions": [{"key": "k", "operator": "Near"}]},
                        }
                    ]
                }
            }
        },
        "selector",
    ),
}


@pytest.mark.parametrize("sentence", MALFORMED)
def test_malformed_pods_keep_their_identity_and_node(sentence: str) -> None:
    """A malformed pod is reported with its name, uid, node and reason."""
    spec, reason = MALFORMED[sentence]
    decoded = PODS.decode(encoded(pod("bad", spec={**spec, "nodeName": "n1"})))

    assert isinstance(decoded.value, Malformed)
    assert (decoded.key, decoded.uid, decoded.resource_version) == ("default/bad", "uid-bad", "5")
    assert (
        decoded.value.kind,
        decoded.value.key,
        decoded.value.uid,
        decoded.value.node_name,
    ) == ("Pod", "default/bad", "uid-bad", "n1")
    assert reason in decoded.value.reason


def test_equal_strings_are_one_object() -> None:
    """Names and labels that repeat are kept once."""
    first = read(name="a", metadata={"labels": {"app": "train"}}, spec={"nodeName": "node-1"})
    second = read(name="b", metadata={"labels": {"app": "train"}}, spec={"nodeName": "node-1"})

    assert first.node_name is second.node_name
    assert next(iter(first.labels.values())) is next(iter(second.labels.values()))
    assert first.requests is second.requests
