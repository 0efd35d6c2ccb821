"""
No bytes make the decoder of any kind raise, and none take long: real objects, mutated in their structure and as text.

A malformed object keeps as much of its identity as can be read.
"""

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.kube import objects
from neuron_scheduler.kube.objects.base import (
    LONGEST_NAME,
    OBJECT,
    Decoded,
    Malformed,
    Resource,
    byte_bounded_memo,
    reference,
    weight_of,
)
from neuron_scheduler.kube.objects.pod_spec import constraints
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.storage import CLAIMS
from neuron_scheduler.kube.objects.wire import PodSpec
from neuron_scheduler.model.annotations import BETA_STORAGE_CLASS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolumeClaim

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


DECODERS: dict[str, tuple[Resource[Any], dict[str, Any]]] = {
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
    assert isinstance(decoder.decode(text), Decoded)
    decoder.decode_change(b'{"type": "ADDED", "object": ' + text + b"}\n")


@pytest.mark.parametrize("kind", DECODERS)
def test_text_that_is_not_utf_8(kind: str) -> None:
    """In whichever field, also in those that say whose object it is."""
    decoder, sample = DECODERS[kind]
    for path in paths(sample):
        assert isinstance(decoder.decode(with_text(sample, path, ABSURD["invalid UTF-8"])), Decoded), path


@pytest.mark.parametrize("kind", DECODERS)
def test_managed_fields_of_any_depth_are_passed_over(kind: str) -> None:
    """We do not read them, and the rest can be read."""
    decoder, sample = DECODERS[kind]
    plain = decoder.decode(json.dumps(sample).encode())
    deep = with_text(sample, ("metadata", "managedFields"), ABSURD["deep objects"])

    assert decoder.decode(deep) == plain
    assert decoder.decode(with_text(sample, ("metadata", "managedFields"), '"\udcff"')) == plain


@pytest.mark.parametrize("absurd", ABSURD)
@pytest.mark.parametrize("path", [("spec", "containers"), ("metadata", "labels"), ("spec", "priority")], ids=str)
def test_what_can_be_read_of_a_malformed_pod(path: tuple[str, ...], absurd: str) -> None:
    """Its name, uid and version are kept, and its node, where it becomes an unknown holder."""
    decoded = PODS.decode(with_text(POD, path, ABSURD[absurd]))
    if absurd == "no end":
        assert isinstance(decoded.value, Malformed)
        return

    assert (decoded.key, decoded.uid, decoded.resource_version) == ("d/o", "u", "7")
    assert isinstance(decoded.value, Pod | Malformed)
    assert decoded.value.node_name == "n1"


def test_an_error_of_ours_is_reported_with_its_type() -> None:
    """An unexpected exception is a bug, and its type shows it."""

    def fail(_: Any) -> Any:
        raise LookupError("this")

    decoder = attrs.evolve(PODS, read=fail)

    assert decoder.decode(json.dumps(POD).encode()).value == Malformed("Pod", "d/o", "LookupError: this", "u", "n1")


def test_a_reason_is_short() -> None:
    """It is logged with every malformed object."""
    decoded = PODS.decode(with_text(POD, ("spec", "overhead", "cpu"), '"' + "x" * 100_000 + '"'))

    assert isinstance(decoded.value, Malformed)
    assert len(decoded.value.reason) <= 300


HOSTILE = 'a\nE1121 08:15:04 "forged"\r\x1b[2J\u202e'
SHOWN = r'a\nE1121 08:15:04 "forged"\r\x1b[2J\u202e'


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("data-web-0", "data-web-0", id="a name stays"),
        pytest.param("a" * LONGEST_NAME, "a" * LONGEST_NAME, id="the longest name stays"),
        pytest.param("a" * (LONGEST_NAME + 1), "a" * LONGEST_NAME + "...", id="what is cut ends like no name"),
        pytest.param(HOSTILE, SHOWN, id="control characters are shown"),
        pytest.param("\x00" * 1_000_000, r"\x00" * LONGEST_NAME + "...", id="both"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_reference(text: str, want: str) -> None:
    """It is short and printable, and a text that no object can have as its name does not become one."""
    assert reference(text) == want


def test_every_reference_that_is_not_checked_is_read_like_that() -> None:
    """A pod's claim, a claim's volume, and a claim's class in its annotation, which only this scheduler checks."""
    spec = msgspec.convert({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": HOSTILE}}]}, PodSpec)
    assert constraints(spec, pod="p", namespace="default").volume_claims == (SHOWN,)
    metadata = {"uid": "1", "namespace": "default", "name": "c", "annotations": {BETA_STORAGE_CLASS: HOSTILE}}
    claim = CLAIMS.decode(msgspec.json.encode({"metadata": metadata, "spec": {"volumeName": HOSTILE}})).value
    assert isinstance(claim, PersistentVolumeClaim)
    assert (claim.volume_name, claim.class_name) == (SHOWN, SHOWN)


@attrs.frozen
class Pair:
    """A value with parts."""

    names: tuple[str, ...]
    number: int


def test_it_is_computed_once() -> None:
    """The same object is returned again."""
    calls: list[str] = []

    @byte_bounded_memo()
    def doubled(text: str) -> str:
        calls.append(text)
        return text * 2

    assert doubled("ab") is doubled("ab")
    assert calls == ["ab"]


def test_what_is_large_is_not_kept() -> None:
    """A spec of a megabyte is read each time."""
    calls: list[int] = []

    @byte_bounded_memo(most=10_000, longest=1000)
    def counted(text: str) -> None:
        calls.append(len(text))

    for _ in range(3):
        counted("x" * 1000)

    assert calls == [1000] * 3


@given(st.lists(st.text(max_size=300)))
def test_all_together_are_bounded(texts: list[str]) -> None:
    """Whatever the arguments and their order."""
    most = 2000
    results = byte_bounded_memo(most=most, longest=400)(str.lower)
    for text in texts:
        assert results(text) == text.lower()
    kept = results.__self__  # type: ignore[attr-defined]  # the cache behind it

    assert sum(OBJECT + len(text) for text in kept) <= most


def test_the_weight_of_a_value() -> None:
    """Strings count with their length, at any depth, and counting stops at the limit."""
    assert weight_of(Pair(("a" * 100, "b" * 50), 7), 10_000) >= 150 + 5 * OBJECT
    assert weight_of(("x" * 1000, "y" * 1000), 500) < 2000
