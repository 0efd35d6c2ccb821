"""
HTTP on one side, the registry on the other: paths, bodies, verbs, and how answers are written.

A handler here decodes, calls the registry, and encodes. Rules about objects are elsewhere; so are faults.
"""

import contextlib
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import attrs
import msgspec
import yaml
from aiohttp import web

from neuron_scheduler.sandbox.apiserver import listing, logs, metadata, patch, protobuf, scale, streaming, table, watch
from neuron_scheduler.sandbox.apiserver.faults import Fault
from neuron_scheduler.sandbox.apiserver.paths import Target, target_of
from neuron_scheduler.sandbox.apiserver.reads import Reads
from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.resources import PODS
from neuron_scheduler.sandbox.apiserver.status import bad_request, method_not_allowed, success, unsupported_media_type
from neuron_scheduler.sandbox.apiserver.store import Object

_GZIP_FROM: Final = 128 * 1024  # bytes of a list from which the real server compresses
_JSON: Final = "application/json"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_Verb: TypeAlias = Callable[[web.Request, Target], Awaitable[web.StreamResponse]]


def json_response(body: Any, *, status: int = 200, content_type: str = _JSON) -> web.Response:
    """Return an answer of one JSON document."""
    return web.Response(body=msgspec.json.encode(body), status=status, headers={"Content-Type": content_type})


async def decoded(request: web.Request) -> Any:
    """
    Return the body of a request, JSON or YAML.

    Raises:
        StatusError: 400, it is neither; 415 for protobuf, except of a few kinds.
    """
    raw = await request.read()
    if not raw:
        return {}
    try:
        if request.content_type == _PROTOBUF:
            return protobuf.decode(raw)
        if request.content_type.endswith("yaml"):
            return yaml.safe_load(raw)
        return msgspec.json.decode(raw)
    except protobuf.UnknownKindError as error:
        raise unsupported_media_type("application/json, application/yaml") from error
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


@attrs.define(eq=False)
class Rest:
    """
    The verbs over HTTP; lists and watches come from `reads`.

    Without `watch_list`, `sendInitialEvents` is refused, so clients fall back to lists.
    """

    registry: Registry
    reads: Reads
    logs: logs.Logs
    waits: streaming.Waits
    bookmark_interval: float
    watch_list: bool

    async def answer(self, request: web.Request, fault: Fault | None) -> web.StreamResponse:
        """Carry out a request on a resource. Refusals are raised as `StatusError`."""
        target = target_of(request.path)
        if target.subresource in {"binding", "eviction", "log"}:
            return await self._special(request, target)
        if target.subresource == "scale":
            return await self._scale(request, target)
        if request.method == "GET" and _flag(request, "watch"):
            return await self._watch(request, target, fault)
        verbs: Mapping[tuple[str, bool], _Verb] = {
            ("GET", True): self._one,
            ("GET", False): self._list,
            ("POST", False): self._create,
            ("PUT", True): self._update,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
            ("DELETE", False): self._delete_all,
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
        if isinstance(response.body, bytes) and len(response.body) > _GZIP_FROM:
            response.enable_compression()
        return response

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        body = await decoded(request)
        _check_kind(target.resource, body)
        if target.resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        obj = self.registry.create(target.resource, target.space, body, dry_run=_dry_run(request))
        return json_response(self.registry.view(target.resource, obj), status=201)

    async def _update(self, request: web.Request, target: Target) -> web.Response:
        body = await decoded(request)
        _check_kind(target.resource, body)
        obj, created = self.registry.update(
            target.resource,
            target.space,
            target.name,
            body,
            subresource=target.subresource,
            dry_run=_dry_run(request),
        )
        return json_response(self.registry.view(target.resource, obj), status=201 if created else 200)

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        place = target.resource, target.space, target.name, await decoded(request)
        if request.content_type == patch.APPLY:
            obj, created = self.registry.apply(
                *place,
                manager=request.query.get("fieldManager", ""),
                subresource=target.subresource,
                dry_run=_dry_run(request),
            )
            return json_response(self.registry.view(target.resource, obj), status=201 if created else 200)
        obj = self.registry.patch(
            *place, media_type=request.content_type, subresource=target.subresource, dry_run=_dry_run(request)
        )
        return json_response(self.registry.view(target.resource, obj))

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        options = await _delete_options(request)
        obj, _ = self.registry.delete(target.resource, target.space, target.name, options, dry_run=_dry_run(request))
        if target.resource is PODS or obj["metadata"].get("deletionTimestamp"):
            return json_response(self.registry.view(target.resource, obj))
        details = {"name": target.name, "kind": target.resource.plural, "uid": obj["metadata"]["uid"]}
        if target.resource.group:
            details["group"] = target.resource.group
        return json_response(success(code=200, details=details))

    async def _delete_all(self, request: web.Request, target: Target) -> web.Response:
        options = await _delete_options(request)
        page = listing.read(self.registry.store, target.resource, target.namespace, request.query)
        for obj in page.objects:
            key = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            self.registry.delete(target.resource, *key, options, dry_run=_dry_run(request))
        return await self._list(request, target)

    async def _special(self, request: web.Request, target: Target) -> web.StreamResponse:
        match request.method, target.subresource:
            case "POST", "binding":
                body = await decoded(request)
                name = target.name or str(metadata.of(body).get("name"))
                self.registry.bind(target.space, name, body, dry_run=_dry_run(request))
                return json_response(success(code=201), status=201)
            case "POST", "eviction":
                body = await decoded(request)
                options = body.get("deleteOptions") or {}
                self.registry.delete(PODS, target.space, target.name, options, dry_run=_dry_run(request))
                return json_response(success(code=201), status=201)
            case "GET", "log":
                return await self._log(request, target)
            case _:
                raise method_not_allowed()

    async def _log(self, request: web.Request, target: Target) -> web.StreamResponse:
        pod = self.registry.get(PODS, target.space, target.name)
        log, printed = self.logs.of(pod, request.query), logs.printer(request.query)
        lines = logs.selected(log, request.query, self.registry.clock())
        seen = log.written
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        await response.write(b"".join(map(printed, lines)))
        if _flag(request, "follow"):
            with self.waits.endable(), contextlib.suppress(ConnectionError):  # the client has gone
                async for line in log.follow(seen):
                    await response.write(printed(line))
        return response

    async def _scale(self, request: web.Request, target: Target) -> web.Response:
        workload = self.registry.get(target.resource, target.space, target.name)
        if request.method == "GET":
            return json_response(scale.of(workload))
        if request.method not in {"PUT", "PATCH"}:
            raise method_not_allowed()
        body = await decoded(request)
        if request.method == "PATCH":
            body = patch.patched(scale.of(workload), body, request.content_type)
        new = scale.scaled(workload, body)
        obj, _ = self.registry.update(
            target.resource, target.space, target.name, copy.deepcopy(new), dry_run=_dry_run(request)
        )
        return json_response(scale.of(obj))

    async def _watch(self, request: web.Request, target: Target, fault: Fault | None) -> web.StreamResponse:
        query: Mapping[str, str] = request.query
        namespace, resource = target.namespace, target.resource
        if target.name:
            query = {**query, "fieldSelector": f"metadata.name={target.name}"}
        asked = watch.parse(resource, namespace, query, watch_list=self.watch_list)
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})
        await response.prepare(request)
        deliveries = self.reads.deliveries(asked, bookmark_interval=self.bookmark_interval)
        with self.waits.endable():
            await streaming.send(request, response, self._lines(request, resource, deliveries), fault)
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


def _dry_run(request: web.Request) -> bool:
    return "All" in request.query.getall("dryRun", [])


def _wants_table(request: web.Request) -> bool:
    return "as=Table" in request.headers.get("Accept", "")


def _check_kind(resource: Resource, body: Any) -> None:
    if not isinstance(body, dict):
        raise bad_request("the body is not an object")
    kind, api_version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if kind != resource.kind:
        raise bad_request(f'{kind} in version "{api_version}" cannot be handled as a {resource.kind}')
    if api_version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )


async def _delete_options(request: web.Request) -> dict[str, Any]:
    body = await decoded(request)
    options = dict(body) if isinstance(body, dict) else {}
    if "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    if "propagationPolicy" in request.query:
        options["propagationPolicy"] = request.query["propagationPolicy"]
    return options


def _without_type(obj: Object) -> Object:
    """Return an item of a typed list, which the real server writes without `kind` and `apiVersion`."""
    return {field: value for field, value in obj.items() if field not in {"kind", "apiVersion"}}
