"""A placeholder is created once, gets its one condition, and is deleted by its uid."""

from typing import Any

import pytest

from neuron_scheduler.capacity.placeholders import manifest
from neuron_scheduler.capacity.writer import PlaceholderWriter
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.capacity.asked import NAME, asked
from tests.support.scripted_server import Answer, Scripted, answer, refuse, reset, scripted

PODS = "/api/v1/namespaces/neuron-scheduler-capacity/pods"
LABELS = {"neuron-scheduler/placeholder": "true"}


def stored(**metadata: Any) -> Answer:
    """Answer with the placeholder as it is stored."""
    meta = {"name": NAME, "uid": "uid-1", "labels": LABELS} | metadata
    return answer({"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {}})


THERE = refuse(409, "AlreadyExists", f'pods "{NAME}" already exists', kind="pods", name=NAME)
GONE = refuse(404, "NotFound", kind="pods", name=NAME)
NO_NAMESPACE = refuse(404, "NotFound", 'namespaces "neuron-scheduler-capacity" not found', kind="namespaces")
QUOTA = refuse(403, "Forbidden", f'pods "{NAME}" is forbidden: exceeded quota: q')
OTHER_UID = refuse(409, "Conflict", "Precondition failed: UID in precondition: uid-1, UID in object meta: uid-2")


async def run(*script: Answer, deed: str, uid: str = "uid-1", may_send: bool = True) -> tuple[str, Scripted]:
    """
    Ask for a machine, or withdraw it, with one try against a script; return what came of it and the server.

    `done`, `declined`, or `open`: it is tried again.
    """
    told: list[str] = []
    async with scripted(*script) as (server, client):
        writer = PlaceholderWriter(
            client=client,
            may_send=lambda: may_send,
            timeout=4.0,
            clock=lambda: 0.0,
            declined=lambda _, message: told.append(f"declined: {message}"),
            gone=lambda _: told.append("done"),
            errors=UnexpectedErrors(),
            wall_clock=lambda: 1_795_248_000.5,
        )
        if deed == "ask":
            writer.ask(NAME, manifest(asked(), "pause"))
        else:
            writer.adopt(NAME, uid)
            writer.withdraw(NAME)
        await writer._settle(NAME)
        known = writer._known.get(NAME)
    if deed == "ask" and known is not None and known.uid and not told:
        assert known.uid == "uid-1"
        told.append("done")
    return told[0].partition(":")[0] if told else "open", server


async def test_the_requests() -> None:
    """The pod, then its condition and nothing else in its status; the deletion has the uid and no grace."""
    outcome, server = await run(stored(), stored(), deed="ask")
    assert outcome == "done"
    post, patch = server.seen
    assert (post.method, post.path, post.json["metadata"]["name"]) == ("POST", PODS, NAME)
    assert (patch.method, patch.path) == ("PATCH", f"{PODS}/{NAME}/status")
    assert patch.json == {
        "metadata": {"uid": "uid-1"},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "This pod asks an autoscaler for a node; no scheduler places it.",
                    "lastTransitionTime": "2026-11-21T08:00:00Z",
                }
            ]
        },
    }
    outcome, server = await run(stored(), deed="withdraw")
    assert outcome == "done"
    (delete,) = server.seen
    assert (delete.method, delete.path) == ("DELETE", f"{PODS}/{NAME}")
    assert (delete.json["gracePeriodSeconds"], delete.json["preconditions"]) == (0, {"uid": "uid-1"})


async def test_a_finalizer_keeps_the_pod() -> None:
    """Autoscalers would go on counting it: it gets a condition that they do not look for."""
    kept = stored(deletionTimestamp="t", finalizers=["example.com/kept"])
    outcome, server = await run(kept, kept, deed="withdraw")
    assert outcome == "done"
    delete, patch = server.seen
    assert (delete.method, patch.method, patch.path) == ("DELETE", "PATCH", f"{PODS}/{NAME}/status")
    assert patch.json["metadata"] == {"uid": "uid-1"}
    (condition,) = patch.json["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulerError")
    assert (await run(kept, refuse(503), deed="withdraw"))[0] == "open"
    assert (await run(kept, GONE, deed="withdraw"))[0] == "done"


@pytest.mark.parametrize(
    ("script", "want", "methods"),
    [
        pytest.param([THERE, stored(), stored()], "done", "POST GET PATCH", id="an earlier try has created it"),
        pytest.param([THERE, stored(labels={})], "open", "POST GET", id="somebody else's pod"),
        pytest.param([THERE, stored(deletionTimestamp="t")], "open", "POST GET", id="it is being deleted"),
        pytest.param([reset], "open", "POST", id="no answer"),
        pytest.param([answer("<html/>")], "open", "POST", id="a proxy's answer"),
        pytest.param([answer("<html/>", status=403)], "open", "POST", id="a proxy's refusal"),
        pytest.param([refuse(500)], "open", "POST", id="an error of the server"),
        pytest.param([refuse(429)], "open", "POST", id="too many requests"),
        pytest.param([NO_NAMESPACE], "declined", "POST", id="no namespace"),
        pytest.param([QUOTA], "declined", "POST", id="a quota"),
        pytest.param([refuse(422, "Invalid", "denied by a policy")], "declined", "POST", id="a policy"),
        pytest.param([stored(), refuse(403, "Forbidden", "no")], "declined", "POST PATCH", id="no right to the status"),
        pytest.param([stored(), refuse(409, "Conflict")], "open", "POST PATCH", id="a conflict"),
    ],
)
async def test_what_may_go_wrong_when_asking(script: list[Answer], want: str, methods: str) -> None:
    """A refusal for good is declined; after anything else the same call finds out more, and makes no second pod."""
    outcome, server = await run(*script, deed="ask")
    assert outcome == want
    assert " ".join(request.method for request in server.seen) == methods


@pytest.mark.parametrize(
    ("script", "uid", "want", "methods"),
    [
        pytest.param([GONE], "uid-1", "done", "DELETE", id="it is gone"),
        pytest.param([OTHER_UID], "uid-1", "done", "DELETE", id="another pod has the name"),
        pytest.param([stored(), stored()], "", "done", "GET DELETE", id="its uid is not known"),
        pytest.param([GONE], "", "done", "GET", id="it was never created"),
        pytest.param([reset], "uid-1", "open", "DELETE", id="no answer"),
        pytest.param([refuse(403, "Forbidden", "no")], "uid-1", "open", "DELETE", id="no right"),
        pytest.param([refuse(503)], "uid-1", "open", "DELETE", id="an error of the server"),
    ],
)
async def test_what_may_go_wrong_when_withdrawing(script: list[Answer], uid: str, want: str, methods: str) -> None:
    """A placeholder that is gone is withdrawn; an answer that is missing leaves it open."""
    outcome, server = await run(*script, deed="withdraw", uid=uid)
    assert outcome == want
    assert " ".join(request.method for request in server.seen) == methods


@pytest.mark.parametrize("deed", ["ask", "withdraw"])
async def test_nothing_is_sent_without_the_lease(deed: str) -> None:
    """A replica that may not write neither asks nor deletes."""
    outcome, server = await run(deed=deed, may_send=False)
    assert outcome == "open"
    assert not server.seen
