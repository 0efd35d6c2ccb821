"""
A small REST client with which a test acts as the cluster's administrator.

Uses JSON and returns plain dictionaries. Waits by watching, never by polling. It is not built on
`neuron_scheduler.kube` on purpose: a mistake there must not hide itself.
"""

import io
import json
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
import anyio
import attrs
from yarl import URL

from tests.support.patience import PATIENCE

Object = dict[str, Any]

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server answered with a status other than 2xx."""

    def __init__(self, status: int, answer: Object) -> None:
        """Keep the status code and the `Status` object."""
        super().__init__(f"{status} {answer.get('reason', '')}: {answer.get('message', answer)}")
        self.status = status
        self.answer = answer


@attrs.define(eq=False)
class RestClient:
    """One identity's connection to one API server; `async with` opens and closes it."""

    server: str
    _token: str = attrs.field(repr=False)
    _trust: ssl.SSLContext = attrs.field(repr=False)
    _kinds: dict[tuple[str, str], tuple[str, bool]] = attrs.field(factory=dict, init=False, repr=False)
    _session: aiohttp.ClientSession = attrs.field(init=False, repr=False)

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._trust, limit=32),
            headers={"Authorization": f"Bearer {self._token}"},
            read_bufsize=2**24,  # an event is one line, and an object may be megabytes long
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **parameters: Any
    ) -> tuple[int, Object]:
        """Send one request; return status and body, whatever the status. `parameters` go into the query."""
        data = None if body is None else io.BytesIO(json.dumps(body).encode())  # aiohttp warns of large bytes
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._session.request(method, self._url(path, parameters), data=data, headers=headers) as response:
            text = await response.text()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"message": text}
        return response.status, answer

    async def get(self, path: str, **parameters: Any) -> Object:
        return await self._expect("GET", path, **parameters)

    async def post(self, path: str, body: Any, **parameters: Any) -> Object:
        """Create an object, or a subresource like `binding` or `token`."""
        return await self._expect("POST", path, body, **parameters)

    async def put(self, path: str, body: Any, **parameters: Any) -> Object:
        return await self._expect("PUT", path, body, **parameters)

    async def patch(self, path: str, body: Any, *, content_type: str = MERGE, **parameters: Any) -> Object:
        """Change an object; a JSON merge patch unless another content type is given."""
        return await self._expect("PATCH", path, body, content_type=content_type, **parameters)

    async def delete(self, path: str, body: Any = None, **parameters: Any) -> Object:
        return await self._expect("DELETE", path, body, **parameters)

    async def apply(self, manifest: Mapping[str, Any], *, namespace: str = "default") -> Object:
        """Create or change an object of any kind by server-side apply, as `kubectl apply --server-side` does."""
        version, metadata = str(manifest["apiVersion"]), manifest["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, namespaced = await self._kind(root, str(manifest["kind"]))
        scope = f"/namespaces/{metadata.get('namespace', namespace)}" if namespaced else ""
        path = f"{root}{scope}/{plural}/{metadata['name']}"
        return await self.patch(path, manifest, content_type=APPLY, fieldManager="tests", force="true")

    async def watch(
        self, collection: str, resource_version: str, **parameters: Any
    ) -> AsyncGenerator[tuple[str, Object]]:
        """Yield (type, object) of each event until the server ends the watch or sends an ERROR; use `aclosing`."""
        parameters |= {"watch": "1", "resourceVersion": resource_version}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._url(collection, parameters), timeout=timeout) as response:
            if response.status != 200:
                raise ApiError(response.status, await response.json())
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    async def wait_until(
        self,
        collection: str,
        met: Callable[[dict[str, Object]], bool],
        *,
        within: float = PATIENCE,
        **parameters: Any,
    ) -> dict[str, Object]:
        """
        Watch a collection until a condition on its objects holds; return them by their `key_of`.

        Raises:
            TimeoutError: it does not hold within so many seconds; the text has the current objects' names and states.
        """
        objects: dict[str, Object] = {}
        with anyio.move_on_after(within):
            while True:
                listing = await self.get(collection, **parameters)
                objects = {key_of(item): item for item in listing["items"]}
                if met(objects):
                    return objects
                events = self.watch(collection, listing["metadata"]["resourceVersion"], **parameters)
                async with aclosing(events):
                    async for kind, item in events:
                        objects.pop(key_of(item), None)
                        if kind != "DELETED":
                            objects[key_of(item)] = item
                        if met(objects):
                            return objects
        seen = "\n".join(f"  {key}: {state_of(item)}" for key, item in [*objects.items()][:40]) or "  nothing"
        raise TimeoutError(f"{collection} did not get there within {within:g} s; there are {len(objects)}:\n{seen}")

    async def wait_for(self, path: str, met: Callable[[Object], bool], *, within: float = PATIENCE) -> Object:
        """Watch one object until it exists and a condition on it holds; return it. Raises as `wait_until`."""
        collection, _, name = path.rpartition("/")
        objects = await self.wait_until(
            collection,
            lambda objects: any(map(met, objects.values())),
            within=within,
            fieldSelector=f"metadata.name={name}",
        )
        return next(iter(objects.values()))

    async def _expect(self, method: str, path: str, body: Any = None, **options: Any) -> Object:
        """Send one request and return its body; an answer other than 2xx is an ApiError."""
        status, answer = await self.request(method, path, body, **options)
        if not 200 <= status < 300:
            raise ApiError(status, answer)
        return answer

    async def _kind(self, root: str, kind: str) -> tuple[str, bool]:
        """Return the plural name of a kind and whether it lives in namespaces, from discovery."""
        if (root, kind) not in self._kinds:
            for resource in (await self.get(root))["resources"]:
                if "/" not in resource["name"]:
                    self._kinds[root, resource["kind"]] = (resource["name"], resource["namespaced"])
        return self._kinds[root, kind]

    def _url(self, path: str, parameters: Mapping[str, Any]) -> URL:
        return URL(f"{self.server}{path}" + (f"?{urlencode(parameters)}" if parameters else ""), encoded=True)


def key_of(item: Object) -> str:
    """Return `namespace/name`, or `name` for an object without a namespace."""
    metadata = item["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))


def state_of(item: Object) -> str:
    """Return where an object stands: node, phase, conditions that are not true, and what it is about."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    words = [f"on {spec['nodeName']}"] if spec.get("nodeName") else []
    words += [status["phase"]] if "phase" in status else []
    words += [f"holder {spec['holderIdentity']!r}"] if "holderIdentity" in spec else []
    words += [f"{item[key]}" for key in ("reason", "note") if key in item]
    words += ["ending"] if "deletionTimestamp" in item["metadata"] else []
    words += [
        f"{condition['type']} {condition['status']}: {condition.get('message', '')}"
        for condition in status.get("conditions", [])
        if condition["status"] != "True"
    ]
    return ", ".join(words)
