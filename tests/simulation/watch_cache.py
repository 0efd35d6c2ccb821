"""
The watch cache of one API server: copies of the tables that follow the store, each as late as the scenario says.

After `k8s.io/apiserver/pkg/storage/cacher`: watches, and lists with a resourceVersion, are served from the cache; a
list without one is consistent, and waits for the cache at most three seconds before etcd is asked. A cache that is late
shows what was, never what was not: each table's changes come in their order.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Final

import anyio
import attrs

from sandbox.apiserver import listing, watch
from sandbox.apiserver.resources import LEASES, RESOURCES, Resource
from sandbox.apiserver.status import expired_continue, from_the_future
from sandbox.apiserver.store import Change, Object, Store
from tests.simulation.clock import CLOCK
from tests.simulation.scenario import FaultWindows

LAG: Final = "cache late"
POLICY_LAG: Final = "policy late"
POLICY: Final = "policy"
"""The copy of the Leases that the admission policies of a server read: a watch of its own, with a lag of its own."""
FRESH: Final = 3.0
"""Seconds that a request waits for the cache to reach its version (`blockTimeout`)."""
TABLES: Final = {resource.storage: resource.storage for resource in RESOURCES} | {POLICY: LEASES.storage}
"""The table that each copy follows."""

Deliveries = AsyncIterator[watch.Delivery]
FAULTY: ContextVar[Callable[[str, Deliveries], Deliveries]] = ContextVar("FAULTY")
"""What the request that is being answered does to the events of its watch."""


@attrs.define(eq=False)
class CachedTable:
    """One table as the cache has it; what is read of a `Store`."""

    source: Store
    table: str
    copy: Store = attrs.field(init=False)
    late: deque[tuple[float, Change]] = attrs.field(factory=deque, init=False)  # with the time when each is seen

    def __attrs_post_init__(self) -> None:
        self.copy = Store()
        for obj in self.source.objects(self.table):
            version = int(obj["metadata"]["resourceVersion"])
            self.copy.take(self.table, Change(version, "ADDED", obj, None))
        self.copy._version = self.source.version
        self.copy.expire([self.table])  # a new cache has no history: older versions are answered with 410

    @property
    def version(self) -> int:
        """The version up to which nothing of the table is missing."""
        return self.late[0][1].version - 1 if self.late else self.source.version

    def see(self, now: float) -> None:
        while self.late and self.late[0][0] <= now:
            self.copy.take(self.table, self.late.popleft()[1])

    def get(self, namespace: str, name: str) -> Object | None:
        return self.copy.get(self.table, namespace, name)

    def objects(self, table: str, namespace: str | None = None, *, at: int | None = None) -> list[Object]:
        """Return the objects as they are here."""
        assert at is None or at <= self.version
        return self.copy.objects(table, namespace)

    def position(self, table: str, version: int) -> int:
        return self.copy.position(table, version)

    def after(self, table: str, position: int) -> list[Change]:
        return self.copy.after(table, position)

    async def changed(self, table: str = "") -> None:
        await self.copy.changed(table)


@attrs.define(eq=False)
class WatchCache:
    """
    The cache of one server.

    Attributes:
        page: the most objects of a page, as a server may choose; 0 for what the client asks.
    """

    server: str
    store: Store
    windows: FaultWindows
    page_size: int = 0
    tables: dict[str, CachedTable] = attrs.field(init=False)
    _news: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.tables = {name: CachedTable(self.store, table) for name, table in TABLES.items()}
        self.store.listeners.append(self._committed)

    def detach(self) -> None:
        self.store.listeners.remove(self._committed)

    async def run(self) -> None:
        """Take what the store has committed, when it is due."""
        while True:
            self._news = anyio.Event()
            for table in self.tables.values():
                if table.late:
                    table.see(CLOCK.now)
            due = min((table.late[0][0] for table in self.tables.values() if table.late), default=None)
            with anyio.move_on_after(None if due is None else due - CLOCK.now):
                await self._news.wait()

    def expire(self) -> None:
        """Forget the history, as when there were more changes than the cache holds."""
        for name, table in self.tables.items():
            table.copy.expire([TABLES[name]])

    async def page(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> listing.Page:
        """Return the page that a list request asks for."""
        asked, table = listing.version_of(query), self.tables[resource.storage]
        if query.get("continue") and self.windows.strikes("page expired", self.server, resource.plural):
            raise expired_continue()
        if not asked and query.get("resourceVersion") != "0":
            await self._fresh(table, self.store.version)
            size = min(self.page_size or 500, int(query.get("limit") or 500))
            return listing.read(self.store, resource, namespace, {**query, "limit": str(size)})
        if query.get("resourceVersionMatch") == "Exact":
            return listing.read(self.store, resource, namespace, query)
        if asked and not await self._fresh(table, asked):
            raise from_the_future(asked, table.version)
        return listing.read(table, resource, namespace, query)

    def deliveries(self, asked: watch.Request, *, bookmark_interval: float) -> Deliveries:
        """Yield the events of a watch."""
        table = self.tables[asked.resource.storage]
        events = watch.deliveries(table, asked, bookmark_interval=bookmark_interval)
        return FAULTY.get()(asked.resource.plural, events)

    async def _fresh(self, table: CachedTable, version: int) -> bool:
        """Wait until a table has reached a version; return whether it has."""
        with anyio.move_on_after(FRESH):
            while table.version < version:
                await table.changed(table.table)
            return True
        return False

    def _committed(self, table: str, change: Change) -> None:
        for name, source in TABLES.items():
            if source == table:
                lag = self.windows.strikes(POLICY_LAG if name == POLICY else LAG, self.server, name)
                late = self.tables[name].late
                due = CLOCK.now if lag is None else min(CLOCK.now + lag.seconds, lag.until)
                late.append((max(due, late[-1][0]) if late else due, change))
        self._news.set()
