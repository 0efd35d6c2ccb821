"""
The embedded API server: one aiohttp application in front of a store, with simulated kubelets behind it.

For the demo and for tests. It has no authentication, allows everything, and stores nothing on disk.
"""

import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import anyio
import attrs
from aiohttp import web
from aiohttp.typedefs import Middleware

from sandbox.apiserver import discovery
from sandbox.apiserver.logs import Logs
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import of_kind
from sandbox.apiserver.rest import FromStore, Reads, Rest, Waits, decoded, json_response
from sandbox.apiserver.status import StatusError, method_not_allowed
from sandbox.apiserver.store import Object, Store
from sandbox.controllers.loop import Controllers
from sandbox.kubelet import Kubelet, Runtime

_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_REVIEWS: Final = {
    f"/apis/{group}/v1/{kind.lower()}s": (group, kind)
    for group, kind in (
        ("authentication.k8s.io", "TokenReview"),
        ("authentication.k8s.io", "SelfSubjectReview"),
        ("authorization.k8s.io", "SubjectAccessReview"),
        ("authorization.k8s.io", "SelfSubjectAccessReview"),
    )
}
_BODY_LIMIT: Final = 3 * 1024 * 1024  # bytes of a request, as on the real server
_REMEMBERED: Final = 10_000  # requests


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
        termination_limit: seconds after which that kubelet gives up waiting for a pod's grace period.
        bookmark_interval: seconds between the bookmarks of a watch.
        tokens: the user of each token that a TokenReview accepts; the server itself asks for none.
        store, registry: several servers may share them.
        reads: where lists and watches come from; the store if it is None.
        middlewares: are asked before the server, the first of them first (`web.middleware`).
        logs: what the containers of pods have written.
        requests: method and path of the last requests.
    """

    host: str = "127.0.0.1"
    port: int = 0
    ssl_context: ssl.SSLContext | None = None
    kubelet: bool = True
    runtime: Runtime | None = None
    controllers: bool = False
    termination_limit: float = 0.2
    bookmark_interval: float = 60.0
    tokens: Mapping[str, str] = attrs.field(factory=dict)
    store: Store = attrs.field(factory=Store)
    registry: Registry = attrs.field(default=attrs.Factory(lambda self: Registry(self.store), takes_self=True))
    reads: Reads | None = None
    middlewares: Sequence[Middleware] = ()
    logs: Logs = attrs.field(factory=Logs)
    requests: deque[tuple[str, str]] = attrs.field(factory=lambda: deque(maxlen=_REMEMBERED))
    _waits: Waits = attrs.field(factory=Waits)
    _rest: Rest = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._rest = Rest(
            self.registry,
            self.reads or FromStore(self.store),
            self.logs,
            self._waits,
            bookmark_interval=self.bookmark_interval,
        )

    @property
    def url(self) -> str:
        """The address of the server, once it serves."""
        return f"{'https' if self.ssl_context else 'http'}://{self.host}:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Listen until the block ends; open watches then end at once."""
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
                    tasks.start_soon(Controllers(self.registry).run)
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
        """End every open watch."""
        self._waits.end()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        try:
            return await self._answer(request)
        except StatusError as error:
            return refusal(error)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path in _HEALTH:
            return web.Response(text="ok")
        if request.path in _REVIEWS:
            return await self._review(request)
        if request.path == "/openapi/v2":  # kubectl asks for it about kinds that it does not find in version 3
            return web.Response(content_type=discovery.OPENAPI_2)
        document = discovery.documents().get(request.path.rstrip("/"))
        if document is None:
            return await self._rest.answer(request)
        if request.method != "GET":
            raise method_not_allowed()
        aggregated = document.get("kind") == "APIGroupDiscoveryList"
        return json_response(document, content_type=discovery.AGGREGATED if aggregated else "application/json")

    async def _review(self, request: web.Request) -> web.Response:
        """Say who a token's holder is, who a client is, and that either may do everything."""
        if request.method != "POST":
            raise method_not_allowed()
        group, kind = _REVIEWS[request.path]
        status: dict[str, Any] = {"allowed": True, "reason": "the sandbox allows everything"}
        if kind == "TokenReview":
            body = await decoded(request)
            user = self.tokens.get(str((body.get("spec") or {}).get("token")))
            status = {"authenticated": user is not None, "user": _user(user) if user is not None else {}}
        elif kind == "SelfSubjectReview":
            status = {"userInfo": _user("sandbox") | {"groups": ["system:masters"]}}
        answer = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": {}, "status": status}
        return json_response(answer, status=201)


def _user(name: str) -> dict[str, Any]:
    return {"username": name, "groups": ["system:authenticated"]}


def refusal(error: StatusError) -> web.Response:
    """Return a refusal as HTTP response."""
    response = json_response(error.body(), status=error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
