"""
List and watch one resource for as long as the process lives, and tell a handler what changed.

client-go's reflector (`tools/cache/reflector.go`) without its machinery: one task, plain synchronous callbacks, no
queue in between. Survives closed, cut, silent and half-open connections, expired versions and tokens, overload (429),
and objects that cannot be read. Refuses to interpret objects: `codec` reads them, `reflection` compares them.
"""

import heapq
import random as randomness
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from operator import attrgetter
from typing import Any, Final, Generic, Protocol

import anyio
import attrs
import msgspec
from anyio.lowlevel import checkpoint

from neuron_scheduler import logs
from neuron_scheduler.errors import ApiError, OversizedLineError, UnreachableError
from neuron_scheduler.kube import wire
from neuron_scheduler.kube.backoff import Backoff
from neuron_scheduler.kube.client import LONGEST_PAUSE, Lines, Response
from neuron_scheduler.kube.codec import Decoded, Encoded, Malformed
from neuron_scheduler.kube.node_codec import decode_node
from neuron_scheduler.kube.pod_codec import decode_pod, decode_pod_event
from neuron_scheduler.kube.reflection import Handler, Reflection, T, same_node, same_pod
from neuron_scheduler.kube.status import status_error
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod

PAGE: Final = 500
BATCH: Final = 25  # objects handled before the event loop may turn to others
PAGE_TIMEOUT: Final = 60.0
LIST_TIMEOUT: Final = 300.0  # without limit: one body for 30,000 pods is 255 MB
WATCH_SECONDS: Final = 300  # and up to as much again, so that replicas do not reconnect together
WATCH_SLACK: Final = 15.0
HEALTHY: Final = 5.0  # a watch that lived so long may be opened again at once

_LIST: Final = msgspec.json.Decoder(wire.List)
_EVENT: Final = msgspec.json.Decoder(wire.Event)
_BOOKMARK: Final = msgspec.json.Decoder(wire.Bookmark)
_STATUS: Final = msgspec.json.Decoder(wire.Status)

log = logs.logger(__name__)


class Api(Protocol):
    """What an informer asks of the client."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = ...,
        timeout: float = ...,  # noqa: ASYNC109 - as in the client
    ) -> Response:
        """Send one request."""

    def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AbstractAsyncContextManager[Lines]:
        """Open a watch."""


def _step_by_step(_line: bytes) -> None:
    """Read no line at one go."""


@attrs.frozen
class Resource(Generic[T]):
    """
    What is listed and watched.

    Attributes:
        params: of list and watch alike.
        order: key by which the objects of a list are handed over, so that every replica and restart sees one order.
        decode_event: reads a whole line of a watch at one go; None of a line that is to be read step by step.
    """

    path: str
    decode: Callable[[Encoded], Decoded[T]]
    same: Callable[[T, T], bool]
    order: Callable[[T], Any]
    params: Mapping[str, str] = attrs.field(factory=dict)
    decode_event: Callable[[bytes], tuple[str, Decoded[T]] | None] = _step_by_step


PODS: Final[Resource[Pod]] = Resource(
    path="/api/v1/pods",
    decode=decode_pod,
    same=same_pod,
    order=attrgetter("created", "namespace", "name", "uid"),
    params={"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
    decode_event=decode_pod_event,
)
NODES: Final[Resource[Node]] = Resource(
    path="/api/v1/nodes", decode=decode_node, same=same_node, order=attrgetter("created", "name", "uid")
)


@attrs.define(eq=False, kw_only=True)
class Informer(Generic[T]):
    """
    Keeps a handler informed of one resource.

    Attributes:
        synced: set when the first list has been handled.
        lists, watches, events: counters of what was done.
    """

    client: Api
    resource: Resource[T]
    handler: Handler[T]
    clock: Callable[[], float] = time.monotonic
    random: Callable[[], float] = randomness.random
    backoff: Backoff = attrs.field(factory=lambda: Backoff(randomness.random))
    synced: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    lists: int = attrs.field(default=0, init=False)
    watches: int = attrs.field(default=0, init=False)
    events: int = attrs.field(default=0, init=False)
    _reflection: Reflection[T] = attrs.field(init=False)
    _resource_version: str = attrs.field(default="", init=False)
    _opened_at: float | None = attrs.field(default=None, init=False)
    _scope: anyio.CancelScope | None = attrs.field(default=None, init=False)
    _resyncs: int = attrs.field(default=0, init=False)
    _resynced: int = attrs.field(default=0, init=False)  # how many of them a list has answered
    _listed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._reflection = Reflection(handler=self.handler, same=self.resource.same)

    def __len__(self) -> int:
        """Number of objects that are known and readable."""
        return len(self._reflection)

    async def run(self) -> None:
        """List and watch until cancelled; nothing that the API server does ends it."""
        while True:
            with anyio.CancelScope() as self._scope:
                await anyio.sleep(await self._cycle())

    async def resync(self) -> None:
        """
        Return when a consistent list that began after this call has been handled (after a takeover).

        What is on its way already, an event or a list, does not count.
        """
        self._resyncs += 1
        asked = self._resyncs
        if self._scope is not None:
            self._scope.cancel()
        while self._resynced < asked:
            await self._listed.wait()

    async def _cycle(self) -> float:
        """List if need be, watch until that ends, and return how many seconds to wait before the next cycle."""
        self._opened_at = None
        asked: float | None = None
        try:
            if not self._resource_version or self._resynced < self._resyncs:
                await self._list()
            await self._watch()
        except ApiError as error:
            asked = min(error.retry_after or 0.0, LONGEST_PAUSE)
            if _outdated(error):
                self._resource_version = ""
            log.warning("Watch was refused", resource=self.resource.path, exc=error)
        except OversizedLineError as error:
            self._resource_version = ""
            log.warning("Watch sent a line without end, listing anew", resource=self.resource.path, exc=error)
        except (UnreachableError, msgspec.MsgspecError) as error:
            log.v(2).info("Watch broke off", resource=self.resource.path, err=error)
        if self._opened_at is not None and self.clock() - self._opened_at >= HEALTHY:
            self.backoff.reset()
            return asked or 0.0
        return self.backoff.next(at_least=asked)

    async def _list(self) -> None:
        """List in pages, or in one piece when the continue token has expired, and hand over the differences."""
        asked = self._resyncs  # later ones need a later list
        pages: list[list[Decoded[T]]] = []
        params = {**self.resource.params, "limit": str(PAGE)}
        while True:
            timeout = PAGE_TIMEOUT if "limit" in params else LIST_TIMEOUT
            try:
                answer = await self.client.request("GET", self.resource.path, params=params, timeout=timeout)
            except ApiError as error:
                if error.status != 410 or "limit" not in params:
                    raise
                pages.clear()
                params = dict(self.resource.params)
                continue
            page = _LIST.decode(answer.body)
            pages.append([])
            for number, item in enumerate(page.items or (), start=1):
                pages[-1].append(self.resource.decode(item))
                if number % BATCH == 0:
                    await checkpoint()
            pages[-1].sort(key=self._place)
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
            await checkpoint()
        await self._replace(pages)
        self._resource_version = page.metadata.resource_version
        self._resynced = asked
        self.lists += 1
        self.synced.set()
        self._listed.set()
        self._listed = anyio.Event()

    async def _replace(self, pages: list[list[Decoded[T]]]) -> None:
        """
        Hand over what is new or different, then what is gone: nothing looks free in between.

        The pages are each in order, and merged as they are handed over: sorting all of them would hold the event loop.
        """
        for number, decoded in enumerate(heapq.merge(*pages, key=self._place), start=1):
            self._reflection.put(decoded)
            if number % BATCH == 0:
                await checkpoint()
        for key in self._reflection.missing({decoded.key for page in pages for decoded in page}):
            self._reflection.remove(key)

    def _place(self, decoded: Decoded[T]) -> tuple[int, Any]:
        value = decoded.value
        return (1, ()) if value is None or isinstance(value, Malformed) else (0, self.resource.order(value))

    async def _watch(self) -> None:
        """Follow the changes since the last known version until the server closes the watch."""
        seconds = WATCH_SECONDS + int(WATCH_SECONDS * self.random())
        params = {
            **self.resource.params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(seconds),
        }
        heard = 0
        try:
            async with self.client.stream(
                self.resource.path, params=params, read_timeout=seconds + WATCH_SLACK
            ) as lines:
                self.watches += 1
                self._opened_at = self.clock()
                while line := await lines.next():
                    self._take(line)
                    heard += 1
                    if heard % BATCH == 0:
                        await checkpoint()
        finally:
            # a version from the future is answered with silence, without a bookmark; a healthy watch has one a minute
            if not heard and self._opened_at is not None and self.clock() - self._opened_at >= 0.9 * seconds:
                self._resource_version = ""

    def _take(self, line: bytes) -> None:
        """Handle one line; raises MsgspecError if it was cut off, ApiError if it is an error."""
        found = self.resource.decode_event(line) or self._read(line)
        self.backoff.reset()
        if found is None:
            return
        kind, decoded = found
        self.events += 1
        if kind == "DELETED":
            if not decoded.key:
                raise ApiError(410, message="a deletion cannot be read: which object is gone?")
            self._reflection.remove(decoded.key)
        else:
            self._reflection.put(decoded)
        self._resource_version = decoded.resource_version or self._resource_version

    def _read(self, line: bytes) -> tuple[str, Decoded[T]] | None:
        """Read a line whose object may be malformed, or none of ours: None for a bookmark, which is heeded."""
        event = _EVENT.decode(line)
        if event.type == "ERROR":
            raise status_error(_STATUS.decode(event.object))
        if event.type == "BOOKMARK":
            self._resource_version = _BOOKMARK.decode(event.object).metadata.resource_version
            return None
        return event.type, self.resource.decode(event.object)


def _outdated(error: ApiError) -> bool:
    """Tell whether only a new list helps: the version is too old, from the future, or not understood."""
    if error.status == 504:
        return "too large resource version" in error.message.lower()
    return 400 <= error.status < 500 and error.status not in (401, 403, 429)
