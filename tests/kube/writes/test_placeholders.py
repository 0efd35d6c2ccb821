"""A placeholder is created once, gets its one condition, and is deleted by its uid."""

from typing import Any

import pytest

from neuron_scheduler.kube.writes.machine_order import Asked, Declined, Unsettled, Withdrawn
from neuron_scheduler.kube.writes.placeholders import Placeholders
from neuron_scheduler.model.selectors import NodeSelectorTerm
from tests.kube.writes.machine_orders import NAME, order, requests_of
from tests.support.builders import pod
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


async def run(*script: Answer, deed: str, uid: str = "uid-1", may_send: bool = True) -> tuple[Any, Scripted]:
    """Ask for a machine, or withdraw it, against a script; return the outcome and the server with its requests."""
    async with scripted(*script) as (server, client):
        requests = requests_of(client, may_send=may_send)
        placeholders = Placeholders(requests=requests, wall_clock=lambda: 1_795_248_000.5)
        outcome = await (placeholders.ask(order()) if deed == "ask" else placeholders.withdraw(NAME, uid))
        return outcome, server


async def test_the_requests() -> None:
    """The pod, then its condition and nothing else in its status; the deletion has the uid and no grace."""
    outcome, server = await run(stored(), stored(), deed="ask")
    assert outcome == Asked("uid-1")
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
    assert outcome == Withdrawn()
    (delete,) = server.seen
    assert (delete.method, delete.path) == ("DELETE", f"{PODS}/{NAME}")
    assert (delete.json["gracePeriodSeconds"], delete.json["preconditions"]) == (0, {"uid": "uid-1"})


async def test_a_finalizer_keeps_the_pod() -> None:
    """Autoscalers would go on counting it: it gets a condition that they do not look for."""
    kept = stored(deletionTimestamp="t", finalizers=["example.com/kept"])
    outcome, server = await run(kept, kept, deed="withdraw")
    assert outcome == Withdrawn()
    delete, patch = server.seen
    assert (delete.method, patch.method, patch.path) == ("DELETE", "PATCH", f"{PODS}/{NAME}/status")
    assert patch.json["metadata"] == {"uid": "uid-1"}
    (condition,) = patch.json["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulerError")
    assert isinstance((await run(kept, refuse(503), deed="withdraw"))[0], Unsettled)
    assert (await run(kept, GONE, deed="withdraw"))[0] == Withdrawn()


@pytest.mark.parametrize(
    ("script", "kind", "methods"),
    [
        pytest.param([THERE, stored(), stored()], Asked, "POST GET PATCH", id="an earlier try has created it"),
        pytest.param([THERE, stored(labels={})], Unsettled, "POST GET", id="somebody else's pod"),
        pytest.param([THERE, stored(deletionTimestamp="t")], Unsettled, "POST GET", id="it is being deleted"),
        pytest.param([reset], Unsettled, "POST", id="no answer"),
        pytest.param([answer("<html/>")], Unsettled, "POST", id="a proxy's answer"),
        pytest.param([answer("<html/>", status=403)], Unsettled, "POST", id="a proxy's refusal"),
        pytest.param([refuse(500)], Unsettled, "POST", id="an error of the server"),
        pytest.param([refuse(429)], Unsettled, "POST", id="too many requests"),
        pytest.param([NO_NAMESPACE], Declined, "POST", id="no namespace"),
        pytest.param([QUOTA], Declined, "POST", id="a quota"),
        pytest.param([refuse(422, "Invalid", "denied by a policy")], Declined, "POST", id="a policy"),
        pytest.param([stored(), refuse(403, "Forbidden", "no")], Declined, "POST PATCH", id="no right to the status"),
        pytest.param([stored(), refuse(409, "Conflict")], Unsettled, "POST PATCH", id="a conflict"),
    ],
)
async def test_what_may_go_wrong_when_asking(script: list[Answer], kind: type, methods: str) -> None:
    """A refusal for good is declined; after anything else the same call finds out more, and makes no second pod."""
    outcome, server = await run(*script, deed="ask")
    assert isinstance(outcome, kind), outcome
    assert " ".join(request.method for request in server.seen) == methods


@pytest.mark.parametrize(
    ("script", "uid", "kind", "methods"),
    [
        pytest.param([GONE], "uid-1", Withdrawn, "DELETE", id="it is gone"),
        pytest.param([OTHER_UID], "uid-1", Withdrawn, "DELETE", id="another pod has the name"),
        pytest.param([stored(), stored()], "", Withdrawn, "GET DELETE", id="its uid is not known"),
        pytest.param([GONE], "", Withdrawn, "GET", id="it was never created"),
        pytest.param([reset], "uid-1", Unsettled, "DELETE", id="no answer"),
        pytest.param([refuse(403, "Forbidden", "no")], "uid-1", Declined, "DELETE", id="no right"),
        pytest.param([refuse(503)], "uid-1", Unsettled, "DELETE", id="an error of the server"),
    ],
)
async def test_what_may_go_wrong_when_withdrawing(script: list[Answer], uid: str, kind: type, methods: str) -> None:
    """A placeholder that is gone is withdrawn; an answer that is missing leaves it open."""
    outcome, server = await run(*script, deed="withdraw", uid=uid)
    assert isinstance(outcome, kind), outcome
    assert " ".join(request.method for request in server.seen) == methods


@pytest.mark.parametrize("deed", ["ask", "withdraw"])
async def test_nothing_is_sent_without_the_lease(deed: str) -> None:
    """A replica that may not write neither asks nor deletes."""
    outcome, server = await run(deed=deed, may_send=False)
    assert isinstance(outcome, Unsettled)
    assert not server.seen


async def test_a_pod_that_no_new_node_matches() -> None:
    """Nothing is sent for it."""
    async with scripted() as (server, client):
        like = pod("p", required_terms=(NodeSelectorTerm(),))
        outcome = await Placeholders(requests=requests_of(client)).ask(order(like=like))
    assert isinstance(outcome, Declined)
    assert not server.seen
