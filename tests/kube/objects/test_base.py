"""
No bytes make the decoder of any kind raise, and none take long: real objects, mutated in their structure and as text.

A malformed object keeps as much of its identity as can be read.
"""

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.kube import objects
from neuron_scheduler.kube.objects.base import Decoded, Decoder, Malformed, Resource
from neuron_scheduler.kube.objects.json_scanner import finish
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.writes.lease import _DECODER as LEASE
from neuron_scheduler.model.pod import Pod

META = {
    "name": "o",
    "namespace": "d",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-11-21T08:00:00Z",
    "deletionTimestamp": None,
    "labels": {"app": "train"},
    "annotations": {"AWS_NEURON_IDS": "0,1"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "x", "controller": True}],
    "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {'k:{"name":"c"}': {}}}}}],
}
EXPRESSION = {"key": "zone", "operator": "In", "values": ["a", "b"]}
SELECTOR = {"matchLabels": {"app": "train"}, "matchExpressions": [EXPRESSION]}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [EXPRESSION], "matchFields": [EXPRESSION]}]}
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
POD_TERM = {"topologyKey": "zone", "labelSelector": SELECTOR, "namespaces": ["d"], "namespaceSelector": SELECTOR}
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi", "aws.amazon.com/neuron": "2"}, "limits": {"cpu": 2}}
CONTAINER = {
    "name": "c",
    "image": "i",
    "resources": RESOURCES,
    "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP", "hostIP": "::"}],
    "restartPolicy": "Always",
}
POD: dict[str, Any] = {
    "metadata": META,
    "spec": {
        "nodeName": "n1",
        "schedulerName": "my-scheduler",
        "priority": 5,
        "containers": [CONTAINER],
        "initContainers": [CONTAINER],
        "resources": RESOURCES,
        "overhead": {"cpu": "250m"},
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {REQUIRED: TERMS, PREFERRED: [{"weight": 1, "preference": TERMS["nodeSelectorTerms"][0]}]},
            "podAffinity": {REQUIRED: [POD_TERM], PREFERRED: [{"weight": 1, "podAffinityTerm": POD_TERM}]},
            "podAntiAffinity": {REQUIRED: [POD_TERM]},
        },
        "topologySpreadConstraints": [
            {"topologyKey": "zone", "maxSkew": 1, "labelSelector": SELECTOR, "matchLabelKeys": ["app"]}
        ],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {}}],
        "schedulingGates": [{"name": "g"}],
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-11-21T08:00:00Z",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}],
        "containerStatuses": [{"name": "c", "resources": RESOURCES, "allocatedResources": {"cpu": "1"}}],
    },
}
NODE = {
    "metadata": META,
    "spec": {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "8", "aws.amazon.com/neuron": "16"},
        "capacity": {"cpu": "8", "aws.amazon.com/neuron": "16"},
        "conditions": [{"type": "NeuronHealth", "status": "True"}],
        "images": [{"names": ["i:1"], "sizeBytes": 5}],
    },
}
OTHER = {
    "metadata": META,
    "provisioner": "ebs.csi.aws.com",
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
    "storageClassName": "gp3",
    "nodeTopology": SELECTOR,
    "capacity": "1Gi",
    "spec": {
        "selector": SELECTOR,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "claimRef": {"namespace": "d", "name": "c", "uid": "x"},
        "nodeAffinity": {"required": TERMS},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
        "drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": 25}}],
        "attacher": "ebs.csi.aws.com",
        "nodeName": "n1",
        "source": {"persistentVolumeName": "v"},
        "holderIdentity": "h",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-11-21T08:00:00.000000Z",
    },
    "status": {"phase": "Available", "disruptionsAllowed": 1, "disruptedPods": {"p": "2026-11-21T08:00:00Z"}},
}


def watched() -> Iterator[Resource[Any]]:
    """Yield every resource that a module of `kube.objects` declares, alone or in a tuple."""
    for module in pkgutil.iter_modules(objects.__path__, f"{objects.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            yield from (
                item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Resource)
            )


DECODERS: dict[str, tuple[Decoder[Any], dict[str, Any]]] = {
    "leases": (LEASE, OTHER),
    **{resource.name: (resource, {"pods": POD, "nodes": NODE}.get(resource.name, OTHER)) for resource in watched()},
}
DEEP = 20_000  # levels; the decoder follows 1,000 in Python 3.11, and 10,000 in 3.13
ABSURD: dict[str, str] = {
    "deep lists": "[" * DEEP + "]" * DEEP,
    "deep objects": '{"a":' * DEEP + "{}" + "}" * DEEP,
    "no end": '{"a":' * DEEP,
    "a large float": "1e400",
    "a large int": "9" * 20_000,
    "a large negative int": "-" + "9" * 30,
    "a large quantity": '"' + "9" * 20_000 + '"',
    "a large exponent": '"1e999999999"',
    "a date before time": '"0000-01-01T00:00:00Z"',
    "a date after time": '"99999-01-01T00:00:00Z"',
    "a date without a zone": '"0001-01-01T00:00:00"',
    "null": "null",
    "a list": "[]",
    "a list of nulls": "[null, null]",
    "an object": "{}",
    "an object of nulls": '{"a": null}',
    "a number": "-1",
    "a flag": "true",
    "text": '"\\u0000\\ud83d\\ude00"',
    "half a pair": '"\\ud800"',
    "invalid UTF-8": '"\udcff"',
    "a key twice": '{"name": "x", "name": 3}',
    "many members": "{" + ",".join(f'"k{number}": "v"' for number in range(5000)) + "}",
}


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to each value in an object, without the object itself."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [below for key, part in inner for below in ((*path, key), *paths(part, (*path, key)))]


def with_text(value: Any, path: tuple[Any, ...], text: str) -> bytes:
    """Return the object on the wire with some text in place of one value."""
    value = json.loads(json.dumps(value))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = "HERE"
    return json.dumps(value).replace('"HERE"', text, 1).encode(errors="surrogateescape")


@st.composite
def hostile(draw: st.DrawFn, sample: dict[str, Any]) -> bytes:
    """Return an object with something absurd in it, and perhaps cut off, or with other bytes in it."""
    text = with_text(sample, draw(st.sampled_from(paths(sample))), ABSURD[draw(st.sampled_from(sorted(ABSURD)))])
    mutate: Callable[[bytes], bytes] = draw(
        st.sampled_from([bytes, lambda text: text[: len(text) * 2 // 3], lambda text: text.replace(b"a", b"\xff", 3)])
    )
    return mutate(text)


@pytest.mark.parametrize("kind", DECODERS)
@given(st.data())
def test_no_bytes_make_it_raise(kind: str, data: st.DataObject) -> None:
    """Neither alone nor in a line of a watch."""
    decoder, sample = DECODERS[kind]
    text = data.draw(hostile(sample) | st.binary())
    for decoded in (decoder.decode(text), finish(decoder.decode_in_steps(text))):
        assert isinstance(decoded, Decoded)
    decoder.decode_change(b'{"type": "ADDED", "object": ' + text + b"}\n")


@pytest.mark.parametrize("kind", DECODERS)
def test_managed_fields_of_any_depth_are_passed_over(kind: str) -> None:
    """We do not read them, and the rest can be read."""
    decoder, sample = DECODERS[kind]
    plain = decoder.decode(json.dumps(sample).encode())
    deep = with_text(sample, ("metadata", "managedFields"), ABSURD["deep objects"])

    assert decoder.try_decode(deep) is None
    assert decoder.decode(deep) == plain
    assert decoder.decode(with_text(sample, ("metadata", "managedFields"), '"\udcff"')) == plain


@pytest.mark.parametrize("absurd", ABSURD)
@pytest.mark.parametrize("path", [("spec", "containers"), ("metadata", "labels"), ("spec", "priority")], ids=str)
def test_what_can_be_read_of_a_malformed_pod(path: tuple[str, ...], absurd: str) -> None:
    """Its name, uid and version are kept, and its node, where it becomes an unknown holder."""
    decoded = PODS.decode(with_text(POD, path, ABSURD[absurd]))
    if absurd == "no end":
        assert (decoded.key, decoded.uid) == ("d/o", "u")
        return

    assert (decoded.key, decoded.uid, decoded.resource_version) == ("d/o", "u", "7")
    assert isinstance(decoded.value, Pod | Malformed)
    assert decoded.value.node_name == "n1"


@pytest.mark.parametrize("name", ["nodeName", "uid", "metadata", "annotations", "anything"])
def test_a_field_whose_name_is_damaged_is_not_absent(name: str) -> None:
    """The pod would be on no node, or another one; bytes that are no UTF-8 show that it is not as it was sent."""
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": {"a": "é"}}, "anything": 1}
    text = json.dumps(pod, ensure_ascii=False).encode()
    assert PODS.try_decode(text) is not None
    damaged = text.replace(f'"{name}"'.encode(), f'"{name[:-1]}'.encode() + b'\xff"')

    assert PODS.try_decode(damaged) is PODS.try_decode(msgspec.Raw(damaged)) is None
    assert PODS.decode_change(b'{"type": "ADDED", "object": ' + damaged + b"}\n") is None
    decoded = PODS.decode(damaged)
    assert isinstance(decoded.value, Malformed)
    assert decoded.damaged


def test_an_object_has_a_name() -> None:
    """One with an empty name would be kept under the key of its namespace."""
    decoded = PODS.decode(json.dumps({**POD, "metadata": {**POD["metadata"], "name": ""}}).encode())

    assert isinstance(decoded.value, Malformed)
    assert decoded.key == ""


def test_an_error_of_ours_is_reported_with_its_type() -> None:
    """An unexpected exception is a bug, and its type shows it."""

    def fail(_: Any) -> Any:
        raise LookupError("this")

    decoder = Decoder[Any](kind="Pod", shape=PODS.shape, read=fail)

    assert decoder.decode(json.dumps(POD).encode()).value == Malformed("Pod", "d/o", "LookupError: this", "u", "n1")


def test_a_reason_is_short() -> None:
    """It is logged with every malformed object."""
    decoded = PODS.decode(with_text(POD, ("spec", "overhead", "cpu"), '"' + "x" * 100_000 + '"'))

    assert isinstance(decoded.value, Malformed)
    assert len(decoded.value.reason) <= 300
