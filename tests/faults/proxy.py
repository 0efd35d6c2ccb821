"""
A proxy between scheduler and API server with faults on demand: answers get lost, requests come late, twice or never.

It passes on every request without a fault, credentials and watches included, so the API server sees the scheduler's own
identity. Plain HTTP on loopback, for `--master`. A fault has two sides: what reaches the API server, and what the
client gets to see (`answers`).
"""

import asyncio
import enum
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import aiohttp
import anyio
import attrs
from aiohttp import web

from tests.control_plane.server import ControlPlane
from tests.faults.answers import UNCHANGED, UNTRUE, Answer, Page, Refusal, Spoilt, Stream, Unchanged, Whole
from tests.faults.calls import Call, Condition
from tests.support.patience import PATIENCE

PASSED_ON: Final = ("Authorization", "Content-Type", "Accept")
ALWAYS: Final = float("inf")


class Late(enum.Enum):
    """When a request that is held back reaches the API server."""

    NEVER = enum.auto()
    BEFORE_ITS_REPEAT = enum.auto()
    ON_RELEASE = enum.auto()


@attrs.frozen
class Behaviour:
    """
    What becomes of one request.

    Attributes:
        answer: what the client gets to see.
        delivered: how often the request reaches the API server before that: 0, 1, or 2 for a duplicate.
        late: when it reaches the API server once more.
        times: for how many requests.
    """

    answer: Answer = UNCHANGED
    delivered: int = 1
    late: Late = Late.NEVER
    times: float = 1


def instead(answer: Answer) -> Behaviour:
    """Return the behaviour of a proxy that answers itself and passes nothing on."""
    return Behaviour(answer, delivered=0)


HELD: Final = Behaviour(delivered=0, late=Late.ON_RELEASE)
"""The request is passed on after `release`, even if the client has long gone, and then answered."""


@attrs.define(eq=False)
class Fault:
    """
    A behaviour for the requests that meet a condition.

    Attributes:
        times: for how many more requests.
        taken: set when the first request has arrived.
        answers: the API server's answers so far.
        first_answer: set when there is one.
        released: set by `release`.
        held: set when a request that was held back has reached the API server; None if there is none.
    """

    matches: Condition
    behaviour: Behaviour = attrs.field(factory=Behaviour)
    times: float = attrs.field(default=attrs.Factory(lambda self: self.behaviour.times, takes_self=True))
    taken: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    answers: list[Whole] = attrs.field(factory=list, init=False)
    first_answer: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    released: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    held: anyio.Event | None = attrs.field(default=None, init=False)

    def release(self) -> None:
        self.released.set()

    async def answered(self) -> tuple[int, str]:
        """Wait for the API server's first answer to a request with this fault; return its status and text."""
        with anyio.fail_after(PATIENCE):
            await self.first_answer.wait()
        return self.answers[0].status, self.answers[0].body.decode()

    async def repeated(self) -> None:
        """Let a request that waits for its repeat reach the API server first."""
        if self.behaviour.late is Late.BEFORE_ITS_REPEAT and self.held is not None:
            self.release()
            await self.held.wait()


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
    _background: anyio.abc.TaskGroup
    _token: str = ""
    faults: list[Fault] = attrs.field(factory=list, init=False)
    _served: dict[asyncio.Task[object], asyncio.Transport] = attrs.field(factory=dict, init=False)

    def cut(self) -> None:
        """Reset every connection on which a request is served, watches included; what it has done by then is done."""
        for task, transport in self._served.items():
            transport.abort()
            task.cancel()

    async def end(self) -> None:
        """End all requests: aiohttp forgets those whose client has gone, and they would wait for ever."""
        while self._served:
            self.cut()
            await asyncio.wait(list(self._served))

    def add(self, fault: Fault) -> Fault:
        """Add a fault."""
        self.faults.append(fault)
        return fault

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one request, with the first fault that matches."""
        task, transport = asyncio.current_task(), request.transport
        if task is None or transport is None:
            return web.Response(status=502)  # the client has gone
        self._served[task] = transport
        try:
            return await self._handle(request)
        finally:
            del self._served[task]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        agent = request.headers.get("User-Agent", "")
        call = Call(request.method, request.path, request.query, await request.read(), agent)
        matching = [fault for fault in self.faults if fault.matches(call)]
        for fault in matching:
            if fault.times:
                fault.times -= 1
                fault.taken.set()
                return await self._fail(fault, request, call)
            await fault.repeated()
        async with self._send(request, call) as answer:
            return await _stream(request, answer)

    async def _fail(self, fault: Fault, request: web.Request, call: Call) -> web.StreamResponse:
        behaviour, delivered, late = fault.behaviour, anyio.Event(), anyio.Event()
        answer = behaviour.answer
        if isinstance(answer, Stream):
            async with self._send(request, call) as upstream:
                return await answer.send(request, upstream)
        if behaviour.late is not Late.NEVER:
            fault.held = late
            self._background.start_soon(self._deliver_late, fault, request, call, late)
        if behaviour.delivered:  # in the background, because it goes on if the client disconnects
            self._background.start_soon(self._deliver, fault, request, call, behaviour.delivered, delivered)
            await delivered.wait()
        elif isinstance(answer, Unchanged):
            await late.wait()
        return await _answer(answer, request, fault.answers[-1] if fault.answers else UNTRUE)

    async def _deliver_late(self, fault: Fault, request: web.Request, call: Call, done: anyio.Event) -> None:
        await fault.released.wait()
        await self._deliver(fault, request, call, 1, done)

    async def _deliver(self, fault: Fault, request: web.Request, call: Call, times: int, done: anyio.Event) -> None:
        for _ in range(times):
            async with self._send(request, call) as answer:
                fault.answers.append(Whole(answer.status, await answer.read(), answer.content_type))
        fault.first_answer.set()
        done.set()

    @asynccontextmanager
    async def _send(self, request: web.Request, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        url = f"{self._upstream}{request.raw_path}"
        async with self._session.request(request.method, url, data=call.body or None, headers=headers) as answer:
            yield answer


async def _answer(answer: Answer, request: web.Request, true: Whole) -> web.StreamResponse:
    """Let the client see an answer."""
    match answer:
        case Refusal() | Page():
            return answer.whole().response()
        case Spoilt():
            await answer.send(request, true.raw())
    return true.response()


async def _stream(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass an answer on as it comes."""
    response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
    if "Retry-After" in answer.headers:
        response.headers["Retry-After"] = answer.headers["Retry-After"]
    with suppress(aiohttp.ClientConnectionError):  # either side may disconnect in the middle of a watch
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    return response


@asynccontextmanager
async def run_proxy(plane: ControlPlane, *, host: str = "127.0.0.1", token: str = "") -> AsyncIterator[Proxy]:
    """
    Run a proxy in front of a control plane until the block is left.

    A token is that of a client such as kube-scheduler, which sends none without TLS.
    """
    connector = aiohttp.TCPConnector(ssl=plane.trust, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout, read_bufsize=1 << 24) as session,
        anyio.create_task_group() as background,
    ):
        application = web.Application(client_max_size=1 << 24)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        proxy = Proxy("", plane.server, session, background, token)
        application.router.add_route("*", "/{path:.*}", proxy.handle)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, 0)
            await site.start()
            port = runner.addresses[0][1]
            proxy.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            yield proxy
        finally:
            background.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await proxy.end()
                await runner.cleanup()
