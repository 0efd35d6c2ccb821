"""An API server that only lists and gets what a test puts into it, in pages, and reviews rights."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
from aiohttp import web

from tests.support import wire_objects

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/my-scheduler"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@attrs.define(eq=False)
class ListingServer:
    """
    What the server has.

    Attributes:
        lists: the objects of a collection by its path; a number is a status to refuse it with.
        objects: single objects by path.
        default: the status for all other paths.
        pages: a proxy answers these paths with a page of this status.
        denied: rights that no ServiceAccount has, as `verb resource`.
        reviews: whether rights may be reviewed.
        requests: the paths of the requests so far.
    """

    lists: dict[str, list[Any] | int] = attrs.field(factory=dict)
    objects: dict[str, Any] = attrs.field(factory=dict)
    default: int = 404
    pages: Mapping[str, int] = attrs.field(factory=dict)
    denied: frozenset[str] = frozenset()
    reviews: bool = True
    version: Any = attrs.field(factory=lambda: {"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
    requests: list[str] = attrs.field(factory=list)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        self.requests.append(request.path)
        if request.path in self.pages:
            return web.Response(status=self.pages[request.path], text="<html>Please log in</html>")
        if request.path == "/version":
            return self.version if isinstance(self.version, web.Response) else web.json_response(self.version)
        if request.path == _REVIEWS and request.method == "POST":
            return _status(403) if not self.reviews else self._review(await request.json())
        if request.path in self.objects:
            return web.json_response(self.objects[request.path])
        listed = self.lists.get(request.path, self.default)
        return _status(listed) if isinstance(listed, int) else _page(listed, request.query)

    def _review(self, review: Any) -> web.Response:
        wanted = review["spec"]["resourceAttributes"]
        allowed = f"{wanted['verb']} {wanted['resource']}" not in self.denied
        return web.json_response({**review, "status": {"allowed": allowed}}, status=201)


def _page(items: list[Any], query: Mapping[str, str]) -> web.Response:
    start, limit = int(query.get("continue", 0)), int(query.get("limit", 500))
    end = start + limit
    metadata = {"resourceVersion": "9"} | ({"continue": str(end)} if end < len(items) else {})
    return web.json_response({"metadata": metadata, "items": items[start:end]})


def _status(code: int) -> web.Response:
    reason = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound"}.get(code, "InternalError")
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason}
    return web.json_response(status, status=code)


@asynccontextmanager
async def listing(**fields: Any) -> AsyncIterator[ListingServer]:
    """Serve on a loopback port."""
    server = ListingServer(**fields)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    try:
        yield server
    finally:
        await runner.cleanup()


def kubeconfig(url: str, **contexts: str) -> str:
    """Return a kubeconfig whose current context is this server; `contexts` are further ones by name."""
    servers = {"here": url, **contexts}
    return json.dumps(
        {
            "current-context": "here",
            "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in servers],
            "clusters": [{"name": name, "cluster": {"server": server}} for name, server in servers.items()],
            "users": [{"name": "me", "user": {}}],
        }
    )


def workload(
    name: str, *, namespace: str = "kube-system", labels: Any = None, config_maps: Any = (), **fields: Any
) -> Any:
    """Return a Deployment or DaemonSet with one container; `image`, `command`, `args` and `account` are its own."""
    container = {"name": name} | {key: value for key, value in fields.items() if key in {"image", "command", "args"}}
    volumes = [{"name": each, "configMap": {"name": each}} for each in config_maps]
    template = {"serviceAccountName": fields.get("account", name), "containers": [container], "volumes": volumes}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": fields.get("annotations", {})},
        "spec": {"replicas": 2, "template": {"metadata": {"labels": labels or {}}, "spec": template}},
        "status": fields.get("status", {"readyReplicas": 2, "updatedReplicas": 2}),
    }


def neuron_pod(name: str, count: int = 1, *, on: str = "", **metadata: Any) -> Any:
    """Return a pod that asks for devices."""
    container = wire_objects.container(limits={"aws.amazon.com/neuron": str(count)}, image="app:1")
    spec = {"containers": [container], **({"nodeName": on} if on else {})}
    return wire_objects.pod(name, spec=spec, metadata=metadata)
