"""An API server that follows a script, one line for each request, and records the requests."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import attrs
import yarl
from aiohttp import web
from multidict import CIMultiDictProxy

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client, Response
from neuron_scheduler.kube.http.credentials import NOBODY, Credentials
from neuron_scheduler.telemetry.errors import ApiTimeoutError
from tests.support.patience import PATIENCE

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@attrs.frozen
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@attrs.define(eq=False)
class Scripted:
    """
    The server's script and the requests so far; a request beyond the script is answered with 599.

    Attributes:
        on_hang: called when a request has arrived that will never be answered.
        limits: the seconds that an impatient client has given each request.
    """

    script: list[Answer]
    seen: list[Seen] = attrs.field(factory=list)
    url: str = ""
    ended: anyio.Event = attrs.field(factory=anyio.Event)
    on_hang: Callable[[], None] = lambda: None
    limits: list[float] = attrs.field(factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer with the next line of the script."""
        query, body = dict(request.query), await request.read()
        self.seen.append(Seen(request.method, request.path, query, request.headers, body))
        if not self.script:
            self.ended.set()
            return web.Response(status=599, text="beyond the script")
        step = self.script.pop(0)
        if step is hang:
            self.on_hang()
        return await step(request)


@attrs.define(eq=False, kw_only=True)
class Impatient(Client):
    """
    A client for which a request's time is over as soon as the server hangs, and never before.

    So a machine that stalls does not decide which request runs out of time.
    """

    script: Scripted

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout: float = 30.0,  # noqa: ASYNC109 - as in the client
        **options: Any,
    ) -> Response:
        """Send a request."""
        self.script.limits.append(timeout)
        with anyio.CancelScope() as scope:
            self.script.on_hang = scope.cancel
            return await super().request(method, path, timeout=PATIENCE, **options)
        raise ApiTimeoutError(f"no answer in time to {method} {path}")


@asynccontextmanager
async def scripted(
    *script: Answer,
    credentials: Credentials = NOBODY,
    proxied: bool = False,
    impatient: bool = False,
    **options: Any,
) -> AsyncIterator[tuple[Scripted, Client]]:
    """Serve the script on a loopback port and yield a client for it; `proxied` makes the server its own proxy."""
    server = Scripted(list(script))
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        connection = Connection(server.url, "a test", credentials, proxy=yarl.URL(server.url) if proxied else None)
        program = partial(Impatient, script=server) if impatient else Client
        async with program(connection=connection, **options) as client:
            yield server, client
    finally:
        await runner.cleanup()


def answer(body: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    """Answer with JSON, or with plain text."""
    text = body if isinstance(body, str) else json.dumps({} if body is None else body)

    async def respond(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return respond


def refuse(
    status: int,
    reason: str = "",
    message: str = "",
    *,
    kind: str = "",
    name: str = "",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Answer with a Status."""
    status_object = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": reason,
        "message": message,
        "details": {"kind": kind, "name": name},
    }
    return answer(status_object, status=status, headers=headers)


async def reset(request: web.Request) -> web.StreamResponse:
    """Cut the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hang(_request: web.Request) -> web.StreamResponse:
    """Never answer."""
    await anyio.sleep_forever()
    raise AssertionError


def listing(*items: Any, version: str = "10", token: str = "") -> Answer:
    return answer({"metadata": {"resourceVersion": version, "continue": token}, "items": list(items)})


def event(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})


def error_event(status: int, message: str = "") -> bytes:
    return event("ERROR", {"kind": "Status", "code": status, "message": message})


def watching(*lines: bytes, then: str = "close") -> Answer:
    """Answer with watch lines, and then `close`, `abort` the connection, or stay `silent`."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        if then == "abort":
            await anyio.sleep(0.01)  # let the lines leave first
            assert request.transport is not None
            request.transport.abort()
        elif then == "silent":
            await anyio.sleep_forever()
        return response

    return respond
