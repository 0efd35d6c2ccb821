"""Each write of a claim names its uid and version, and keeps what others have written; failures say what may be so."""

import json
from typing import Any

import pytest

from neuron_scheduler.kube.writes.claim_writer import ClaimFailed, ClaimWriter
from neuron_scheduler.model.devices import (
    PROTECTION,
    ClaimAllocation,
    ClaimConfig,
    ClaimWrite,
    DeviceKey,
    DeviceRequest,
    ResourceClaim,
)
from neuron_scheduler.model.pod import Pod
from tests.support.scripted_server import Answer, answer, refuse, reset, scripted

POD = Pod(uid="u1", namespace="d", name="p")
CLAIM = ResourceClaim("c1", "d", "c", resource_version="7", finalizers=("other",))
AT = {"uid": "c1", "resourceVersion": "7"}
ME = {"resource": "pods", "name": "p", "uid": "u1"}
HIM = {"resource": "pods", "name": "q", "uid": "u2"}


def writer_of(client: Any) -> ClaimWriter:
    return ClaimWriter(client=client, timeout=4.0, wall_clock=lambda: 0.0)


RESERVED = ResourceClaim("c1", "d", "c", resource_version="7", allocation=ClaimAllocation(()), reserved_for={"u2": "q"})
REQUEST = DeviceRequest("r", "k", tolerations_json=b'[{"operator": "Exists"}]', class_config=(b'{"b": 1, "a":2}',))
WRITE = ClaimWrite(
    ResourceClaim("c1", "d", "c", config=(ClaimConfig(b"{ }", ("r",)),)),
    "n",
    ((REQUEST, DeviceKey("x.com", "n", "d0")),),
)
ALLOCATION = {
    "devices": {
        "results": [
            {"request": "r", "driver": "x.com", "pool": "n", "device": "d0", "tolerations": [{"operator": "Exists"}]}
        ],
        "config": [
            {"source": "FromClass", "requests": ["r"], "opaque": {"b": 1, "a": 2}},
            {"source": "FromClaim", "requests": ["r"], "opaque": {}},
        ],
    },
    "nodeSelector": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    },
    "allocationTimestamp": "1970-01-01T00:00:00Z",
}


@pytest.mark.parametrize(
    ("verb", "args", "body"),
    [
        ("protect", (CLAIM,), {"metadata": AT | {"finalizers": ["other", PROTECTION]}}),
        ("take_back", (CLAIM,), {"metadata": AT, "status": {"allocation": None, "reservedFor": None}}),
        ("allocate", (CLAIM, WRITE, POD), {"metadata": AT, "status": {"reservedFor": [ME], "allocation": ALLOCATION}}),
        (
            "allocate",
            (RESERVED, ClaimWrite(RESERVED, "n"), POD),
            {"metadata": AT, "status": {"reservedFor": [HIM, ME]}},
        ),
    ],
    ids=["protect", "take back", "allocate", "reserve, too"],
)
async def test_what_is_written(verb: str, args: tuple[Any, ...], body: Any) -> None:
    """In one request."""
    async with scripted(answer({"metadata": {"resourceVersion": "8"}})) as (server, client):
        written = await getattr(writer_of(client), verb)(*args)
    (seen,) = server.seen
    assert (written, seen.json) == (8, body)
    assert args[1:2] != (WRITE,) or (b'{"b": 1, "a":2}' in seen.body and b"{ }" in seen.body)  # byte for byte


async def test_a_finalizer_is_put_where_no_patch_passes() -> None:
    """With the blanks of Python's client, by which the parameters are stored; it is a stale write for another claim."""
    metadata = {"name": "c", "uid": "c0", "resourceVersion": "9", "labels": {"a": "b"}}
    stored = answer({"metadata": metadata, "spec": {"x": 1}})
    script = refuse(422, "Invalid"), stored, answer({"metadata": {"resourceVersion": "8"}})
    async with scripted(*script) as (server, client):
        assert await writer_of(client).protect(CLAIM) == 8
    sent = {"metadata": metadata | AT | {"finalizers": ["other", PROTECTION]}, "spec": {"x": 1}}
    assert server.seen[-1].body == json.dumps(sent).encode()


@pytest.mark.parametrize(
    ("got", "is_unsure"),
    [
        (refuse(409, "Conflict"), True),
        (refuse(403, "Forbidden"), False),
        (refuse(500, "InternalError"), True),
        (answer("a page", status=409), True),
        (reset, True),
        (answer({}), True),
    ],
    ids=["stale", "no rights", "an error of etcd", "a proxy's page", "no answer", "an answer that is none"],
)
async def test_what_a_failure_says(got: Answer, is_unsure: bool) -> None:
    """Only a Status of the API server is believed."""
    async with scripted(got) as (_, client):
        failed = await writer_of(client).take_back(CLAIM)
    assert isinstance(failed, ClaimFailed)
    assert failed.is_unsure == is_unsure
