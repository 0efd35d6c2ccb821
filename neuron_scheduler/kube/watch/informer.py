"""
List and watch one resource for as long as the process lives, and call a handler for each change.

client-go's reflector (`tools/cache/reflector.go`) without its machinery: one task, plain synchronous callbacks, no
queue in between. Survives closed, cut, silent and half-open connections, expired versions and tokens, overload (429),
lines and objects that cannot be read, and a version from which every watch fails. Refuses to interpret objects: their
`Resource` reads and compares them, `pager` lists them, `object_store` keeps them.
"""

import heapq
import random as randomness
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, Generic

import anyio
import attrs
from anyio.lowlevel import checkpoint

from neuron_scheduler.errors import ApiError, OversizedLineError, UnreachableError
from neuron_scheduler.kube.http.backoff import Backoff
from neuron_scheduler.kube.http.stream import Stream
from neuron_scheduler.kube.objects.base import Decoded, Resource
from neuron_scheduler.kube.objects.resource_version import as_number
from neuron_scheduler.kube.watch.failure import hint, in_words
from neuron_scheduler.kube.watch.object_store import Handler, ObjectStore, T
from neuron_scheduler.kube.watch.pager import Api, Pager
from neuron_scheduler.kube.watch.watch_line import (
    BOOKMARK,
    DeadEndError,
    decode_beginning,
    decode_line_in_steps,
    is_dead_end,
    may_follow,
)
from neuron_scheduler.telemetry import logs

BATCH: Final = 25  # objects handled before other tasks may run
LINE_BYTES: Final = 16 << 10  # of a line that count as one object
WATCH_SECONDS: Final = 15  # and up to a third more, so that replicas do not reconnect together
WATCH_SLACK: Final = 5.0  # for a server that closes a watch a little late
HEALTHY: Final = 5.0  # a watch that lasted so long may be opened again at once
MOST_SILENT: Final = 10  # watches in a row without a bookmark, although the server's version moved on
TRIES: Final = 3  # failures in a row from one version before the resource is listed
DAMAGED_LISTS: Final = 3  # in a row, before an object that is no JSON is kept as malformed
LONGEST_PAUSE: Final = 10.0  # between two tries; with the 15 s of a Lease less than the 30 s of the promise
SETTLED: Final = 120.0  # a list within so many seconds of the last one waits, as with client-go's backoff manager
STALE: Final = 120.0  # our view counts as stale after so many seconds without a sign that it is current

log = logs.logger(__name__)


def _ignore(_resource: str) -> None:
    """Do nothing."""


@attrs.define(eq=False, kw_only=True)
class Informer(Generic[T]):
    """
    Calls a handler for each change of one resource.

    A watch lasts 15 to 20 s and is then opened again at the last version, which costs the server little. So a
    connection that is silent and dead is replaced within 25 s, whatever proxies are between us and the server: a pod
    that fits must not wait for longer than half a minute after the last fault. For the same reason the longest pause
    between two tries is a third of client-go's: a replica that starts lists everything, and only then waits for the end
    of a Lease whose holder has died.

    Attributes:
        on_failure: called with the resource's name when a list or watch has failed.
        on_unhandled: called with it when the handler has failed on an object.
        replacing: returns a context that is entered while a list is handed over, additions before deletions.
        time_limit: returns a scope that is cancelled after so many seconds; a watch runs in it.
        synced: set when the first list has been handled.
        lists, watches, events: how many there have been.
        version: of the event or list that is being handed over.
        problem: why the last list or watch failed, in words; empty if it did not.
    """

    client: Api
    resource: Resource[T]
    handler: Handler[T]
    on_failure: Callable[[str], None] = _ignore
    on_unhandled: Callable[[str], None] = _ignore
    replacing: Callable[[], AbstractContextManager[None]] = nullcontext
    clock: Callable[[], float] = time.monotonic
    time_limit: Callable[[float], anyio.CancelScope] = anyio.move_on_after
    random: Callable[[], float] = randomness.random
    backoff: Backoff = attrs.field(factory=lambda: Backoff(randomness.random, most=LONGEST_PAUSE))
    synced: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    lists: int = attrs.field(default=0, init=False)
    watches: int = attrs.field(default=0, init=False)
    events: int = attrs.field(default=0, init=False)
    version: str = attrs.field(default="", init=False)
    problem: str = attrs.field(default="", init=False)
    _pager: Pager[T] = attrs.field(init=False)
    _store: ObjectStore[T] = attrs.field(init=False)
    _relisting: Backoff = attrs.field(init=False)
    _resource_version: str = attrs.field(default="", init=False)
    _opened_at: float | None = attrs.field(default=None, init=False)
    _listed_at: float | None = attrs.field(default=None, init=False)
    _current_at: float | None = attrs.field(default=None, init=False)
    _opened_from: str = attrs.field(default="", init=False)
    _received: bool = attrs.field(default=False, init=False)
    _silent: int = attrs.field(default=0, init=False)
    _failures: int = attrs.field(default=0, init=False)
    _scope: anyio.CancelScope | None = attrs.field(default=None, init=False)
    _resyncs: int = attrs.field(default=0, init=False)
    _resynced: int = attrs.field(default=0, init=False)  # how many of those requests a list has answered
    _listed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._pager = Pager(self.client, self.resource, gives_up=DAMAGED_LISTS)
        self._relisting = attrs.evolve(self.backoff)
        self._store = ObjectStore(
            handler=self.handler,
            kind=self.resource.kind,
            same=self.resource.same,
            failed=partial(self.on_unhandled, self.resource.name),
        )

    def __len__(self) -> int:
        """Number of objects that are known and readable."""
        return len(self._store)

    def get(self, key: str) -> T | None:
        """Return the last known state of an object that could be read, by its key; None if there is none."""
        return self._store.get(key)

    def objects(self) -> Iterable[T]:
        """Return the last known state of all objects that could be read."""
        return self._store.objects()

    @property
    def stale(self) -> bool:
        """Whether our view may be out of date: lists and watches have failed for minutes."""
        return self._current_at is not None and self.clock() - self._current_at > STALE

    @property
    def described(self) -> str:
        """Where the resource is, and why it could not be listed or watched if the last try failed."""
        return f"{self.resource.path} ({self.problem})" if self.problem else self.resource.path

    async def run(self) -> None:
        """List and watch until cancelled, whatever the API server answers."""
        while True:
            with anyio.CancelScope() as self._scope:
                await anyio.sleep(await self._cycle())

    async def resync(self) -> None:
        """
        Return when a consistent list that began after this call has been handled (after a takeover).

        An event or a list that is already on its way does not count.
        """
        self._resyncs += 1
        number = self._resyncs
        if self._scope is not None:
            self._scope.cancel()
        while self._resynced < number:
            await self._listed.wait()

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
            retry_after = self._failed(error)
        else:
            self._progressed()
        if not self._resource_version:
            return max(self._pause(retry_after), self._pause_before_list())
        return self._pause(retry_after)

    def _pause(self, retry_after: float | None) -> float:
        """Return the seconds to wait: none after a watch that lasted for a while, unless the server asks for more."""
        if self._opened_at is not None and self.clock() - self._opened_at >= HEALTHY:
            self.backoff.reset()
            return retry_after or 0.0
        return self.backoff.next(at_least=retry_after)

    def _pause_before_list(self) -> float:
        """Return the seconds to wait before the next list, so that a bad line does not cause list after list."""
        if self._listed_at is None or self.clock() - self._listed_at >= SETTLED:
            self._relisting.reset()
            return 0.0
        return self._relisting.next()

    def _progressed(self) -> None:
        """Record that our view is current."""
        self._current_at = self.clock()
        self._failures = 0
        self.problem = ""
        self.backoff.reset()

    def _failed(self, error: ApiError | UnreachableError) -> float | None:
        """Count a failure, give up the version if it may be at fault, and return the wait that the server asks for."""
        if self._resource_version != self._opened_from:
            self._progressed()
        self._failures += 1
        self.problem = in_words(error)
        self.on_failure(self.resource.name)
        if is_dead_end(error) or self._failures % TRIES == 0:
            self._resource_version = ""
        if isinstance(error, ApiError | DeadEndError) or self._failures >= TRIES:
            known = {"hint": advice} if (advice := hint(error)) else {}
            log.warning("Watch failed", resource=self.resource.path, failures=self._failures, **known, exc=error)
        else:
            log.v(2).info("Watch broke off", resource=self.resource.path, err=error)
        return error.retry_after if isinstance(error, ApiError) else None

    async def _list(self) -> None:
        """List, again from the start if the continue token has expired, and hand over the differences."""
        answered = self._resyncs  # later requests need a later list
        try:
            pages, version = await self._pages()
        except ApiError as error:
            if error.status != 410:
                raise
            pages, version = await self._pages()
        self.version = version
        with self.replacing():
            await self._replace(pages)
        self._resource_version = version
        self.lists += 1
        self._listed_at = self.clock()
        self._silent = 0
        self._progressed()
        self._resynced = answered
        self.synced.set()
        self._listed.set()
        self._listed = anyio.Event()

    async def _pages(self) -> tuple[Sequence[Sequence[Decoded[T]]], str]:
        """Return all objects, page by page, each in order, and the version of the list."""
        pages, version = [], ""
        async for page in self._pager.pages():
            pages.append(sorted(page.objects, key=self.resource.position))
            version = page.version
        return pages, version

    async def _replace(self, pages: Sequence[Sequence[Decoded[T]]]) -> None:
        """
        Hand over new and changed objects, then deletions, so that nothing looks free in between.

        Each page is in order; they are merged as they are handed over, because sorting all would block the event loop.
        """
        for number, decoded in enumerate(heapq.merge(*pages, key=self.resource.position), start=1):
            self._store.put(decoded)
            if number % BATCH == 0:
                await checkpoint()
        for key in self._store.missing({decoded.key for page in pages for decoded in page}):
            self._store.remove(key)

    async def _watch(self) -> None:
        """Follow the changes since the last known version until the watch's time is over."""
        seconds = WATCH_SECONDS + int(WATCH_SECONDS * self.random() / 3)
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
            await self._check_version()

    async def _follow(self, stream: Stream) -> None:
        """Handle all lines until the server closes the watch."""
        handled = 0
        while True:
            change = None
            try:
                line = await stream.next()
                if not line:
                    return
                if not self._take(line):
                    change = await decode_line_in_steps(self.resource, line)
            except OversizedLineError as error:
                line, change = error.beginning, await decode_beginning(self.resource, error)
            if change is not None:
                self._handle(*change)
            self._received = True
            handled += 1 + len(line) // LINE_BYTES
            if handled >= BATCH:
                handled = 0
                await checkpoint()

    async def _check_version(self) -> None:
        """
        Find out whether silence means that nothing happened.

        A watch from a future version is silent too. Otherwise bookmarks show that a watch works; but if a resource did
        not change, servers before 1.31 send none for minutes.

        Raises:
            DeadEndError: silence means that the watch does not work.
        """
        now, known = await self._pager.version(), self._resource_version
        new, old = as_number(now), as_number(known)
        if new is not None and old is not None and new < old:
            raise DeadEndError(f"known version {known} is newer than the server's version {now}")
        if now != known and self._silent >= MOST_SILENT:
            raise DeadEndError(f"{self._silent} watches in a row were silent, without a bookmark")

    def _take(self, line: bytes) -> bool:
        """Handle a line that can be decoded at once; return False for any other."""
        change = self.resource.decode_change(line)
        if change is None:
            return False
        self._handle(*change)
        return True

    def _handle(self, event_type: str, decoded: Decoded[T]) -> None:
        """
        Hand over an event.

        Raises:
            DeadEndError: no API server sends it, so it was damaged on its way, or one before it.
        """
        if not may_follow(decoded.resource_version, self._resource_version):
            raise DeadEndError(f"version {decoded.resource_version!r} came after {self._resource_version!r}")
        if not decoded.uid and event_type != BOOKMARK:
            raise DeadEndError(f"the object {decoded.key} of an event has no uid")
        self.version = decoded.resource_version or self._resource_version
        if event_type == "DELETED":
            self.events += 1
            self._store.remove(decoded.key)
        elif event_type != BOOKMARK:
            self.events += 1
            self._store.put(decoded)
        self._resource_version = self.version
