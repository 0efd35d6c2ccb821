"""A victim gets the reason in its status, then it is deleted; another pod of its name is not."""

from collections.abc import Callable
from typing import Any, cast

import anyio
import attrs
import pytest

from neuron_scheduler.kube.http.client import Response
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.writes.evictor import Eviction, Evictor
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.errors import FencedError
from tests.support.patience import PATIENCE
from tests.support.scripted_server import Answer, Scripted, answer, hang, refuse, reset, scripted

VICTIM = Pod(uid="u1", namespace="d", name="v", observed_generation=4)
DONE = answer({"kind": "Pod", "apiVersion": "v1"})
GONE = refuse(404, "NotFound", kind="pods", name="v")
TOO_BIG = refuse(500, "", "etcdserver: request is too large")
IMMUTABLE = 'Pod "v" is invalid: metadata.uid: Invalid value: "u1": field is immutable'
OTHER_UID = "Precondition failed: UID in precondition: u1, UID in object meta: u2"


async def ended(evictor: Evictor, pauses: list[float] | None = None) -> bool:
    """Evict the pod without a pause; return whether it was."""
    eviction = Eviction(VICTIM, "my-scheduler", lambda: True)
    while pause := await evictor.proceed(eviction):
        assert eviction.evicted is None
        if pauses is not None:
            pauses.append(pause)
    assert eviction.evicted is not None
    return eviction.evicted


async def evicted(*script: Answer, may_bind: bool = True) -> tuple[bool, Scripted]:
    """Evict the pod against a script; return the result and the server with its requests."""
    async with scripted(*script) as (server, client):
        evictor = Evictor(
            client=client,
            may_bind=lambda: may_bind,
            timeout=4.0,
            on_retry=lambda _write: None,
            random=lambda: 0.0,
            wall_clock=lambda: 1_795_248_000.5,
        )
        return await ended(evictor), server


async def test_the_requests() -> None:
    """The condition says why, in kube-scheduler's words; the DELETE leaves the grace period to the pod."""
    done, server = await evicted(DONE, DONE)
    assert done
    patch, delete = server.seen
    assert (patch.method, patch.path) == ("PATCH", "/api/v1/namespaces/d/pods/v/status")
    assert patch.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert patch.json == {
        "metadata": {"uid": "u1"},
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": "my-scheduler: preempting to accommodate a higher priority pod",
                    "lastTransitionTime": "2026-11-21T08:00:00Z",
                    "observedGeneration": 4,
                }
            ]
        },
    }
    assert (delete.method, delete.path) == ("DELETE", "/api/v1/namespaces/d/pods/v")
    assert delete.json == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}}


@pytest.mark.parametrize(
    ("script", "want", "requests"),
    [
        pytest.param([GONE], True, 1, id="gone before the condition"),
        pytest.param([DONE, GONE], True, 2, id="gone before the deletion"),
        pytest.param([refuse(409, "Conflict", OTHER_UID)], True, 1, id="another pod of that name"),
        pytest.param([DONE, refuse(409, "Conflict", OTHER_UID)], True, 2, id="made anew in between"),
        pytest.param([refuse(409, "Conflict"), refuse(500), DONE, refuse(503), DONE], True, 5, id="tried again"),
        pytest.param([reset, DONE, reset, DONE], True, 4, id="a broken connection"),
        pytest.param([refuse(500)] * 4, False, 4, id="four tries and no more; nothing is deleted"),
        pytest.param([DONE, *[refuse(503)] * 4], False, 5, id="four tries to delete"),
        pytest.param([DONE, *[TOO_BIG] * 4], False, 5, id="nothing was deleted that is too large to be changed"),
        pytest.param([refuse(403)], False, 1, id="not allowed"),
        pytest.param([refuse(422, "Invalid", IMMUTABLE)], True, 1, id="another pod, as the real server says it"),
        pytest.param([TOO_BIG, DONE], True, 2, id="too large for a condition, but not for its end"),
        pytest.param(
            [answer("<html/>", status=404), DONE, answer("<html/>", status=502), DONE], True, 4, id="a proxy's pages"
        ),
    ],
)
async def test_what_may_go_wrong(script: list[Answer], want: bool, requests: int) -> None:
    """A pod that is gone needs nothing more; temporary errors are tried again; other errors end the eviction."""
    done, server = await evicted(*script)
    assert (done, len(server.seen)) == (want, requests)


@pytest.mark.parametrize(
    ("answered", "want"),
    [
        pytest.param(refuse(422, "Invalid", "the object is invalid"), True, id="invalid"),
        pytest.param(refuse(403, "Forbidden", 'admission webhook "w" denied the request: kept'), True, id="webhook"),
        pytest.param(refuse(403, "Forbidden", "ValidatingAdmissionPolicy 'p' denied request: kept"), True, id="policy"),
        pytest.param(refuse(403, "Forbidden", 'User "us" cannot delete resource "pods"'), False, id="no right"),
        pytest.param(refuse(401, "Unauthorized", "Unauthorized"), False, id="an old token"),
    ],
)
async def test_a_refusal_of_the_pod_and_one_of_us(answered: Answer, want: bool) -> None:
    """Another pod may leave in place of one that a policy protects; without the right, none may."""
    async with scripted(DONE, answered) as (_, client):
        evictor = Evictor(client=client, may_bind=lambda: True, timeout=4.0, on_retry=lambda _write: None)
        eviction = Eviction(VICTIM, "my-scheduler", lambda: True)
        assert await evictor.proceed(eviction) == 0.0
        assert (eviction.evicted, eviction.refused) == (False, want)


async def test_a_busy_server_is_given_the_time_it_asks_for() -> None:
    """Retry-After counts where it is longer than our own pause, up to 15 s."""
    pauses: list[float] = []
    script = [refuse(429, headers={"Retry-After": after}) for after in ("2", "0", "3600")]
    async with scripted(*script, DONE, DONE) as (_, client):
        evictor = Evictor(
            client=client, may_bind=lambda: True, timeout=4.0, on_retry=lambda _write: None, random=lambda: 0.0
        )
        assert await ended(evictor, pauses)
    assert pauses == [2.0, 0.05, 15.0]


async def test_a_short_timeout_bounds_each_request() -> None:
    """A request that is not answered within the evictor's timeout is sent again."""
    async with scripted(hang, DONE, hang, DONE, impatient=True) as (server, client):
        evictor = Evictor(
            client=client, may_bind=lambda: True, timeout=0.25, on_retry=lambda _write: None, random=lambda: 0.0
        )
        with anyio.fail_after(PATIENCE):
            assert await ended(evictor)
    assert set(server.limits) == {0.25}
    assert [request.method for request in server.seen] == ["PATCH", "PATCH", "DELETE", "DELETE"]


async def test_nothing_is_sent_without_the_lease() -> None:
    """A replica that may not write does not delete either."""
    done, server = await evicted(may_bind=False)
    assert not done
    assert not server.seen


@attrs.define(eq=False)
class LosesTheLease:
    """Stands in for the client: the Lease is lost while the last of so many requests waits for a connection."""

    left: int
    sent: list[str] = attrs.field(factory=list)

    def may_bind(self) -> bool:
        return self.left > 0

    async def request(
        self, method: str, path: str, *, permit: Callable[[], bool] | None = None, pool: Pool = Pool.API, **_: Any
    ) -> Response:
        """Wait for a connection, and send only what is permitted then."""
        assert path
        self.left -= 1
        if permit is not None and pool is Pool.BIND and not permit():
            raise FencedError("held back")
        self.sent.append(method)
        return Response(200, b'{"kind":"Pod","apiVersion":"v1"}')


@pytest.mark.parametrize(("requests", "sent"), [(1, []), (2, ["PATCH"])])
async def test_permission_is_asked_with_the_connection_in_hand(requests: int, sent: list[str]) -> None:
    """If the Lease is lost while a request waits for its connection, neither patch nor deletion is sent."""
    client = LosesTheLease(requests)
    evictor = Evictor(client=cast(Any, client), may_bind=client.may_bind, timeout=4.0, on_retry=lambda _write: None)
    assert not await ended(evictor)
    assert client.sent == sent


@pytest.mark.parametrize("sent", [[], ["PATCH"]])
async def test_a_pod_that_need_not_leave_any_more_is_not_deleted(sent: list[str]) -> None:
    """It is asked with the connection in hand: before the reason is written, and again before the deletion."""
    client = LosesTheLease(9)
    evictor = Evictor(client=cast(Any, client), may_bind=client.may_bind, timeout=4.0, on_retry=lambda _write: None)
    eviction = Eviction(VICTIM, "my-scheduler", lambda: len(client.sent) < len(sent))
    assert not await evictor.proceed(eviction)
    assert client.sent == sent
    assert (eviction.evicted, eviction.needless, eviction.in_doubt) == (False, True, False)


async def test_a_deletion_is_asked_about_before_each_try() -> None:
    """The first one had no answer, which stays in doubt."""
    async with scripted(DONE, reset) as (server, client):
        evictor = Evictor(client=client, may_bind=lambda: True, timeout=4.0, on_retry=lambda _write: None)
        eviction = Eviction(VICTIM, "my-scheduler", lambda: len(server.seen) < 2)
        assert await evictor.proceed(eviction)
        assert not await evictor.proceed(eviction)
    assert [request.method for request in server.seen] == ["PATCH", "DELETE"]
    assert (eviction.evicted, eviction.needless, eviction.in_doubt) == (False, True, True)


@pytest.mark.parametrize(("script", "gone"), [([GONE], True), ([DONE, GONE], True), ([DONE, reset, GONE], False)])
async def test_a_pod_that_is_gone_may_have_gone_by_itself(script: list[Answer], gone: bool) -> None:
    """Unless an earlier try may have deleted it."""
    async with scripted(*script) as (_, client):
        eviction = Eviction(VICTIM, "my-scheduler", lambda: True)
        evictor = Evictor(client=client, may_bind=lambda: True, timeout=4.0, on_retry=lambda _write: None)
        while await evictor.proceed(eviction):
            pass
    assert (eviction.evicted, eviction.gone) == (True, gone)
