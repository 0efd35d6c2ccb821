"""
One API server as a process: the sandbox's, with a cache that may be late, credentials, and the fence on Bindings.

Several of them have one store, as kube-apiservers have one etcd. A server that is stopped resets its connections; its
successor has a new cache.
"""

import asyncio
from contextvars import Context, ContextVar
from random import Random
from typing import Final

import attrs
from aiohttp import web
from aiohttp.typedefs import Handler

from sandbox.apiserver.registry import Registry
from sandbox.apiserver.status import StatusError
from sandbox.server import ApiServer
from tests.simulation.admission import ACCOUNT, admit_binding
from tests.simulation.history import History
from tests.simulation.http_faults import HttpFaults, client_of, is_watch, refusal, traffic_of
from tests.simulation.process import KILLED, Process
from tests.simulation.scenario import FaultWindows
from tests.simulation.tokens import Tokens
from tests.simulation.watch_cache import WatchCache

PORT: Final = 6443
UNKNOWN: Final = StatusError(401, "Unauthorized", "Unauthorized")
AUTHOR: ContextVar[str] = ContextVar("AUTHOR", default="")
"""The replica whose request is being carried out; empty for users and machines."""


@attrs.define(eq=False, kw_only=True)
class ApiServerProcess:
    """
    An API server and its processes, one after the other.

    Attributes:
        address: where it listens.
        fenced: whether the policy on Bindings is installed.
        page_size, quiet_at: see `WatchCache` and `HttpFaults`.
        cache: of the present process.
    """

    name: str
    address: str
    registry: Registry
    tokens: Tokens
    windows: FaultWindows
    history: History
    fenced: bool
    page_size: int
    quiet_at: float
    dice: Random
    process: Process = attrs.field(init=False)
    cache: WatchCache = attrs.field(init=False)

    def start(self) -> None:
        """Start a process."""
        self.process = Process(self.name, lambda _process: None)
        self.cache = WatchCache(self.name, self.registry.store, self.windows, self.page_size)
        self.process.at_end(self.cache.detach)
        self.history.line(self.name, "started")
        context = self.process.context()
        context.run(asyncio.get_running_loop().create_task, self._main(self.cache), context=context)

    def stop(self, seconds: float) -> None:
        """End the process, and start another one after so many seconds."""
        if self.process.alive:
            self.process.end(KILLED)
            self.history.line(self.name, f"stopped for {seconds:.1f} s")
            asyncio.get_running_loop().call_later(seconds, self.start, context=Context())

    async def _main(self, cache: WatchCache) -> None:
        faults = HttpFaults(self.name, self.windows, self.dice, self.quiet_at)
        server = ApiServer(
            host=self.address,
            port=PORT,
            kubelet=False,
            store=self.registry.store,
            registry=self.registry,
            reads=cache,
            middlewares=(self._noted, faults.answered, self._admitted),
            bookmark_interval=10.0,
        )
        async with server.serving():
            await cache.run()

    @web.middleware
    async def _noted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        client = client_of(request)
        AUTHOR.set(client)
        query = f"?{request.query_string}" if request.query_string else ""
        if is_watch(request):
            self.history.request(client, "WATCH", f"{request.path}{query}", f"opens at {self.name}")
        answer = await handler(request)
        self.history.request(client, request.method, f"{request.path}{query}", f"{answer.status} by {self.name}")
        return answer

    @web.middleware
    async def _admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let requests of known users pass, and Bindings of the holder of the Lease."""
        if not self.tokens.accepts(request.headers.get("Authorization", "")):
            return refusal(UNKNOWN)
        if self.fenced and traffic_of(request) == "bindings":
            try:
                admit_binding(self.cache, ACCOUNT, await request.read())
            except StatusError as error:
                return refusal(error)
        return await handler(request)
