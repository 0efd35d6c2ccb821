"""The extender's structures have Go's names on the wire, and what cannot be read is one kind of error."""

import json
from typing import Any

import msgspec
import pytest

from neuron_scheduler.extender.protocol import (
    NULL,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    HostPriority,
    MalformedRequestError,
    Message,
    MetaPod,
    MetaVictims,
    NodeList,
    decode,
    encode,
)

POD = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {}}
NODE = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "1"}}}

WIRE: list[tuple[Message | list[HostPriority], Any]] = [
    (
        ExtenderArgs(pod=msgspec.Raw(json.dumps(POD).encode()), node_names=["n1"]),
        {"Pod": POD, "Nodes": None, "NodeNames": ["n1"]},
    ),
    (
        ExtenderFilterResult(
            nodes=NodeList(items=[msgspec.Raw(json.dumps(NODE).encode())]),
            failed_nodes={"n2": "why"},
            failed_and_unresolvable_nodes={"n3": "never"},
        ),
        {
            "Nodes": {"items": [NODE]},
            "NodeNames": None,
            "FailedNodes": {"n2": "why"},
            "FailedAndUnresolvableNodes": {"n3": "never"},
            "Error": "",
        },
    ),
    ([HostPriority(host="n1", score=10)], [{"Host": "n1", "Score": 10}]),
    (
        ExtenderBindingArgs(pod_name="p", pod_namespace="ns", pod_uid="u", node="n1"),
        {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "n1"},
    ),
    (ExtenderBindingResult(error="no"), {"Error": "no"}),
    (
        ExtenderPreemptionResult(node_name_to_meta_victims={"n1": MetaVictims([MetaPod("u")], num_pdb_violations=1)}),
        {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 1}}},
    ),
]


@pytest.mark.parametrize(("message", "wire"), WIRE)
def test_names_on_the_wire(message: Message | list[HostPriority], wire: Any) -> None:
    """Each structure is written with the names of Go's fields."""
    assert json.loads(encode(message)) == wire


def test_requests_of_preempt() -> None:
    """Both forms are read; pods stay as they were sent."""
    text = json.dumps(
        {
            "Pod": POD,
            "NodeNameToVictims": {"n1": {"Pods": [POD], "NumPDBViolations": 2}, "n2": {"Pods": None}},
            "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u"}], "NumPDBViolations": 0}},
        }
    ).encode()
    args = decode(text, ExtenderPreemptionArgs)
    assert args.node_name_to_victims is not None
    assert args.node_name_to_meta_victims is not None
    [victim] = args.node_name_to_victims["n1"].pods or []

    assert json.loads(bytes(args.pod)) == json.loads(bytes(victim)) == POD
    assert args.node_name_to_victims["n1"].num_pdb_violations == 2
    assert args.node_name_to_victims["n2"].pods is None
    assert args.node_name_to_meta_victims["n1"] == MetaVictims([MetaPod("u")], 0)


def test_what_is_missing_is_null() -> None:
    """Fields that are null or missing, and unknown fields, are no error: Go omits and adds them."""
    assert decode(b'{"Pod":null,"NodeNames":null,"New":1}', ExtenderArgs) == decode(b"{}", ExtenderArgs)
    assert bytes(decode(b"{}", ExtenderArgs).pod) == bytes(NULL)


@pytest.mark.parametrize(
    "text", [b"", b"x", b"[1]", b"{", b"{} x", b"\xff", b'{"NodeNames":[1]}', b'{"a":' + b"[" * 9999]
)
def test_what_cannot_be_read(text: bytes) -> None:
    """Every mistake is the same error, with a short sentence."""
    with pytest.raises(MalformedRequestError, match=r".+") as caught:
        decode(text, ExtenderArgs)
    assert len(str(caught.value)) <= 300
