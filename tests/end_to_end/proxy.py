"""
A proxy between scheduler and API server with faults on demand: answers get lost, requests come late or never.

It passes on every request without a fault, credentials and watches included, so the API server sees the scheduler's own
identity. Plain HTTP on loopback, for `--master`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import aiohttp
import anyio
import attrs
from aiohttp import web

from tests.control_plane.server import ControlPlane
from tests.support.patience import PATIENCE

PASSED_ON: Final = ("Authorization", "Content-Type", "Accept")


@attrs.define(eq=False)
class Fault:
    """
    A fault for the matching requests.

    Attributes:
        times: for how many more requests.
        lose_answer: let the request have its effect and cut the connection instead of answering.
        refuse: answer with this status instead of passing the request on, as an API server; 0 passes it on.
        page: answer with this status instead of passing the request on, and a page of HTML, as a proxy; 0 passes it on.
        watch: of a watch only, answer with these bytes and close, or stay silent if there are none.
        hold: pass the request on only after `release`, even if the client has long gone.
        taken: set when the first request has arrived.
        answers: the API server's answers so far.
    """

    matches: Callable[[str, str], bool]
    times: float = 1
    lose_answer: bool = False
    refuse: int = 0
    page: int = 0
    watch: bytes | None = None
    hold: bool = False
    taken: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    answers: list[tuple[int, str]] = attrs.field(factory=list, init=False)
    _released: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _answered: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def release(self) -> None:
        """Pass the held requests on."""
        self._released.set()

    async def answered(self) -> tuple[int, str]:
        """Wait for the API server's first answer to a request with this fault; return its status and text."""
        with anyio.fail_after(PATIENCE):
            await self._answered.wait()
        return self.answers[0]


@attrs.define(eq=False)
class Proxy:
    """
    Passes requests on, unless a fault matches.

    Attributes:
        faults: in order; the first that matches applies.
    """

    url: str
    _upstream: str
    _session: aiohttp.ClientSession
    _late: anyio.abc.TaskGroup
    faults: list[Fault] = attrs.field(factory=list, init=False)

    def add(self, fault: Fault) -> Fault:
        """Add a fault."""
        self.faults.append(fault)
        return fault

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request, with the first fault that matches."""
        body = await request.read()
        for fault in self.faults:
            if fault.watch is not None and "watch" not in request.query:
                continue
            if fault.times and fault.matches(request.method, request.path):
                fault.times -= 1
                fault.taken.set()
                return await self._fail(fault, request, body)
        async with self._send(request, body) as answer:
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            with suppress(aiohttp.ClientConnectionError):  # either side may disconnect in the middle of a watch
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            return response

    async def _fail(self, fault: Fault, request: web.Request, body: bytes) -> web.StreamResponse:
        if fault.refuse:
            status_object = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.refuse}
            return web.json_response(status_object | {"message": "refused"}, status=fault.refuse)
        if fault.page:
            return web.Response(status=fault.page, text="<html>a proxy's page</html>", content_type="text/html")
        if fault.watch is not None:
            return await self._spoil(fault.watch, request)
        done = anyio.Event()

        async def pass_on() -> None:
            if fault.hold:
                await fault._released.wait()
            async with self._send(request, body) as answer:
                fault.answers.append((answer.status, await answer.text()))
            fault._answered.set()
            done.set()

        self._late.start_soon(pass_on)  # the request continues if the client disconnects
        await done.wait()
        if fault.lose_answer and request.transport is not None:
            request.transport.abort()
        status, text = fault.answers[-1]
        return web.Response(status=status, text=text, content_type="application/json")

    async def _spoil(self, sent: bytes, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        with suppress(aiohttp.ClientConnectionError):
            await response.prepare(request)
            await response.write(sent)
            if not sent:
                await anyio.sleep_forever()
        return response

    @asynccontextmanager
    async def _send(self, request: web.Request, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        url = f"{self._upstream}{request.raw_path}"
        async with self._session.request(request.method, url, data=body or None, headers=headers) as answer:
            yield answer


def binding_of(prefix: str, *, namespace: str = "") -> Callable[[str, str], bool]:
    """Return a condition: the request binds a pod with this name prefix."""
    return lambda method, path: method == "POST" and path.endswith("/binding") and f"{namespace}/pods/{prefix}" in path


def status_of(prefix: str) -> Callable[[str, str], bool]:
    """Return a condition: the request patches the status of a pod with this name prefix."""
    return lambda method, path: method == "PATCH" and path.endswith("/status") and f"/pods/{prefix}" in path


@asynccontextmanager
async def run_proxy(plane: ControlPlane) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a control plane until the block is left."""
    connector = aiohttp.TCPConnector(ssl=plane.trust, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        anyio.create_task_group() as late,
    ):
        application = web.Application(client_max_size=1 << 24)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        proxy = Proxy("", plane.server, session, late)
        application.router.add_route("*", "/{path:.*}", proxy.handle)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            proxy.url = f"http://{host}:{port}"
            yield proxy
        finally:
            late.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await runner.cleanup()
