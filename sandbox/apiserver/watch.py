"""
The events of a watch: the changes of a table as a client sees them through its selectors.

An object that enters the selection arrives as ADDED; one that leaves it as DELETED, with its previous state and the
version of the change. Nothing here writes to a socket.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import anyio
import attrs

from sandbox.apiserver import listing
from sandbox.apiserver.listing import Readable
from sandbox.apiserver.resources import PODS, Resource
from sandbox.apiserver.selectors import Predicate
from sandbox.apiserver.status import expired, forbidden_value, invalid
from sandbox.apiserver.store import Change, Expired, Object

DEFAULT_TIMEOUT: Final = 1800.0  # seconds; the real server draws one between 30 and 60 minutes
_BEFORE_DEADLINE: Final = 2.0  # seconds before its end a watch gets a last bookmark


@attrs.frozen
class Delivery:
    """One event for the client: an object, a bookmark's metadata or a Status."""

    type: str
    object: Object


@attrs.frozen(kw_only=True)
class Request:
    """A requested watch. `version` is None for "from the present state", which then arrives as ADDED."""

    resource: Resource
    namespace: str | None
    holds: Predicate
    version: int | None
    bookmarks: bool
    timeout: float


def parse(resource: Resource, namespace: str | None, query: Mapping[str, str]) -> Request:
    """
    Return a watch request from its query.

    Raises:
        StatusError: 400, and 422 for a streaming list, as of a server without the feature.
    """
    if query.get("sendInitialEvents") == "true":
        problem = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        raise invalid(resource, "", [forbidden_value("sendInitialEvents", problem)])
    version = listing.version_of(query)
    return Request(
        resource=resource,
        namespace=namespace,
        holds=listing.predicate_of(resource, query),
        version=None if version == 0 else version,
        bookmarks=query.get("allowWatchBookmarks") in {"true", "1"},
        timeout=float(query.get("timeoutSeconds") or 0) or DEFAULT_TIMEOUT,
    )


async def deliveries(store: Readable, request: Request, *, bookmark_interval: float) -> AsyncIterator[Delivery]:
    """
    Yield the events of a watch until its timeout, or until an ERROR with the Status that ends it.

    For a version of the future nothing is sent, as by the real server.
    """
    table, version = request.resource.storage, request.version
    if version is None:
        version = store.version
        for obj in store.objects(table, request.namespace):
            if request.holds(obj):
                yield Delivery("ADDED", obj)
    deadline = anyio.current_time() + request.timeout
    marking = _next_bookmark(deadline, bookmark_interval) if request.bookmarks else deadline
    try:
        position = store.position(table, version)
        while anyio.current_time() < deadline:
            changes = store.after(table, position)
            position += len(changes)
            for change in changes:
                delivery = seen(change, request) if change.version > version else None
                if delivery is not None:
                    yield delivery
            if not changes and request.bookmarks and anyio.current_time() >= marking:
                if store.version > version:  # as the real server: no bookmark before anything has happened
                    yield _bookmark(request.resource, store.version)
                marking = _next_bookmark(deadline, bookmark_interval)
            elif not changes:
                with anyio.move_on_after(min(marking, deadline) - anyio.current_time()):
                    await store.changed(table)
    except Expired as error:
        yield Delivery("ERROR", expired(error.asked, error.oldest).body())


def seen(change: Change, request: Request) -> Delivery | None:
    """Return a change as the namespace and selectors of a watch show it; None if they hide it."""
    namespace = change.object["metadata"].get("namespace", "")
    if request.namespace is not None and namespace != request.namespace:
        return None
    before = change.previous is not None and request.holds(change.previous)
    after = change.type != "DELETED" and request.holds(change.object)
    if after:
        return Delivery("MODIFIED" if before else "ADDED", change.object)
    if not before or change.previous is None:
        return None
    version = {"resourceVersion": str(change.version)}
    return Delivery("DELETED", change.previous | {"metadata": change.previous["metadata"] | version})


def _bookmark(resource: Resource, version: int) -> Delivery:
    """Return a bookmark as Go writes it: an empty object of the kind, so that `spec.containers` of a pod is null."""
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    blank: Object = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
    if "status" in resource.subresources:
        blank |= {"spec": {"containers": None} if resource is PODS else {}, "status": {}}
    return Delivery("BOOKMARK", blank)


def _next_bookmark(deadline: float, interval: float) -> float:
    now = anyio.current_time()
    last = deadline - _BEFORE_DEADLINE
    return min(now + interval, last) if last > now else now + interval
