"""
A thin client for the behaviour tests, for the sandbox and for a real API server.
"""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import aiohttp
import anyio
import attrs

from tests.support.patience import PATIENCE


@attrs.frozen
class Reply:
    """An answer: the status, and the body as JSON or as text."""

    status: int
    body: Any


@attrs.define(eq=False)
class Watch:
    """An open watch; `next()` is the next event, None at its end."""

    _response: aiohttp.ClientResponse
    status: int

    async def next(self, *, within: float = PATIENCE) -> dict[str, Any] | None:
        """The next event as it was sent; waits at most so many seconds."""
        with anyio.fail_after(within):
            line = await self._response.content.readline()
        return dict(json.loads(line)) if line else None

    async def take(self, count: int) -> list[tuple[str, str]]:
        """The next events as (type, name)."""
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events if event is not None]

    async def rest(self) -> list[dict[str, Any]]:
        """All events until the end."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@attrs.define(eq=False)
class Api:
    """An API server and a namespace on it; short paths (`pods/p1`) are in this namespace."""

    _session: aiohttp.ClientSession
    _ssl: ssl.SSLContext | bool
    namespace: str

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        media_type: str = "application/json",
        accept: str = "application/json",
    ) -> Reply:
        """One request; refusals are replies."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        headers = {"Accept": accept} | ({"Content-Type": media_type} if raw is not None else {})
        async with self._session.request(
            method, self._path(path), data=raw, params=query, headers=headers, ssl=self._ssl
        ) as response:
            text = await response.text()
            return Reply(response.status, json.loads(text) if text.startswith(("{", "[")) else text)

    async def made(self, path: str, body: Any) -> dict[str, Any]:
        """POST that must succeed; the object."""
        reply = await self.call("POST", path, body)
        assert reply.status == 201, reply
        return dict(reply.body)

    async def got(self, path: str, **query: str) -> dict[str, Any]:
        """GET that must succeed; the object or list."""
        reply = await self.call("GET", path, query=query)
        assert reply.status == 200, reply
        return dict(reply.body)

    async def pod(self, name: str, **spec: Any) -> dict[str, Any]:
        return await self.made("pods", pod(name, **spec))

    async def bind(self, name: str, node: str = "n1", **metadata: Any) -> Reply:
        """POST a Binding."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return await self.call("POST", f"pods/{name}/binding", body)

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        """Open a watch."""
        params = {"watch": "1", "timeoutSeconds": "30", **query}
        async with self._session.get(self._path(path), params=params, ssl=self._ssl) as response:
            yield Watch(response, response.status)

    def _path(self, path: str) -> str:
        if path.startswith("/"):
            return path
        if path.startswith("apis/"):
            _, group, version, rest = path.split("/", 3)
            return f"/apis/{group}/{version}/namespaces/{self.namespace}/{rest}"
        return f"/api/v1/namespaces/{self.namespace}/{path}"


@asynccontextmanager
async def connect(url: str, *, token: str = "", ssl_context: ssl.SSLContext | None = None) -> AsyncIterator[Api]:
    """A client with a fresh namespace on the server at `url`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(url, headers=headers) as session:
        api = Api(session, ssl_context or True, f"behaviour-{uuid4().hex[:8]}")
        await api.made("/api/v1/namespaces", {"metadata": {"name": api.namespace}})
        yield api


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod with one container; labels and annotations may be given beside fields of the spec."""
    metadata = {"name": name} | {field: spec.pop(field) for field in ("labels", "annotations") if field in spec}
    containers = [{"name": "main", "image": "registry.example/app:1"}]
    full_spec = {"containers": containers, "automountServiceAccountToken": False, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full_spec}


def names(listed: Mapping[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]
