"""
List and watch one resource for as long as it is served, and call a handler for each change.

client-go's reflector (`tools/cache/reflector.go`) as one task with synchronous callbacks. It survives closed, cut,
silent and half-open connections, expired versions and tokens, overload (429), unreadable objects, and a version from
which every watch fails. A line or page that cannot be decoded is one line in the log and a new list.
"""

import asyncio
import heapq
import random as randomness
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import anyio
import attrs
import msgspec
from anyio.lowlevel import checkpoint

from neuron_scheduler.kube.http.client import Client, Stream
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.http.status import UNKNOWN_USER, status_error
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Decoded, Resource
from neuron_scheduler.kube.objects.json_scanner import decode_in_steps
from neuron_scheduler.kube.watch.object_store import Handler, ObjectStore, T
from neuron_scheduler.steps import LONGEST_TURN
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, ApiTimeoutError, UnreachableError

PAGE: Final = 500  # objects of a list that are requested first; their size says how many the next pages may have
LARGEST_PAGE: Final = 2_000  # objects; for each page the API server goes through all that are left
PAGE_BYTES: Final = 6 << 20  # the size that a page should have; it may have twice as much, and is read in one step
SMALLER: Final = 8  # times, the next limit after a page that was too large or too late
STEP_BYTES: Final = 512 << 10  # of a page that are read before other tasks may run: a megabyte takes up to 20 ms
PAGE_TIMEOUT: Final = 60.0
PAGE_TRIES: Final = 5  # of a page that is answered with 429
PAGE_SILENCE: Final = 10.0  # seconds without a byte; with the 15 s of a Lease less than the 30 s of the promise
PARTS: Final = 64  # of the keys that a list has not shown yet: a dictionary of 100,000 grows in a step of 12 ms
BATCH: Final = 25  # objects handled before other tasks may run
WATCH_SECONDS: Final = 15  # and up to a third more, so that replicas do not reconnect together
SHORT_WATCH: Final = 3  # kube-apiserver sends a bookmark 2 s before a watch's end, or up to a second later
MANY: Final = 5_000  # objects; a list of fewer comes sooner than that bookmark
LISTED: Final = 10_000  # objects of a list in a second
WATCH_SLACK: Final = 5.0  # for a server that closes a watch a little late
HEALTHY: Final = 5.0  # a watch that lasted so long may be opened again at once
MOST_SILENT: Final = 10  # watches in a row before the resource is listed: some three minutes
TRIES: Final = 3  # failures in a row from one version before the resource is listed
LONGEST_PAUSE: Final = 10.0  # between two tries; with the 15 s of a Lease less than the 30 s of the promise
STALE: Final = 120.0  # our view counts as stale after so many seconds without a sign that it is current
BOOKMARK: Final = "BOOKMARK"
REMEDIES: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: UNKNOWN_USER,
        403: "the right to list or watch it is missing; apply the manifests or the chart again",
        404: "the API server does not serve it; remove what switches it off from kube-apiserver's --runtime-config",
    }
)
"""What is wrong and what to do, by the status of the API server's answer."""

V = TypeVar("V")
_LIST: Final = msgspec.json.Decoder(wire.List)
_EVENT: Final = msgspec.json.Decoder(wire.Event)
_BOOKMARK: Final = msgspec.json.Decoder(wire.Versioned)
_STATUS: Final = msgspec.json.Decoder(wire.Status)

log = logs.logger(__name__)


class DeadEndError(UnreachableError):
    """A watch cannot continue from its version: only a list helps."""


async def pages(client: Client, resource: Resource[V]) -> AsyncIterator[tuple[Sequence[Decoded[V]], str]]:
    """
    Yield the objects of each page of one consistent list, and its version.

    client-go's pager (`tools/pager/pager.go`) counts objects; 500 pods of a megabyte would be half a gigabyte. A page
    that is too large, or does not come, is requested with a smaller limit over another connection, down to one object.
    The first connection may be dead behind a proxy that acknowledges bytes. The next page is on its way while one is
    decoded.

    Raises:
        ApiError: 410 if the list took so long that its continue token has expired; others as the client.
        UnreachableError: a page does not come, or cannot be read.
    """
    body = await _page(client, resource, PAGE, "")
    while True:
        listed = await _read_list(resource, body)
        items, token = listed.items or (), listed.metadata.continue_ or ""
        limit = min(LARGEST_PAGE, max(1, PAGE_BYTES * len(items) // len(body)))
        ahead = asyncio.create_task(_page(client, resource, limit, token)) if token else None
        try:
            yield await _decode(resource, items, len(body)), listed.metadata.resource_version
            if ahead is None:
                return
            body = await ahead
        finally:
            if ahead is not None:
                ahead.cancel()
                ahead.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody else asks for it
        await checkpoint()


async def _page(client: Client, resource: Resource[V], limit: int, token: str) -> bytes:
    """Return a page's bytes, with fewer objects than asked for if it would be too large or too late."""
    while True:
        try:
            body = await _page_of(client, resource, limit, token)
        except ApiTimeoutError:
            if limit == 1:
                raise
            body = None
        if body is not None:
            return body
        if limit == 1:
            raise UnreachableError(f"an object in the list of {resource.path} is larger than any may be")
        limit = max(1, limit // SMALLER)


async def _page_of(client: Client, resource: Resource[V], limit: int, token: str) -> bytes | None:
    """Return a page's bytes, None if it is too large; a 429 is retried, or the pages before would be lost."""
    params = {**resource.params, "limit": str(limit), **({"continue": token} if token else {})}
    tries = 0
    while True:
        tries += 1
        try:
            with anyio.fail_after(PAGE_TIMEOUT):
                async with client.stream(resource.path, params=params, read_timeout=PAGE_SILENCE) as stream:
                    return await stream.whole(2 * PAGE_BYTES)
        except TimeoutError as error:
            raise ApiTimeoutError(f"no page of {resource.path} within {PAGE_TIMEOUT:g} s") from error
        except ApiError as error:
            if error.status != 429 or tries == PAGE_TRIES:
                raise
            await anyio.sleep(1.0 if error.retry_after is None else error.retry_after)


async def _read_list(resource: Resource[V], body: bytes) -> wire.List:
    try:
        return await decode_in_steps(body, _LIST)
    except (ValueError, RecursionError) as error:
        start = body[:200].decode(errors="replace")
        raise UnreachableError(f"the answer to GET {resource.path} is no list: {error}: {start}") from error


async def _decode(resource: Resource[V], items: Sequence[msgspec.Raw], size: int) -> list[Decoded[V]]:
    step = max(1, min(BATCH, STEP_BYTES * len(items) // size))
    objects = []
    for number, item in enumerate(items, start=1):
        objects.append(_require_name(resource.decode(item)))
        if number % step == 0:
            await checkpoint()
    return objects


async def read_line(resource: Resource[V], line: bytes) -> tuple[str, Decoded[V]] | None:
    """
    Return what a line of a watch says that `Resource.decode_change` could not read at once.

    It is the type of an event with its object, or BOOKMARK with only a version; None for a blank line.

    Raises:
        ApiError: the server asks us to wait (429).
        DeadEndError: the line is another error, or cannot be read; the next watch would deliver it again.
        UnreachableError: the line was cut off.
    """
    if not line.endswith(b"\n"):
        raise UnreachableError("the last line of the watch was cut off")
    if not line.strip():
        return None  # some proxies send it to keep a connection alive
    try:
        event = await decode_in_steps(line, _EVENT)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            return event.type, _require_name(resource.decode(event.object))
        if event.type == BOOKMARK:
            return BOOKMARK, Decoded("", "", _BOOKMARK.decode(event.object).metadata.resource_version, None)
        error = status_error(_STATUS.decode(event.object))
    except (ValueError, RecursionError) as cause:
        raise DeadEndError(f"line of the watch cannot be read: {cause}") from cause
    if error.status == 429:
        raise error
    raise DeadEndError(f"{event.type[:20]} event: {error}")


def _require_name(decoded: Decoded[V]) -> Decoded[V]:
    """Return an object with a name; without one nobody knows what has changed."""
    if not decoded.key:
        raise DeadEndError("an object cannot be read, not even its name")
    return decoded


def _take_each(page: list[V]) -> Iterator[V]:
    while page:
        yield page.pop()


def _is_dead_end(error: ApiError | UnreachableError) -> bool:
    """
    Return whether only a list helps: the version is too old, or too new for a server that lags behind.

    client-go lists after any refusal but 429. For an overloaded server a list is the most expensive request. So after
    other errors we list only when several watches in a row have failed.
    """
    if isinstance(error, UnreachableError):
        return isinstance(error, DeadEndError)
    if error.status == 504:
        return "too large resource version" in error.message.lower()
    return 400 <= error.status < 500 and error.status not in (401, 403, 429)


def _in_words(error: ApiError | UnreachableError) -> str:
    """Return why a list or watch failed, in our words: /readyz shows them to everybody."""
    if not isinstance(error, ApiError):
        return "no usable answer came; see the log"
    return REMEDIES.get(error.status, f"the answer was {error.status}; see the log")


@attrs.define(eq=False, kw_only=True)
class Informer(Generic[T]):
    """
    Calls a handler for each change of one resource.

    A pod that fits waits at most half a minute after the last fault. So a watch lasts 15 to 20 s and is then opened
    again at the last version: a dead connection is replaced within 25 s, whatever proxies are in between. For the same
    reason the longest pause between two tries is a third of client-go's.

    Attributes:
        on_failure: called with the resource's name when a list or watch has failed.
        on_unhandled: called with it when the handler has failed on an object.
        time_limit: returns a scope that is cancelled after so many seconds; a watch runs in it.
        after: what a list waits for before it is handed over.
        begun: set when the first page of a list has come.
        pages: the most that have come of one list, since a takeover began; one that begins anew is no progress.
        synced: set when the first list has been handled.
        version: of the event or list that is being handed over.
        problem: why the last list or watch failed, in words; empty if it did not.
        life: ends the informer when it is cancelled: all objects are deleted.
    """

    client: Client
    resource: Resource[T]
    on_failure: Callable[[str], None]
    on_unhandled: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    time_limit: Callable[[float], anyio.CancelScope] = anyio.move_on_after
    random: Callable[[], float] = randomness.random
    backoff: Backoff = attrs.field(factory=lambda: Backoff(randomness.random, most=LONGEST_PAUSE))
    after: anyio.Event | None = None
    begun: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    synced: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    pages: int = attrs.field(default=0, init=False)
    lists: int = attrs.field(default=0, init=False)
    watches: int = attrs.field(default=0, init=False)
    events: int = attrs.field(default=0, init=False)
    version: str = attrs.field(default="", init=False)
    problem: str = attrs.field(default="", init=False)
    life: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _store: ObjectStore[T] = attrs.field(init=False)
    _listing: Callable[[], AbstractContextManager[None]] = attrs.field(default=nullcontext, init=False)
    _resource_version: str = attrs.field(default="", init=False)
    _opened_at: float | None = attrs.field(default=None, init=False)
    _current_at: float | None = attrs.field(default=None, init=False)
    _opened_from: str = attrs.field(default="", init=False)
    _received: bool = attrs.field(default=False, init=False)
    _silent: int = attrs.field(default=0, init=False)
    _failures: int = attrs.field(default=0, init=False)
    _scope: anyio.CancelScope | None = attrs.field(default=None, init=False)
    _is_hurried: bool = attrs.field(default=False, init=False)
    _resyncs: int = attrs.field(default=0, init=False)
    _resynced: int = attrs.field(default=0, init=False)  # how many of those requests a list has answered
    _listed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def add_event_handler(
        self, handler: Handler[T], *, listing: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """
        Hand all changes to a handler; to be called once, before `run`.

        `listing` returns a context that is entered while a list is handed over, additions before deletions.
        """
        self._listing = listing
        self._store = ObjectStore(
            handler=handler,
            kind=self.resource.kind,
            is_same=self.resource.is_same,
            on_failure=partial(self.on_unhandled, self.resource.name),
        )

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: str) -> T | None:
        """Return the last known state of an object that could be read, by its key; None if there is none."""
        return self._store.get(key)

    @property
    def is_stale(self) -> bool:
        """Whether our view may be out of date: lists and watches have failed for minutes."""
        return self._current_at is not None and self.clock() - self._current_at > STALE

    @property
    def description(self) -> str:
        """Where the resource is, and why it could not be listed or watched if the last try failed."""
        return f"{self.resource.path} ({self.problem})" if self.problem else self.resource.path

    async def run(self) -> None:
        with self.life:
            while True:
                with anyio.CancelScope() as self._scope:
                    await anyio.sleep(await self._cycle())
        await self._replace([])

    async def catch_up(self) -> None:
        """
        Return when everything that was committed before this call has been handled (after a takeover).

        The watch of many objects may have shown the version of now, by an event or a bookmark, before a list has come.
        If it has not within the time of a list, they are listed.
        """
        self._is_hurried, is_shown = len(self) >= MANY, False
        with (
            anyio.move_on_after(len(self) / LISTED if self._is_hurried else 0),
            suppress(ApiError, UnreachableError, ValueError),
        ):
            before, body = int(self._resource_version), await _page(self.client, self.resource, 1, "")
            now = int((await _read_list(self.resource, body)).metadata.resource_version)
            self._start_again()
            while not is_shown:  # looked at from here, so that no event costs more
                await anyio.sleep(0.02)
                is_shown = before <= now <= int(self._resource_version or 0)
        self._is_hurried = False
        self.pages = 0  # those of the next list are progress
        self._resyncs += not is_shown
        number = self._resyncs
        self._start_again()
        while self._resynced < number:
            await self._listed.wait()

    def _start_again(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    async def _cycle(self) -> float:
        """List if necessary, watch until the watch ends, and return how many seconds to wait before the next cycle."""
        self._opened_at = None
        self._received = False
        retry_after: float | None = None
        self._opened_from = self._resource_version
        try:
            if not self._resource_version or self._resynced < self._resyncs:
                await self._list()
            self._opened_from = self._resource_version
            await self._watch()
        except (ApiError, UnreachableError) as error:
            retry_after = self._handle_failure(error)
        else:
            self._note_progress()
        return self._pause(retry_after)

    def _pause(self, retry_after: float | None) -> float:
        """Return the seconds to wait: none after a watch that lasted for a while, unless the server asks for more."""
        lasted = self._opened_at is not None and self.clock() - self._opened_at >= HEALTHY
        if lasted or self._received:  # else a watch that fails after every list would cause list after list
            self.backoff.reset()
        return (retry_after or 0.0) if lasted else self.backoff.next(at_least=retry_after)

    def _note_progress(self) -> None:
        self._current_at = self.clock()
        self._failures = 0
        self.problem = ""

    def _handle_failure(self, error: ApiError | UnreachableError) -> float | None:
        """Count a failure, give up the version if it may be at fault, and return the wait that the server asks for."""
        if self._resource_version != self._opened_from:
            self._note_progress()
        self._failures += 1
        self.problem = _in_words(error)
        self.on_failure(self.resource.name)
        if _is_dead_end(error) or self._failures % TRIES == 0:
            self._resource_version = ""
        if isinstance(error, ApiError | DeadEndError) or self._failures >= TRIES:
            known = {"hint": self.problem} if isinstance(error, ApiError) and error.status in REMEDIES else {}
            log.warning("Watch failed", resource=self.resource.path, failures=self._failures, **known, exc=error)
        else:
            log.v(2).info("Watch broke off", resource=self.resource.path, err=error)
        return error.retry_after if isinstance(error, ApiError) else None

    async def _list(self) -> None:
        """List, again from the start if the continue token has expired, and hand over the differences."""
        answered = self._resyncs  # later requests need a later list
        try:
            listed, version = await self._pages()
        except ApiError as error:
            if error.status != 410:
                raise
            listed, version = await self._pages()
        if self.after is not None:
            await self.after.wait()
        self.version = version
        with self._listing():
            await self._replace(listed)
        self._resource_version = version
        self.lists += 1
        self._silent = 0
        self._note_progress()
        self._resynced = answered
        self.synced.set()
        self._listed.set()
        self._listed = anyio.Event()

    async def _pages(self) -> tuple[list[list[Decoded[T]]], str]:
        listed, version = list[list[Decoded[T]]](), ""
        async for objects, version in pages(self.client, self.resource):  # noqa: B007 - of all pages
            self.begun.set()
            page = []
            for number, decoded in enumerate(objects, start=1):
                known = self._store.get(decoded.key)  # most are as they were: nobody has room for all of them twice
                page.append(attrs.evolve(decoded, value=known) if known == decoded.value else decoded)
                if number % BATCH == 0:
                    await checkpoint()
            listed.append(sorted(page, key=self.resource.position, reverse=True))
            self.pages = max(self.pages, len(listed))
        return listed, version

    async def _replace(self, listed: list[list[Decoded[T]]]) -> None:
        """
        Hand over new and changed objects, then deletions, so that nothing looks free in between.

        Each page is in order, the first object at its end; they are merged as they are handed over, because sorting all
        would block the event loop. So would freeing all at the end: most are as they were, and nobody keeps them.
        """
        left: Sequence[dict[str, None]] = [{} for _ in range(PARTS)]
        for number, key in enumerate(self._store.keys(), start=1):
            left[hash(key) % PARTS][key] = None
            if number % PAGE == 0:
                await checkpoint()
        merged = heapq.merge(*map(_take_each, listed), key=self.resource.position)
        listed.clear()  # each page gives its memory back when it is empty, not all at the end
        for number, decoded in enumerate(merged, start=1):
            self._store.put(decoded)
            left[hash(decoded.key) % PARTS].pop(decoded.key, None)
            if number % BATCH == 0:
                await checkpoint()
        for number, key in enumerate(chain.from_iterable(left), start=1):
            self._store.remove(key)
            if number % BATCH == 0:
                await checkpoint()

    async def _watch(self) -> None:
        seconds = SHORT_WATCH if self._is_hurried else WATCH_SECONDS + int(WATCH_SECONDS * self.random() / 3)
        params = {
            **self.resource.params,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(seconds),
        }
        most = seconds + WATCH_SLACK
        self._opened_at = self.clock()  # before the request: some proxies send no header before the first event
        with self.time_limit(most) as scope:
            async with self.client.stream(self.resource.path, params=params, read_timeout=most) as stream:
                self.watches += 1
                await self._follow(stream)
        if self._received:
            self._silent = 0
        elif scope.cancelled_caught:
            raise DeadEndError(f"the watch was silent for {most:g} s, and not closed in time")
        elif self.clock() - self._opened_at < HEALTHY:
            raise UnreachableError("the watch was closed at once, without an event")
        else:
            self._silent += 1
            if self._silent == MOST_SILENT:  # not even a bookmark came: nothing happened, or the watch does not work
                self._resource_version = ""

    async def _follow(self, stream: Stream) -> None:
        handled, turn_ends = 0, self.clock() + LONGEST_TURN
        while line := await stream.next():
            change = self.resource.decode_change(line) or await read_line(self.resource, line)
            if change is not None:
                self._handle(*change)
            self._received = True
            handled += 1
            if handled == BATCH or self.clock() >= turn_ends:  # a claim may have twenty thousand pods
                await checkpoint()
                handled, turn_ends = 0, self.clock() + LONGEST_TURN

    def _handle(self, event_type: str, decoded: Decoded[T]) -> None:
        self.version = decoded.resource_version
        if event_type == "DELETED":
            self.events += 1
            self._store.remove(decoded.key)
        elif event_type != BOOKMARK:
            self.events += 1
            self._store.put(decoded)
        self._resource_version = self.version


def sync_problem(informers: Iterable[Informer[Any]]) -> str | None:
    """Return what is not listed yet, and why where that is known; None if all is."""
    missing = [informer.description for informer in informers if not informer.synced.is_set()]
    return f"not listed yet: {', '.join(missing)}" if missing else None
