"""A Binding is committed once, and its outcome is known or in doubt."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
import yaml
from aiohttp import web

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.status import LONGEST_PAUSE
from neuron_scheduler.kube.writes.binder import (
    LAG,
    NOT_THE_HOLDER,
    QUIET,
    TOO_LARGE,
    Binder,
    BindOutcome,
    Bound,
    Fenced,
    Gone,
    InDoubt,
    Refused,
    encode_binding,
    too_many,
)
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.patience import PATIENCE
from tests.support.scripted_server import Answer, Scripted, answer, hang, refuse, reset, scripted

MANIFEST = Path(__file__).parents[3] / "manifests" / "base" / "admission_bindings.yaml"
REFUSAL = "this scheduler does not hold the Lease kube-system/my-scheduler"
ERRORS = UnexpectedErrors(Metrics().count_unexpected_error)
POD = Pod(uid="u1", namespace="d", name="p", annotations_size=10)
SENT = {"AWS_NEURON_IDS": "0,1", "NEURON_ALLOCATED": "false", "neuron-scheduler/leader": "me"}
CREATED = answer({"kind": "Status", "apiVersion": "v1", "status": "Success"}, status=201)
GONE = refuse(404, "NotFound", kind="pods", name="p")
HTML = "<html><title>404</title></html>"
TAKEN = refuse(409, "Conflict", 'pod p is already assigned to node "n1"', kind="pods/binding")


def stands(
    *, uid: str = "u1", node: str = "", annotations: Any = None, terminating: bool = False, gates: Any = None
) -> Answer:
    """Answer with the pod."""
    metadata = {"name": "p", "uid": uid, "annotations": annotations}
    if terminating:
        metadata["deletionTimestamp"] = "2026-11-21T08:00:00Z"
    return answer(
        {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"nodeName": node, "schedulingGates": gates}}
    )


OURS = stands(node="n1", annotations={**SENT, "NEURON_ALLOCATED": "true", "other": "x"})
DEEP = answer(
    json.dumps(
        {
            "kind": "Pod",
            "metadata": {"name": "p", "uid": "u1", "annotations": SENT, "managedFields": "HERE"},
            "spec": {"nodeName": "n1"},
        }
    ).replace('"HERE"', '{"f:a":' * 5000 + "{}" + "}" * 5000)
)


async def bound(
    *script: Answer, may_bind: Callable[[], bool] = lambda: True, lost: BindOutcome | None = None
) -> tuple[BindOutcome | InDoubt, Binder, Scripted]:
    """Bind the pod, and try again as long as the script has an answer."""
    async with scripted(*script, impatient=True) as (server, client):
        binder = Binder(
            client=client,
            may_bind=may_bind,
            random=lambda: 0.0,
            timeout=4.0,
            errors=ERRORS,
            first_pause=0.001,
            most_pause=0.002,
        )
        with anyio.fail_after(PATIENCE):
            tried = await binder.bind(POD, "n1", SENT)
            while isinstance(tried, InDoubt) and server.script:
                assert binder.in_flight == 1
                tried = await binder.try_again(tried.binding, lost)
    assert not server.script
    return tried, binder, server


async def test_one_post() -> None:
    """The Binding carries uid, kind of target and annotations, and one request does it."""
    outcome, binder, server = await bound(CREATED)

    assert Bound() == outcome
    assert binder.is_resolved
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/d/pods/p/binding")
    assert seen.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": "d", "name": "p", "uid": "u1", "annotations": SENT},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert seen.body == encode_binding(POD, "n1", SENT)


ELSEWHERE = Refused(409, 'pod p is already assigned to node "n1"')
OUTCOMES: dict[str, tuple[list[Answer], BindOutcome]] = {
    "the pod is gone": ([GONE], Gone()),
    "a pod of another uid": ([refuse(409, "Conflict", "Precondition failed: UID"), stands(uid="u2")], Gone()),
    "bound by someone else": ([TAKEN, stands(node="n2")], ELSEWHERE),
    "bound there by someone else, with other devices": (
        [TAKEN, stands(node="n1", annotations={"AWS_NEURON_IDS": "4"})],
        ELSEWHERE,
    ),
    "being deleted": ([TAKEN, stands(terminating=True)], ELSEWHERE),
    "still gated": ([TAKEN, stands(gates=[{"name": "g"}])], ELSEWHERE),
    "forbidden": ([refuse(403, "Forbidden", "no")], Refused(403, "no")),
    "the server's admission is not ready": (
        [refuse(403, "Forbidden", "not yet ready to handle request")],
        Refused(403, "not yet ready to handle request"),
    ),
    "bad": ([refuse(400, "BadRequest", "name")], Refused(400, "name")),
    "too many requests, then room": ([refuse(429), CREATED], Bound()),
    "too many requests in the API server's own words, then no": (
        [answer("Too many requests, please try again later.\n", status=429), refuse(403, "Forbidden", "no")],
        Refused(403, "no"),
    ),
    "timeout, and it had not arrived": ([hang, CREATED], Bound()),
    "reset, and it had arrived": ([reset, TAKEN, OURS], Bound()),
    "reset, and it had arrived, at a pod with deep managedFields": ([reset, TAKEN, DEEP], Bound()),
    "500, and it had arrived": ([refuse(500), TAKEN, OURS], Bound()),
    "reset, and the pod is gone since": ([reset, GONE], Gone()),
    "reset, then bound by someone else": ([reset, TAKEN, stands(node="n2")], ELSEWHERE),
    "reset, a refusal settles nothing, then the first one shows": ([reset, refuse(403), TAKEN, OURS], Bound()),
    "a proxy's 429 after the commit": ([answer("<html/>", status=429), refuse(403), TAKEN, OURS], Bound()),
    "a conflict that is over when it is looked at": ([TAKEN, stands(), CREATED], Bound()),
    "a conflict that cannot be looked at": ([TAKEN, refuse(500), TAKEN, OURS], Bound()),
    "a conflict, and the pod is gone when it is looked at": ([TAKEN, GONE], Gone()),
}


@pytest.mark.parametrize("sentence", OUTCOMES)
async def test_outcomes(sentence: str) -> None:
    """Every answer, and every lack of one, leads to the one definite outcome."""
    script, want = OUTCOMES[sentence]
    outcome, binder, server = await bound(*script)

    assert want == outcome
    assert (binder.in_flight, binder.in_doubt, binder.is_resolved) == (0, 0, True)
    posts = [seen.body for seen in server.seen if seen.method == "POST"]
    assert len(set(posts)) == 1


LOST = Refused(0, "node not found")


@pytest.mark.parametrize(
    ("script", "want"),
    [
        ([OURS], Bound()),
        ([stands(node="n2")], Refused(409, "the chosen node is gone, or another machine")),
        ([GONE], Gone()),
        ([stands()], LOST),
        ([refuse(500), reset, answer(HTML), stands()], LOST),
    ],
)
async def test_a_binding_without_its_node_is_looked_up(script: list[Answer], want: BindOutcome) -> None:
    """Nothing is sent, and the pod says what became of the tries before."""
    outcome, binder, server = await bound(reset, *script, lost=LOST)

    assert want == outcome
    assert binder.is_resolved
    assert [seen.method for seen in server.seen] == ["POST", *["GET"] * len(script)]


async def test_fenced_before_the_first_try() -> None:
    """Nothing is sent by a replica that may not bind."""
    outcome, binder, server = await bound(may_bind=lambda: False)

    assert Fenced() == outcome
    assert not server.seen
    assert binder.is_resolved


async def test_fenced_at_the_last_moment() -> None:
    """Permission that ends while the connection is made counts."""
    answers = iter([True, False])
    outcome, _, server = await bound(may_bind=lambda: next(answers))

    assert Fenced() == outcome
    assert not server.seen


async def test_fenced_with_an_unknown_outcome() -> None:
    """What was sent stays in doubt, so the Lease must not be released."""
    answers = iter([True, True, False])
    async with scripted(reset) as (_, client):
        binder = Binder(client=client, may_bind=lambda: next(answers), timeout=4.0, errors=ERRORS)
        tried = await binder.bind(POD, "n1", SENT)
        assert isinstance(tried, InDoubt)
        assert isinstance(await binder.try_again(tried.binding), InDoubt)

    assert (binder.in_flight, binder.in_doubt, binder.is_resolved) == (1, 1, False)


async def test_unreachable_before_anything_was_sent(free_tcp_port: int) -> None:
    """A refused connection has committed nothing."""
    async with Client(connection=Connection(f"http://127.0.0.1:{free_tcp_port}", "a test")) as client:
        answers = iter([True, False])
        binder = Binder(client=client, may_bind=lambda: next(answers), timeout=4.0, errors=ERRORS)
        tried = await binder.bind(POD, "n1", SENT)
        assert isinstance(tried, InDoubt)
        assert binder.is_resolved
        assert await binder.try_again(tried.binding) == Fenced()


@pytest.mark.parametrize("script", [[hang], [TAKEN, hang]], ids=["in mid-bind", "while it is read back"])
async def test_cancelled_on_the_way(script: list[Answer]) -> None:
    """A stop leaves an unknown outcome, which is counted: a write that conflicts with ours may still succeed."""
    async with scripted(*script) as (server, client), anyio.create_task_group() as tasks:
        binder = Binder(client=client, may_bind=lambda: True, timeout=4.0, errors=ERRORS)
        tasks.start_soon(binder.bind, POD, "n1", SENT)
        with anyio.fail_after(PATIENCE):
            while len(server.seen) < len(script):
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert (binder.in_doubt, binder.is_resolved) == (1, False)


async def test_a_busy_server_is_left_alone_as_long_as_it_asks() -> None:
    """429 with Retry-After slows us down, up to a limit."""
    busy = [refuse(429, headers={"Retry-After": seconds}) for seconds in ("3", "9999")]
    async with scripted(*busy) as (_, client):
        binder = Binder(client=client, may_bind=lambda: True, timeout=4.0, first_pause=0.001, errors=ERRORS)
        first = await binder.bind(POD, "n1", SENT)
        assert isinstance(first, InDoubt)
        second = await binder.try_again(first.binding)

    assert isinstance(second, InDoubt)
    assert (first.pause, second.pause) == (3.0, LONGEST_PAUSE)
    assert binder.is_resolved


@pytest.mark.parametrize(("lease", "leads"), [("kube-system/my-scheduler", True), ("", True), ("a/b", False)])
async def test_a_leader_that_the_policy_refuses_is_told_the_cause(
    lease: str, leads: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The message, the log and the count name it: not at once, and not if we do not lead.

    A server may be a moment behind. The log has one line, and another after a quiet minute.
    """
    stale: list[bool] = []
    now, may = [100.0], [True]

    async def refused(request: web.Request) -> web.StreamResponse:
        may[0] = leads
        return await refuse(422, "Invalid", REFUSAL)(request)

    async with scripted(*[refused] * 5) as (_, client):
        binder = Binder(
            client=client,
            may_bind=lambda: may[0],
            timeout=4.0,
            errors=ERRORS,
            lease=lease,
            on_stale=lambda: stale.append(True),
            clock=lambda: now[0],
        )

        async def message(*, after: float = 0.0) -> str:
            now[0] += after
            may[0] = True
            outcome = await binder.bind(POD, "n1", SENT)
            assert isinstance(outcome, Refused)
            return outcome.message

        assert [await message(), await message(after=LAG - 0.1)] == [REFUSAL, REFUSAL]
        later = [await message(after=0.1), await message(after=1.0), await message(after=QUIET + 0.1)]
    if lease and leads:
        assert all("Restart kube-apiserver" in text and lease in text for text in later)
        assert (len(stale), len(caplog.records)) == (3, 2)
    else:
        assert later == [REFUSAL] * 3
        assert (len(stale), len(caplog.records)) == (0, 0)


def test_the_policy_refuses_in_these_words() -> None:
    """The text that the binder looks for is in the manifest."""
    policy = next(yaml.safe_load_all(MANIFEST.read_text()))
    assert policy["spec"]["validations"][0]["message"] == REFUSAL
    assert REFUSAL.startswith(NOT_THE_HOLDER)


FOREIGN: dict[str, list[Answer]] = {
    **{f"a page with {status}": [answer(HTML, status=status)] for status in (401, 404, 409)},
    "a Status without a version": [answer({"kind": "Status", "reason": "NotFound", "code": 404}, status=404)],
    "no path for pods": [refuse(404, "NotFound", "the server could not find the requested resource"), stands()],
    "another pod is gone": [refuse(404, "NotFound", kind="pods", name="q"), stands()],
    "a conflict, and a page when it is looked at": [TAKEN, answer(HTML)],
    "a conflict, and another object when it is looked at": [TAKEN, answer({"kind": "Node", "metadata": {"name": "p"}})],
    "a conflict, and a pod without a uid when it is looked at": [TAKEN, stands(uid="")],
}


@pytest.mark.parametrize("sentence", FOREIGN)
async def test_what_is_not_the_api_servers_answer_leaves_the_outcome_in_doubt(sentence: str) -> None:
    """A page of a proxy with an error status settles nothing: the Binding is sent again."""
    outcome, binder, _ = await bound(*FOREIGN[sentence])
    assert isinstance(outcome, InDoubt)
    assert (binder.in_flight, binder.is_resolved) == (1, False)
    outcome, _, _ = await bound(*FOREIGN[sentence], TAKEN, OURS)
    assert Bound() == outcome


async def test_a_namespace_that_is_gone_is_read_back() -> None:
    """The server looks for the namespace first; a GET shows that the pod does not exist."""
    outcome, _, _ = await bound(refuse(404, "NotFound", kind="namespaces", name="d"), GONE)
    assert Gone() == outcome


TOO_BIG = refuse(
    409, "Conflict", 'Operation cannot be fulfilled on pods/binding "p": etcdserver: request is too large',
    kind="pods/binding", name="p",
)  # fmt: skip


async def test_a_pod_that_cannot_take_annotations_is_refused_until_it_changes() -> None:
    """Etcd refuses the request as a whole, so no try can have succeeded."""
    outcome, binder, server = await bound(TOO_BIG)
    assert outcome == Refused(413, TOO_LARGE, until_changed=True)
    assert (len(server.seen), binder.is_resolved) == (1, True)


async def test_a_pod_that_is_too_large_now_may_be_bound_by_an_earlier_try() -> None:
    """A later refusal does not show the outcome of a try without an answer."""
    outcome, binder, _ = await bound(reset, TOO_BIG)
    assert isinstance(outcome, InDoubt)
    assert "request is too large" in outcome.binding.problem
    assert not binder.is_resolved


async def test_an_exception_that_nobody_expected_is_in_doubt_once_something_was_sent() -> None:
    """Before that it is an error of the pod; in both cases it is reported, and never raised."""
    reported: list[str] = []

    @attrs.define
    class Breaking:
        """A client with a defect."""

        sends: bool

        async def request(self, _method: str, _path: str, *, permit: Callable[[], bool], **_: Any) -> Any:
            """Fail, after the first byte or before."""
            assert not self.sends or permit()
            raise RuntimeError("no idea")

    for sends in (True, False):
        binder = Binder(
            client=Breaking(sends),  # type: ignore[arg-type]  # asked for a Binding only
            may_bind=lambda: True,
            timeout=4.0,
            errors=UnexpectedErrors(reported.append),
        )
        outcome = await binder.bind(POD, "n1", SENT)
        assert binder.is_resolved is not sends
        if sends:
            assert isinstance(outcome, InDoubt)
        else:
            assert outcome == Refused(0, "unexpected error in binding: RuntimeError: no idea")
    assert reported == ["binding", "binding"]


async def test_too_many_annotations() -> None:
    """Those that the pod has already count; nothing is sent."""
    assert not too_many({"a": "x" * ((256 << 10) - 11)}, already=10)
    annotations = {"a": "x" * ((256 << 10) - 10)}
    async with scripted() as (server, client):
        outcome = await Binder(client=client, may_bind=lambda: True, timeout=4.0, errors=ERRORS).bind(
            POD, "n1", annotations
        )

    assert isinstance(outcome, Refused)
    assert "are allowed" in outcome.message
    assert (outcome.status, outcome.until_changed) == (422, True)
    assert not server.seen
