"""A request of many tiny values is refused before they take seventy times its length; large nodes are no such thing."""

import json
import tracemalloc
from collections.abc import Iterator

import pytest

from neuron_scheduler.extender import body_limits
from neuron_scheduler.extender.protocol import (
    ExtenderArgs,
    ExtenderPreemptionArgs,
    MalformedRequestError,
    Message,
    decode,
    names_of,
)
from neuron_scheduler.kube.objects.json_scanner import finish
from tests.control_plane.objects import node_manifest

MOST = 1000


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests of a megabyte be large ones."""
    for name, most in (("MOST_NODES", MOST), ("MOST_VICTIMS", 2 * MOST)):
        monkeypatch.setattr(body_limits, name, most)


def many(value: bytes) -> bytes:
    """Return 400,000 values with commas between them."""
    return b",".join([value] * 400_000)


HOSTILE: dict[str, tuple[bytes, type[Message], str]] = {
    "names": (b'{"NodeNames":[%b]}' % many(b'"a"'), ExtenderArgs, "NodeNames has more than 1000 values"),
    "numbers for nodes": (b'{"Nodes":{"items":[%b]}}' % many(b"1"), ExtenderArgs, "Expected `object`, got `int`"),
    "objects for nodes": (b'{"Nodes":{"items":[%b]}}' % many(b"{}"), ExtenderArgs, "missing required field `metadata`"),
    "tiny nodes": (
        b'{"Nodes":{"items":[%b]}}' % many(b'{"metadata":{"name":""}}'),
        ExtenderArgs,
        "Nodes.items has more than 1000 values",
    ),
    "names, and then fewer": (
        b'{"NodeNames":[%b],"NodeNames":["a"]}' % many(b'"a"'),
        ExtenderArgs,
        "what is given twice, or is unknown, has more than 1000 values",
    ),
    "nodes, and then fewer": (
        b'{"Nodes":{"items":[%b]},"Nodes":null}' % many(b"1"),
        ExtenderArgs,
        "what is given twice, or is unknown, has more than 1000 values",
    ),
    "items, and then fewer": (
        b'{"Nodes":{"items":[%b],"items":[]}}' % many(b"1"),
        ExtenderArgs,
        "Expected `object`, got `int`",
    ),
    "uids of victims": (
        b'{"NodeNameToMetaVictims":{"a":{"Pods":[%b]}}}' % many(b"{}"),
        ExtenderPreemptionArgs,
        "NodeNameToMetaVictims has more than 2000 values",
    ),
    "nodes of victims": (
        b'{"NodeNameToMetaVictims":{%b}}' % b",".join(b'"%x":{}' % number for number in range(5000)),
        ExtenderPreemptionArgs,
        "NodeNameToMetaVictims has more than 2000 values",
    ),
    "numbers for whole victims": (
        b'{"NodeNameToVictims":{"a":{"Pods":[%b]}}}' % many(b"1"),
        ExtenderPreemptionArgs,
        "Expected `object`, got `int`",
    ),
    "objects for whole victims": (
        b'{"NodeNameToVictims":{"a":{"Pods":[%b]}}}' % many(b"{}"),
        ExtenderPreemptionArgs,
        "missing required field `metadata`",
    ),
    "whole victims without uids": (
        b'{"NodeNameToVictims":{"a":{"Pods":[%b]}}}' % many(b'{"metadata":{}}'),
        ExtenderPreemptionArgs,
        "missing required field `uid`",
    ),
    "tiny whole victims": (
        b'{"NodeNameToVictims":{"a":{"Pods":[%b]}}}' % many(b'{"metadata":{"uid":""}}'),
        ExtenderPreemptionArgs,
        "NodeNameToVictims has more than 2000 values",
    ),
    "whole victims, and then fewer": (
        b'{"NodeNameToVictims":{"a":{"Pods":[%b],"Pods":[]}}}' % many(b'{"metadata":{"uid":""}}'),
        ExtenderPreemptionArgs,
        "NodeNameToVictims has more than 2000 values",
    ),
    "victims of a node, and then fewer": (
        b'{"NodeNameToVictims":{"a":{"Pods":[%b]},"a":{}}}' % many(b'{"metadata":{"uid":""}}'),
        ExtenderPreemptionArgs,
        "NodeNameToVictims has more than 2000 values",
    ),
    "victims of nodes, and then none": (
        b'{"NodeNameToVictims":{"a":{"Pods":[%b]}},"NodeNameToVictims":{}}' % many(b"1"),
        ExtenderPreemptionArgs,
        "what is given twice, or is unknown, has more than 1000 values",
    ),
    "nodes of whole victims": (
        b'{"NodeNameToVictims":{%b}}' % b",".join(b'"%x":{}' % number for number in range(5000)),
        ExtenderPreemptionArgs,
        "NodeNameToVictims has more than 2000 values",
    ),
    "one node of whole victims, many times": (
        b'{"NodeNameToVictims":{%b}}' % many(b'"a":{}'),
        ExtenderPreemptionArgs,
        "NodeNameToVictims has more than 2000 values",
    ),
    "no JSON": (many(b"x"), ExtenderArgs, "JSON is malformed"),
}


@pytest.fixture
def _measured() -> Iterator[None]:
    """Let the test read how much memory is used."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.usefixtures("_measured")
def test_many_tiny_values(case: str) -> None:
    """The sentence says where they are, and they take no more memory than the body."""
    text, kind, expected = HOSTILE[case]
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with pytest.raises(MalformedRequestError, match=expected):
        decode(text, kind)
    _, peak = tracemalloc.get_traced_memory()
    assert peak - before < max(4 * len(text), 1 << 20)


def test_large_nodes() -> None:
    """Nodes of hundreds of values each are counted as nodes."""
    node = node_manifest("n") | {"status": {"images": [{"names": ["a", "b"], "sizeBytes": 1}] * 100}}
    text = json.dumps({"Pod": {}, "Nodes": {"items": [node] * MOST}, "NodeNames": None}).encode()
    assert text.count(b",") > 100 * MOST
    nodes = decode(text, ExtenderArgs).nodes
    assert nodes is not None
    assert finish(names_of(nodes.items or [])) == ["n"] * MOST
    more = json.dumps({"Nodes": {"items": [node] * (MOST + 1)}}).encode()
    with pytest.raises(MalformedRequestError, match=r"Nodes\.items has more than 1000 values"):
        decode(more, ExtenderArgs)


def test_large_pods() -> None:
    """So are victims, and the values of a pod are its own affair."""
    victim = {"metadata": {"uid": "u"}, "status": {"conditions": [{"a": 1, "b": 2}] * 10}}
    request = {"Pod": {"a": list(range(3 * MOST))}, "NodeNameToVictims": {"n": {"Pods": [victim] * 200}}}
    args = decode(json.dumps(request).encode(), ExtenderPreemptionArgs)
    assert args.node_name_to_victims is not None
    assert len(args.node_name_to_victims["n"].pods or ()) == 200


def test_many_large_pods() -> None:
    """Victims are counted and not their values: in a large cluster kube-scheduler sends thousands at once."""
    victim = {"metadata": {"uid": "u"}, "status": {"conditions": [{"a": 1, "b": 2}] * 10}}
    victims = {f"n{number}": {"Pods": [victim] * 16, "NumPDBViolations": 0} for number in range(100)}
    text = json.dumps({"Pod": {}, "NodeNameToVictims": victims, "NodeNameToMetaVictims": None}).encode()
    assert text.count(b",") > 10 * body_limits.MOST_VICTIMS
    args = decode(text, ExtenderPreemptionArgs)
    assert args.node_name_to_victims is not None
    assert [len(node.pods or ()) for node in args.node_name_to_victims.values()] == [16] * 100
    assert decode(text.replace(b'"NumPDB', b'"Pods": null, "NumPDB'), ExtenderPreemptionArgs).node_name_to_victims
