"""Each write of a claim names its uid and version, and keeps what others have written; failures say what may be so."""

from typing import Any

import pytest

from neuron_scheduler.kube.writes.claim_writer import ClaimFailed, ClaimWriter
from neuron_scheduler.model.devices import PROTECTION, ResourceClaim
from neuron_scheduler.model.pod import Pod
from tests.support.scripted_server import Answer, answer, refuse, reset, scripted

POD = Pod(uid="u1", namespace="d", name="p")
CLAIM = ResourceClaim("c1", "d", "c", resource_version="7", finalizers=("other",))
AT = {"uid": "c1", "resourceVersion": "7"}
ME = {"resource": "pods", "name": "p", "uid": "u1"}
HIM = {"resource": "pods", "name": "q", "uid": "u2"}
STORED = {"metadata": AT | {"name": "c"}, "status": {"allocation": {}, "reservedFor": [HIM]}}


def writer_of(client: Any) -> ClaimWriter:
    return ClaimWriter(client=client, timeout=4.0, wall_clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("verb", "args", "script", "body"),
    [
        ("protect", (CLAIM,), (), {"metadata": AT | {"finalizers": ["other", PROTECTION]}}),
        ("take_back", (CLAIM,), (), {"metadata": AT, "status": {"allocation": None, "reservedFor": None}}),
        (
            "allocate",
            (CLAIM, {"devices": {}}, POD),
            (),
            {
                "metadata": AT,
                "status": {
                    "reservedFor": [ME],
                    "allocation": {"devices": {}, "allocationTimestamp": "1970-01-01T00:00:00Z"},
                },
            },
        ),
        (
            "allocate",
            (ResourceClaim("c1", "d", "c", resource_version="6", reserved_for=("u2",)), None, POD),
            (answer(STORED),),
            {"metadata": AT, "status": {"reservedFor": [HIM, ME]}},
        ),
    ],
    ids=["protect", "take back", "allocate", "reserve, too"],
)
async def test_what_is_written(verb: str, args: tuple[Any, ...], script: tuple[Answer, ...], body: Any) -> None:
    """The last request has it."""
    async with scripted(*script, answer({"metadata": {"resourceVersion": "8"}})) as (server, client):
        written = await getattr(writer_of(client), verb)(*args)
    assert written.resource_version == "8"
    assert server.seen[-1].json == body


@pytest.mark.parametrize(
    ("got", "is_stale", "is_open"),
    [
        (refuse(409, "Conflict"), True, False),
        (refuse(403, "Forbidden"), False, False),
        (refuse(500, "InternalError"), False, True),
        (answer("a page", status=409), False, True),
        (reset, False, True),
        (answer({}), False, True),
    ],
    ids=["stale", "no rights", "an error of etcd", "a proxy's page", "no answer", "an answer that is none"],
)
async def test_what_a_failure_says(got: Answer, is_stale: bool, is_open: bool) -> None:
    """Only a Status of the API server is believed."""
    async with scripted(got) as (_, client):
        failed = await writer_of(client).take_back(CLAIM)
    assert isinstance(failed, ClaimFailed)
    assert (failed.is_stale, failed.is_open) == (is_stale, is_open)
