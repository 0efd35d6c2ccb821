"""
The embedded API server: one aiohttp application in front of a store, with simulated kubelets behind it.

For the demo and for tests. It has no authentication, allows everything, and stores nothing on disk.
"""

import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Self

import anyio
import attrs
from aiohttp import web
from aiohttp.typedefs import Middleware

from neuron_scheduler.sandbox.apiserver import discovery, reviews, streaming
from neuron_scheduler.sandbox.apiserver.faults import Answer, Fault, Faults, Hang, Hold, Reset, Slow, Truncate
from neuron_scheduler.sandbox.apiserver.logs import Logs
from neuron_scheduler.sandbox.apiserver.reads import FromStore, Reads
from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resources import of_kind
from neuron_scheduler.sandbox.apiserver.rest import Rest, json_response
from neuron_scheduler.sandbox.apiserver.status import StatusError, method_not_allowed
from neuron_scheduler.sandbox.apiserver.store import Object, Store
from neuron_scheduler.sandbox.controllers.loop import Controllers
from neuron_scheduler.sandbox.kubelet import Kubelet, Runtime

_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_BODY_LIMIT: Final = 3 * 1024 * 1024  # bytes of a request, as on the real server
_REMEMBERED: Final = 10_000  # requests


@attrs.frozen
class SeenRequest:
    """A request as it arrived, for tests that check the calls."""

    method: str
    path: str
    query: str
    user_agent: str


@attrs.define(eq=False, kw_only=True)
class ApiServer:
    """
    An API server that lives as long as its `serving()` block.

    Attributes:
        port: where to listen; 0 chooses a free port.
        ssl_context: serve HTTPS with it.
        kubelet: whether a simulated kubelet sets bound pods Running and removes terminating ones.
        runtime: runs some pods for real, instead of that kubelet.
        controllers: whether Deployments, Jobs and others have controllers.
        kube_scheduler: with controllers: whether pods of the default scheduler get nodes.
        termination_limit: seconds after which that kubelet gives up waiting for a pod's grace period.
        bookmark_interval: seconds between the bookmarks of a watch.
        watch_list: whether watches with `sendInitialEvents` are served; if not, clients must fall back to lists.
        tokens: the user of each token that a TokenReview accepts; the server itself asks for none.
        store, registry: several servers may share them.
        reads: where lists and watches come from; the store if it is None.
        middlewares: are asked before the server, the first of them first (`web.middleware`).
        logs: what the containers of pods have written.
        faults: the faults of the next requests.
        requests: the last requests.
    """

    host: str = "127.0.0.1"
    port: int = 0
    ssl_context: ssl.SSLContext | None = None
    kubelet: bool = True
    runtime: Runtime | None = None
    controllers: bool = False
    kube_scheduler: bool = False
    termination_limit: float = 0.2
    bookmark_interval: float = 60.0
    watch_list: bool = True
    tokens: Mapping[str, str] = attrs.field(factory=dict)
    store: Store = attrs.field(factory=Store)
    registry: Registry = attrs.field(default=attrs.Factory(lambda self: Registry(self.store), takes_self=True))
    reads: Reads | None = None
    middlewares: Sequence[Middleware] = ()
    logs: Logs = attrs.field(factory=Logs)
    faults: Faults = attrs.field(factory=Faults)
    requests: deque[SeenRequest] = attrs.field(factory=lambda: deque(maxlen=_REMEMBERED))
    _waits: streaming.Waits = attrs.field(factory=streaming.Waits)
    _rest: Rest = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rest = Rest(
            self.registry,
            self.reads or FromStore(self.store),
            self.logs,
            self._waits,
            bookmark_interval=self.bookmark_interval,
            watch_list=self.watch_list,
        )

    @property
    def url(self) -> str:
        """The address of the server, once it serves."""
        return f"{'https' if self.ssl_context else 'http'}://{self.host}:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Listen until the block ends; open watches and held requests then end at once."""
        application = web.Application(client_max_size=_BODY_LIMIT, middlewares=self.middlewares)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self.host, self.port, ssl_context=self.ssl_context)
            await site.start()
            self.port = runner.addresses[0][1]
            async with anyio.create_task_group() as tasks:
                if self.kubelet:
                    tasks.start_soon(Kubelet(self.registry, self.termination_limit, self.runtime).run)
                if self.controllers:
                    tasks.start_soon(Controllers(self.registry, self.kube_scheduler).run)
                yield self
                tasks.cancel_scope.cancel()
        finally:
            self.end_watches()
            with anyio.CancelScope(shield=True):
                await runner.cleanup()

    def create(self, obj: Object) -> Object:
        """
        Create an object as if it had been posted, from its own `apiVersion`, `kind` and namespace.

        Raises:
            StatusError: as the server would refuse it.
            ValueError: the kind is not served.
        """
        resource = of_kind(obj["apiVersion"], obj["kind"])
        if resource is None:
            raise ValueError(f"{obj['apiVersion']} {obj['kind']} is not served by the sandbox")
        namespace = obj["metadata"].get("namespace", "default") if resource.namespaced else ""
        return self.registry.create(resource, namespace, obj)

    def end_watches(self) -> None:
        """End every open watch, and every request that a fault keeps waiting."""
        self._waits.end()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        agent = request.headers.get("User-Agent", "")
        self.requests.append(SeenRequest(request.method, request.path, request.query_string, agent))
        watching = request.query.get("watch", "") in {"1", "true"}
        fault = self.faults.take(method=request.method, path=request.path, watch=watching)
        response: web.StreamResponse = web.Response()
        try:
            await self._before(request, fault)
            if not isinstance(fault, Hang | Reset) or fault.committed:
                response = await self._answer(request, fault)
        except StatusError as error:
            response = _refusal(error)
        await self._after(request, fault)
        if isinstance(fault, Truncate) and not watching:
            response = await _truncated(request, response)
        return response

    async def _before(self, request: web.Request, fault: Fault | None) -> None:
        match fault:
            case Answer(error=error):
                raise error
            case Slow(seconds=seconds):
                await anyio.sleep(seconds)
            case Hold():
                fault.arrived.set()
                await fault.released.wait()
            case Reset(committed=False):
                streaming.abort(request)
            case Hang(committed=False):
                await self._hang(request)

    async def _after(self, request: web.Request, fault: Fault | None) -> None:
        match fault:
            case Reset(committed=True):
                streaming.abort(request)
            case Hang(committed=True):
                await self._hang(request)

    async def _hang(self, request: web.Request) -> None:
        with self._waits.endable():
            await anyio.sleep_forever()
        streaming.abort(request)

    async def _answer(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        if request.path in _HEALTH:
            return web.Response(text="ok")
        if reviews.is_review(request.path):
            return await reviews.review(request, self.tokens)
        document = discovery.discover(request.path, request.headers.get("Accept", ""))
        if document is None:
            return await self._rest.answer(request, fault)
        if request.method != "GET":
            raise method_not_allowed()
        aggregated = document["kind"] == "APIGroupDiscoveryList" if "kind" in document else False
        return json_response(document, content_type=discovery.AGGREGATED if aggregated else "application/json")


async def _truncated(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Announce the whole body, send half of it, and reset."""
    body = response.body if isinstance(response, web.Response) else b""
    if not isinstance(body, bytes):
        return response
    partial = web.StreamResponse(status=response.status, headers={"Content-Type": "application/json"})
    partial.content_length = len(body)
    await partial.prepare(request)
    await partial.write(body[: len(body) // 2])
    streaming.abort(request)
    return partial


def _refusal(error: StatusError) -> web.Response:
    response = json_response(error.body(), status=error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
