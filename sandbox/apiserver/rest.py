"""
HTTP on one side, the registry on the other: paths, bodies, verbs, and how answers are written.

A handler here decodes, calls the registry, and encodes. Rules about objects are elsewhere; so are faults.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

import anyio
import attrs
import msgspec
from aiohttp import web

from sandbox.apiserver import listing, logs, patch, table, watch, workloads
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import NAMESPACES, PODS, Resource, find
from sandbox.apiserver.status import bad_request, method_not_allowed, no_such_path, success, unsupported_media_type
from sandbox.apiserver.store import Object, Store


@attrs.frozen
class Target:
    """What a path names. `namespace` is None for "in all namespaces"; `name` is empty for a collection."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def space(self) -> str:
        """The namespace as objects of this resource are stored under."""
        return self.namespace or ""


def target_of(path: str) -> Target:
    """
    Return the resource, collection, object or subresource that a path names.

    Raises:
        StatusError: 404.
    """
    steps = path.strip("/").split("/")
    if steps[:2] == ["api", "v1"]:
        group, rest = "", steps[2:]
    elif len(steps) > 3 and steps[0] == "apis" and steps[2] == "v1":
        group, rest = steps[1], steps[3:]
    else:
        raise no_such_path()
    namespace: str | None = None
    if len(rest) > 2 and rest[0] == NAMESPACES.plural and rest[2] not in NAMESPACES.subresources:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "", "")[:3]
    resource = find(group, "v1", plural)
    if resource is None or len(rest) > 3 or (subresource and subresource not in resource.subresources):
        raise no_such_path()
    if resource.namespaced is not (namespace is not None) and (name or namespace is not None):
        raise no_such_path()
    return Target(resource, namespace, name, subresource)


class Reads(Protocol):
    """Answers lists and watches. Refusals are raised as `StatusError`."""

    async def page(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> listing.Page:
        """Return the page that a list request asks for."""

    def deliveries(self, asked: watch.Request, *, bookmark_interval: float) -> AsyncIterator[watch.Delivery]:
        """Yield the events of a watch."""


@attrs.frozen
class FromStore:
    """Reads what is stored."""

    store: Store

    async def page(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> listing.Page:
        """Return the page that a list request asks for."""
        return listing.read(self.store, resource, namespace, query)

    def deliveries(self, asked: watch.Request, *, bookmark_interval: float) -> AsyncIterator[watch.Delivery]:
        """Yield the events of a watch."""
        return watch.deliveries(self.store, asked, bookmark_interval=bookmark_interval)


_JSON: Final = "application/json"
_Verb: TypeAlias = Callable[[web.Request, Target], Awaitable[web.StreamResponse]]


def json_response(body: Any, *, status: int = 200, content_type: str = _JSON) -> web.Response:
    """Return an answer of one JSON document."""
    return web.Response(body=msgspec.json.encode(body), status=status, headers={"Content-Type": content_type})


async def decoded(request: web.Request) -> Any:
    """
    Return the body of a request.

    Raises:
        StatusError: 400, it is no JSON; 415, it is protobuf.
    """
    raw = await request.read()
    if not raw:
        return {}
    if request.content_type == "application/vnd.kubernetes.protobuf":
        raise unsupported_media_type("application/json")
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


@attrs.define(eq=False)
class Waits:
    """Waits without an end of their own, which can be ended all at once: open watches, logs that are followed."""

    _scopes: set[anyio.CancelScope] = attrs.field(factory=set)

    @contextmanager
    def endable(self) -> Iterator[None]:
        """Leave the block when `end` is called."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def end(self) -> None:
        """End every wait."""
        for scope in self._scopes:
            scope.cancel()


@attrs.define(eq=False)
class Rest:
    """The verbs over HTTP; lists and watches come from `reads`."""

    registry: Registry
    reads: Reads
    logs: logs.Logs
    waits: Waits
    bookmark_interval: float

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Carry out a request on a resource. Refusals are raised as `StatusError`."""
        target = target_of(request.path)
        match request.method, target.subresource:
            case "POST", "binding":
                self.registry.bind(target.space, target.name, await decoded(request))
                return json_response(success(code=201), status=201)
            case "GET", "log":
                return await self._log(request, target)
            case "GET" | "PUT" | "PATCH", "scale":
                return await self._scale(request, target)
            case _, "binding" | "log" | "scale":
                raise method_not_allowed()
        if request.method == "GET" and _flag(request, "watch"):
            return await self._watch(request, target)
        verbs: Mapping[tuple[str, bool], _Verb] = {
            ("GET", True): self._one,
            ("GET", False): self._list,
            ("POST", False): self._create,
            ("PUT", True): self._update,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
        }
        verb = verbs.get((request.method, bool(target.name)))
        if verb is None or (request.method == "DELETE" and target.subresource):
            raise method_not_allowed()
        return await verb(request, target)

    async def _one(self, request: web.Request, target: Target) -> web.Response:
        obj = self.registry.get(target.resource, target.space, target.name)
        if _wants_table(request):
            return json_response(self._table(request, target.resource, [obj]))
        return json_response(self.registry.view(target.resource, obj))

    async def _list(self, request: web.Request, target: Target) -> web.Response:
        resource = target.resource
        page = await self.reads.page(resource, target.namespace, request.query)
        if _wants_table(request):
            shown = self._table(request, resource, page.objects)
            response = json_response(shown | {"metadata": page.metadata()})
        else:
            items = [_without_type(self.registry.view(resource, obj)) for obj in page.objects]
            head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
            response = json_response(head | {"metadata": page.metadata(), "items": items})
        return response

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        body = await decoded(request)
        _check_kind(target.resource, body)
        if target.resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        obj = self.registry.create(target.resource, target.space, body)
        return json_response(self.registry.view(target.resource, obj), status=201)

    async def _update(self, request: web.Request, target: Target) -> web.Response:
        body = await decoded(request)
        _check_kind(target.resource, body)
        obj = self.registry.update(target.resource, target.space, target.name, body, subresource=target.subresource)
        return json_response(self.registry.view(target.resource, obj))

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        place = target.resource, target.space, target.name, await decoded(request)
        obj = self.registry.patch(*place, media_type=request.content_type, subresource=target.subresource)
        return json_response(self.registry.view(target.resource, obj))

    async def _scale(self, request: web.Request, target: Target) -> web.Response:
        place = target.resource, target.space, target.name
        scale = workloads.scale_of(self.registry.get(*place))
        if request.method != "GET":
            body = await decoded(request)
            scale = body if request.method == "PUT" else patch.patched(scale, body, request.content_type)
            change = {"spec": {"replicas": (scale.get("spec") or {}).get("replicas", 0)}}
            scale = workloads.scale_of(self.registry.patch(*place, change, media_type=patch.MERGE))
        return json_response(scale)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        options = await _delete_options(request)
        obj = self.registry.delete(target.resource, target.space, target.name, options)
        if target.resource is not PODS and "deletionTimestamp" not in obj["metadata"]:
            return json_response(success(code=200))
        return json_response(self.registry.view(target.resource, obj))

    async def _log(self, request: web.Request, target: Target) -> web.StreamResponse:
        pod = self.registry.get(PODS, target.space, target.name)
        log = self.logs.of(pod, request.query)
        lines = logs.selected(log, request.query)
        seen = len(log.lines)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write("".join(f"{line}\n" for line in lines).encode())
        if _flag(request, "follow"):
            with self.waits.endable(), contextlib.suppress(ConnectionError):  # the client has gone
                async for line in log.follow(seen):
                    await response.write(f"{line}\n".encode())
        return response

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query: Mapping[str, str] = request.query
        namespace, resource = target.namespace, target.resource
        if target.name:
            query = {**query, "fieldSelector": f"metadata.name={target.name}"}
        asked = watch.parse(resource, namespace, query)
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})
        await response.prepare(request)
        deliveries = self.reads.deliveries(asked, bookmark_interval=self.bookmark_interval)
        with self.waits.endable(), contextlib.suppress(ConnectionError):  # the client has gone
            async for line in self._lines(request, resource, deliveries):
                await response.write(line)
        return response

    async def _lines(
        self, request: web.Request, resource: Resource, deliveries: AsyncIterator[watch.Delivery]
    ) -> AsyncIterator[bytes]:
        first = True
        async for delivery in deliveries:
            obj = delivery.object
            if delivery.type in {"ADDED", "MODIFIED", "DELETED"} and _wants_table(request):
                obj = self._table(request, resource, [obj], definitions=first)
                first = False
            elif delivery.type in {"ADDED", "MODIFIED", "DELETED"}:
                obj = self.registry.view(resource, obj)
            yield msgspec.json.encode({"type": delivery.type, "object": obj}) + b"\n"

    def _table(
        self, request: web.Request, resource: Resource, objects: list[Object], *, definitions: bool = True
    ) -> dict[str, Any]:
        return table.render(
            resource.plural,
            objects,
            now=self.registry.clock(),
            include=request.query.get("includeObject", "Metadata"),
            definitions=definitions,
        )


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "") in {"1", "true", "True"}


def _wants_table(request: web.Request) -> bool:
    return "as=Table" in request.headers.get("Accept", "")


def _check_kind(resource: Resource, body: Any) -> None:
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    kind, api_version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if (kind, api_version) != (resource.kind, resource.api_version):
        raise bad_request(f'{kind} in version "{api_version}" cannot be handled as a {resource.kind}')


async def _delete_options(request: web.Request) -> dict[str, Any]:
    body = await decoded(request)
    options = dict(body) if isinstance(body, dict) else {}
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    return options


def _without_type(obj: Object) -> Object:
    """Return an item of a typed list, which the real server writes without `kind` and `apiVersion`."""
    return {field: value for field, value in obj.items() if field not in {"kind", "apiVersion"}}
