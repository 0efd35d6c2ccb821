"""
What can go wrong with a request between a scheduler and the store, beside what the network does to bytes.

Each kind is a fault after which a correct scheduler can keep its promises; the table says why. An API server tells the
truth: a Status of 404 or 409 is never made up, because nothing could be believed then. What a proxy says is a page, and
no page is a Status; none comes with status 200, because TLS reaches the API server (decision 21).
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final

import attrs
from aiohttp import web
from aiohttp.typedefs import Handler

from sandbox.apiserver.resources import PODS
from sandbox.apiserver.rest import json_response
from sandbox.apiserver.status import StatusError, conflict, expired
from sandbox.apiserver.watch import Delivery
from tests.simulation.clock import CLOCK
from tests.simulation.scenario import Fault, FaultWindows
from tests.simulation.transport import Transport
from tests.simulation.watch_cache import FAULTY, Deliveries

LATE: Final = "request late"
BEFORE: Final[Mapping[str, str]] = {
    "request lost": "the connection is reset before the server has read the request: nothing was done",
    "request silent": "a half-open connection: a client has to give up by its own clock",
    LATE: "a proxy or a busy server has all of it: it is carried out even if its client is gone meanwhile",
    "proxy answers": "a page of HTML instead of an answer says nothing about the request",
    "server refuses": "a true Status for a request that was not carried out: overload, no etcd, no rights yet",
}
"""Kinds that strike before a request is carried out; mostly it never is."""
AFTER: Final[Mapping[str, str]] = {
    "answer lost": "the connection is reset after the commit: whoever sent it has to ask what became of it",
    "answer silent": "the same, without an end of the connection",
    "answer late": "the answer of a slow server may come after the client has given up",
    "proxy answers after": "a proxy that gives up waiting says 502 or 504, although the request was carried out",
    "server errs after": "500 and 504 of the server itself say that the outcome is unknown: etcd may have committed",
    "answer cut": "fewer bytes than announced: a client can count",
    "answer empty": "status 200 without a body: no object is empty",
    "sent twice": "a proxy that got no answer sends a request again; the client sees one of the two answers",
    "sent again later": "a proxy's copy of a request that succeeded comes seconds later; preconditions refuse it",
}
"""Kinds that strike after a request was carried out."""
WATCH: Final[Mapping[str, str]] = {
    "watch closed": "a server or proxy may end a watch at any time",
    "watch silent": "a half-open connection, or a server that forgets a watcher, after the headers were sent",
    "watch late": "a watch is served when the server has time for it; events keep their order",
    "watch refused": "an ERROR event: 410 when the version is too old for the cache, 500 and 429 from the server",
}
"""Kinds that strike an open watch, each time when it has an event to send."""
WEBHOOK: Final = "webhook fails"
TOO_LARGE: Final = "too large"
VERSION: Final = "version broken"
PAUSE: Final = "asked to wait"
HARD: Final[Mapping[str, str]] = {
    WEBHOOK: "a webhook or a quota fails for the pods of one namespace, for ever; all others must not feel it",
    TOO_LARGE: "etcd cannot store the pods of one namespace with anything more; that is definite for this try",
    VERSION: "no watch from one version ever works again, as after a damage of the server's cache; a list helps",
    PAUSE: "a Retry-After of hours, from a proxy or a server that is misconfigured for a minute",
}
"""Kinds that hard cases use; the first three last for ever."""
LASTING: Final = frozenset({WEBHOOK, TOO_LARGE})

PAGE_STATUS: Final = (401, 403, 404, 409, 429, 502, 503, 504)
REFUSALS: Final[Mapping[str, StatusError]] = {
    "401": StatusError(401, "Unauthorized", "Unauthorized"),
    "403": StatusError(403, "Forbidden", "forbidden: not yet ready to handle request"),
    "403 rights": StatusError(
        403, "Forbidden", 'forbidden: User "neuron-scheduler" cannot do this at the cluster scope'
    ),
    "429": StatusError(429, "TooManyRequests", "too many requests, please try again later", retry_after=1),
    "500": StatusError(500, "InternalError", "Internal error occurred: etcdserver: leader changed"),
    "503": StatusError(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    "504": StatusError(504, "Timeout", "Timeout: request did not complete within the allotted timeout"),
}
FOR_EVER: Final[Mapping[str, StatusError]] = {
    WEBHOOK: StatusError(500, "InternalError", "Internal error occurred: failed calling webhook: no endpoints"),
    TOO_LARGE: StatusError(500, "", "etcdserver: request is too large"),
}
ETCD: Final = "etcdserver: request timed out"
REPEATABLE: Final = frozenset({"bindings", "lease", "deletes", "claims"})
"""Writes with preconditions. A late copy of another one would be a new write, which no client can prevent."""
GIVEN_UP: Final = 90.0
"""Seconds after which a connection that is silent ends after all; every client has given up by then."""


@attrs.define(eq=False)
class HttpFaults:
    """
    The faults of one server's requests; `answered` is its middleware.

    Attributes:
        quiet_at: virtual seconds at which all that is late or silent comes to its end, but for silent watches.
    """

    server: str
    windows: FaultWindows
    dice: Random
    quiet_at: float
    _broken: set[tuple[str, str]] = attrs.field(factory=set, init=False)  # tables, and versions of watches
    _copies: set[asyncio.Task[None]] = attrs.field(factory=set, init=False)  # referred to, so that they end

    @web.middleware
    async def answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, or not."""
        places = (self.server, traffic_of(request), request.method)
        if (instead := self._hard(request, places)) is not None:
            return instead
        for kind in BEFORE:
            if fault := self.windows.strikes(kind, *places):
                answer = await self._instead(kind, fault, request)
                if answer is not None:
                    return answer
        if is_watch(request):
            FAULTY.set(partial(self._events, request.query.get("resourceVersion", "")))
            return await handler(request)
        answer = await handler(request)
        for kind in AFTER:
            if fault := self.windows.strikes(kind, *places):
                return await self._spoilt(kind, fault, request, answer, handler)
        return answer

    def _hard(self, request: web.Request, places: tuple[str, ...]) -> web.Response | None:
        """Return what a hard case answers; None if it concerns another request."""
        for kind, error in FOR_EVER.items():
            if "/pods/" in request.path and self.windows.strikes(kind, *places, detail=request.path.split("/")[4]):
                return refusal(error)
        if fault := self.windows.strikes(PAUSE, *places):
            return page(self.dice.choice((429, 503)), retry_after=f"{fault.seconds:.0f}")
        return None

    async def _instead(self, kind: str, fault: Fault, request: web.Request) -> web.StreamResponse | None:
        """Return what is answered although nothing was done; None if the request goes on."""
        match kind:
            case "request late":
                await request.read()  # now: what its client has not sent when it goes never comes
                await self._wait(fault.seconds)
                return None
            case "request silent":
                await self._wait(GIVEN_UP)
            case "proxy answers":
                return page(int(fault.detail or self.dice.choice(PAGE_STATUS)))
            case "server refuses":
                return refusal(self._refused(request, fault, list(REFUSALS)))
        return cut_off(request)

    async def _spoilt(
        self, kind: str, fault: Fault, request: web.Request, answer: web.StreamResponse, handler: Handler
    ) -> web.StreamResponse:
        """Return what is answered after the request was carried out."""
        match kind:
            case "answer silent":
                await self._wait(GIVEN_UP)
                return cut_off(request)
            case "answer lost":
                return cut_off(request)
            case "answer late":
                await self._wait(fault.seconds)
            case "answer cut":
                return await _truncated(request, answer)
            case "sent twice":
                answer = self.dice.choice([answer, await handler(request)])
            case "sent again later":
                if answer.status < 300 and traffic_of(request) in REPEATABLE:
                    self._copies.add(asyncio.create_task(self._again(request, handler, fault.seconds)))
            case "answer empty" if answer.status >= 300:
                pass  # nobody makes a success of a refusal
            case _:
                return self._replaced(kind, fault, request)
        return answer

    def _refused(self, request: web.Request, fault: Fault, codes: list[str]) -> StatusError:
        """Return a Status; every error of etcd in a Binding is a 409, also when the outcome is unknown."""
        bindings = traffic_of(request) == "bindings"
        code = fault.detail or self.dice.choice([*codes, *["409"] * bindings])
        return (
            conflict(PODS, request.path.split("/")[-2], ETCD, subresource="binding")
            if code == "409"
            else REFUSALS[code]
        )

    def _replaced(self, kind: str, fault: Fault, request: web.Request) -> web.Response:
        """Return what a client gets in place of the answer."""
        match kind:
            case "proxy answers after":
                return page(int(fault.detail or self.dice.choice((502, 503, 504, 429, 401, 404))))
            case "server errs after":
                return refusal(self._refused(request, fault, ["500", "504"]))
            case _:
                return web.Response(status=200)

    async def _wait(self, seconds: float) -> None:
        """Wait for so many seconds, or until the quiet."""
        await asyncio.sleep(max(0.0, min(seconds, self.quiet_at - CLOCK.now)))

    async def _again(self, request: web.Request, handler: Handler, seconds: float) -> None:
        await self._wait(seconds)
        await handler(request)

    async def _events(self, asked: str, table: str, events: Deliveries) -> Deliveries:
        """Yield the events of a watch, as far as they come through."""
        async for event in events:
            places = (self.server, "watches", table)
            if fault := self.windows.strikes("watch late", *places):
                await self._wait(fault.seconds)
            if self.windows.strikes("watch silent", *places):
                await asyncio.sleep(GIVEN_UP)  # also after the last fault: the promise holds for such a watch
                return
            if self.windows.strikes(VERSION, *places):
                self._broken.add((table, asked))
            if (table, asked) in self._broken:
                yield _error(event, "500")
                return
            if self.windows.strikes("watch closed", *places):
                return
            if fault := self.windows.strikes("watch refused", *places):
                yield _error(event, fault.detail or self.dice.choice(("410", "429", "500")))
                return
            yield event


def refusal(error: StatusError) -> web.Response:
    """Return a Status of failure as the server sends it."""
    response = json_response(error.body(), status=error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def page(status: int, *, retry_after: str = "") -> web.Response:
    """Return a page of HTML."""
    retry_after = retry_after or ("1" if status == 429 else "")
    headers = {"Retry-After": retry_after} if retry_after else None
    text = f"<html><head><title>{status}</title></head><body>proxy</body></html>"
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)


def cut_off(request: web.Request) -> web.Response:
    """Reset the connection; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _error(event: Delivery, code: str) -> Delivery:
    version = int(event.object["metadata"].get("resourceVersion") or 0)
    return Delivery("ERROR", (expired(version, version + 1) if code == "410" else REFUSALS[code]).body())


async def _truncated(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """Announce the whole body, send a part of it, and reset."""
    body = _body(answer)
    partial = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
    partial.content_length = len(body)
    await partial.prepare(request)
    await partial.write(body[: len(body) * 2 // 3])
    await asyncio.sleep(0.01)
    cut_off(request)
    return partial


def _body(answer: web.StreamResponse) -> bytes:
    body = answer.body if isinstance(answer, web.Response) else b""
    return body if isinstance(body, bytes) else b"{}"


def client_of(request: web.Request) -> str:
    """Return the name of the process that has sent a request; empty if it has hung up."""
    transport = request.transport
    return transport._connection.client_name if isinstance(transport, Transport) else ""


def is_watch(request: web.Request) -> bool:
    """Return whether a request opens a watch."""
    return request.query.get("watch", "") in {"1", "true"}


def traffic_of(request: web.Request) -> str:
    """
    Return one of `bindings`, `lease`, `watches`, `claims` (writes of them), `deletes`, `events`, `statuses`, `reviews`,
    `discovery`, `lists`, `gets`, `writes`.

    Everything about the Lease is `lease`, its watch too.
    """
    path, method = request.path, request.method
    last = path.rpartition("/")[2]
    by_path = {
        "bindings": last == "binding",
        "lease": "/leases" in path,
        "watches": is_watch(request),
        "claims": "/resourceclaims/" in path and method != "GET",
        "deletes": method == "DELETE",
        "events": "/events" in path,
        "statuses": last == "status",
        "reviews": last.endswith("reviews"),
        "discovery": path.startswith("/apis/") and path.count("/") < 4,
        "lists": method == "GET" and path.count("/") in {3, 4},
        "gets": method == "GET",
    }
    return next((name for name, holds in by_path.items() if holds), "writes")
