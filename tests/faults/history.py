"""
What really happened: every change of pods, nodes, Leases, Events and claims at the API server, and its judgement.

Recorded by watches directly at the API server, beside the proxy, and judged by the oracles of the simulation. Refuses
to have rules of its own.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

import aiohttp
import anyio
import attrs

from tests.control_plane.rest import ApiError, Object, RestClient
from tests.simulation.oracles.change import ADDED, recorded
from tests.simulation.oracles.judge import LEASE, Terms, judge
from tests.simulation.oracles.reading import newly_bound
from tests.support.patience import PATIENCE

COLLECTIONS: Final = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "Lease": "/apis/coordination.k8s.io/v1/leases",
    "Event": "/apis/events.k8s.io/v1/events",
    "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims",
}
PAUSE: Final = 0.1  # seconds before a watch that has ended is opened again


@attrs.define(eq=False)
class History:
    """
    What the watches have delivered so far.

    Attributes:
        events: the time of the delivery, the type, and the object.
        started_at: wall clock, in seconds since 1970, when the history's clock was 0.
    """

    started_at: float
    events: list[tuple[float, str, Object]] = attrs.field(factory=list, init=False)
    _more: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def add(self, kind: str, change: str, item: Object) -> None:
        """Record an event; the items of a list do not name their kind."""
        self.events.append((time.time() - self.started_at, change, {"kind": kind, **item}))
        self._more.set()

    async def complete(self, api: RestClient) -> None:
        """Wait until it has the present version of every pod."""
        pods = (await api.get(COLLECTIONS["Pod"]))["items"]
        wanted = {_version(pod) for pod in pods}
        with anyio.fail_after(PATIENCE):
            while not wanted <= {_version(item) for _, _, item in self.events}:
                self._more = anyio.Event()
                await self._more.wait()

    def bound(self) -> Counter[str]:
        """Return how often each pod, by its uid, got a node."""
        changes = recorded(self.events)
        return Counter(change.uid for change in changes if newly_bound(change.previous, change.after))

    def violations(self, *, lease: str = LEASE[1], fenced: bool = False, told_within: float = 60.0) -> list[str]:
        """Return what the oracles complain about."""
        terms = Terms(lease=(LEASE[0], lease), fenced=fenced, told_within=told_within, started_at=self.started_at)
        return [f"{found.oracle}: {found.text}" for found in judge(recorded(self.events), terms)]


@asynccontextmanager
async def recording(api: RestClient) -> AsyncIterator[History]:
    """Record from now until the block is left; what is there already counts as added."""
    history = History(time.time())
    async with anyio.create_task_group() as tasks:
        for kind, path in COLLECTIONS.items():
            listing = await api.get(path)
            for item in listing["items"]:
                history.add(kind, ADDED, item)
            tasks.start_soon(_follow, api, history, kind, listing["metadata"]["resourceVersion"])
        yield history
        tasks.cancel_scope.cancel()


async def _follow(api: RestClient, history: History, kind: str, version: str) -> None:
    """Record a watch, and go on from its last version when the server closes it or is away."""
    while True:
        with suppress(ApiError, aiohttp.ClientError):
            async with aclosing(api.watch(COLLECTIONS[kind], version)) as events:
                async for change, item in events:
                    version = item["metadata"]["resourceVersion"]
                    history.add(kind, change, item)
        await anyio.sleep(PAUSE)


def _version(item: Object) -> tuple[str, str]:
    return item["metadata"]["uid"], item["metadata"]["resourceVersion"]
