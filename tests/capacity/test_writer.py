"""A placeholder is created once, gets its one condition, and is deleted by its uid."""

from typing import Any

import pytest

from neuron_scheduler.capacity.placeholders import manifest
from neuron_scheduler.capacity.writer import PlaceholderWriter
from neuron_scheduler.telemetry.errors import ApiError, FencedError, UnreachableError
from tests.capacity.asked import NAME, asked
from tests.support.scripted_server import Answer, Scripted, answer, refuse, reset, scripted

PODS = "/api/v1/namespaces/neuron-scheduler-capacity/pods"
CONDITION = "This pod asks an autoscaler for a node; no scheduler places it."


def stored(**metadata: Any) -> Answer:
    """Answer with the placeholder as it is stored."""
    written = manifest(NAME, asked(), "pause")
    return answer(written | {"metadata": written["metadata"] | {"uid": "uid-1"} | metadata})


THERE = refuse(409, "AlreadyExists", f'pods "{NAME}" already exists', kind="pods", name=NAME)
GONE = refuse(404, "NotFound", kind="pods", name=NAME)
OTHER_UID = refuse(409, "Conflict", "Precondition failed: UID in precondition: uid-1, UID in object meta: uid-2")

DENIED = refuse(403, "Forbidden", "no")


async def run(deed: str, *script: Answer, may_bind: bool = True) -> tuple[str, Scripted]:
    """Do a deed against a script; return what came of it, and the server."""
    async with scripted(*script) as (server, client):
        writer = PlaceholderWriter(
            client=client, may_bind=lambda: may_bind, timeout=4.0, wall_clock=lambda: 1_795_248_000.5
        )
        try:
            if deed == "create":
                assert (await writer.create(NAME, manifest(NAME, asked(), "pause"))).uid == "uid-1"
            elif deed == "mark":
                await writer.mark(NAME, "uid-1")
            else:
                await writer.delete(NAME, "uid-1")
        except (ApiError, UnreachableError, FencedError) as error:
            return type(error).__name__, server
    return "done", server


async def test_the_requests() -> None:
    """The pod, then its condition and nothing else in its status; the deletion has the uid and no grace."""
    outcome, server = await run("create", stored())
    assert outcome == "done"
    (post,) = server.seen
    assert (post.method, post.path, post.json["metadata"]["name"]) == ("POST", PODS, NAME)
    outcome, server = await run("mark", stored())
    assert outcome == "done"
    (patch,) = server.seen
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": CONDITION}
    condition["lastTransitionTime"] = "2026-11-21T08:00:00Z"
    assert (patch.method, patch.path) == ("PATCH", f"{PODS}/{NAME}/status")
    assert patch.json == {"metadata": {"uid": "uid-1"}, "status": {"conditions": [condition]}}
    outcome, server = await run("delete", stored(), stored())
    assert outcome == "done"
    patch, delete = server.seen
    assert patch.json["status"]["conditions"][0]["reason"] == "SchedulerError", "a finalizer may keep the pod"
    assert (delete.method, delete.path) == ("DELETE", f"{PODS}/{NAME}")
    assert (delete.json["gracePeriodSeconds"], delete.json["preconditions"]) == (0, {"uid": "uid-1"})


@pytest.mark.parametrize(
    ("deed", "script", "want", "methods"),
    [
        pytest.param("create", [THERE, stored()], "done", "POST GET", id="an earlier try has created it"),
        pytest.param("create", [THERE, stored(labels={})], "UnreachableError", "POST GET", id="somebody else's pod"),
        pytest.param(
            "create", [THERE, stored(deletionTimestamp="2026-11-21T08:00:00Z")], "UnreachableError", "POST GET"
        ),
        pytest.param("create", [reset], "UnreachableError", "POST", id="no answer"),
        pytest.param("create", [answer("<html/>")], "UnreachableError", "POST", id="a proxy's answer"),
        pytest.param("create", [refuse(403, "Forbidden", "exceeded quota")], "ApiError", "POST", id="a quota"),
        pytest.param("delete", [GONE, GONE], "done", "PATCH DELETE", id="it is gone"),
        pytest.param("delete", [stored(), GONE], "done", "PATCH DELETE", id="it has gone meanwhile"),
        pytest.param("delete", [OTHER_UID, OTHER_UID], "done", "PATCH DELETE", id="another pod has the name"),
        pytest.param("delete", [stored(), refuse(503)], "ApiError", "PATCH DELETE", id="an error of the server"),
        pytest.param("delete", [DENIED, stored()], "done", "PATCH DELETE", id="a webhook against the condition"),
        pytest.param("delete", [DENIED, DENIED], "ApiError", "PATCH DELETE", id="no right"),
        pytest.param("delete", [refuse(503)], "ApiError", "PATCH", id="the condition may be written later"),
    ],
)
async def test_what_may_go_wrong(deed: str, script: list[Answer], want: str, methods: str) -> None:
    """A request that is repeated makes no second pod; what is gone is deleted; all else is an error."""
    outcome, server = await run(deed, *script)
    assert (outcome, " ".join(request.method for request in server.seen)) == (want, methods)


@pytest.mark.parametrize("deed", ["create", "mark", "delete"])
async def test_nothing_is_sent_without_the_lease(deed: str) -> None:
    """A replica that may not write neither asks nor deletes."""
    outcome, server = await run(deed, may_bind=False)
    assert (outcome, server.seen) == ("FencedError", [])
