"""
Follows the pods at the API server, as everybody else sees them, and writes their history.

An API server that is short of CPU ends the watch of a client that is slow for a moment; then the watch continues where
it was. If the server no longer has the events in between, the pods are listed: what was created and ended meanwhile is
never seen then. Refuses to judge what it sees: that is for the history.
"""

import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import Final

import aiohttp
import anyio
import attrs

from benchmarks.replicas.history import History
from tests.control_plane.rest import Object, RestClient
from tests.end_to_end.workload import PODS

PAUSE: Final = 0.1  # seconds before a list


@attrs.define(eq=False)
class Observer:
    """
    Writes a history, and lets others wait for it.

    Attributes:
        also: called with the kind and the pod of each event, after the history has it.
    """

    api: RestClient
    history: History
    also: Callable[[str, Object], object] = lambda _kind, _pod: None
    _pods: dict[str, Object] = attrs.field(factory=dict, init=False)
    _seen: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    async def run(self, version: str) -> None:
        """
        Follow the pods from that version on until cancelled.

        Raises:
            ApiError: the server refuses the watch.
        """
        while True:
            before = version
            with suppress(aiohttp.ClientError):
                async with aclosing(self.api.watch(PODS, version)) as events:
                    async for kind, pod in events:
                        version = pod["metadata"]["resourceVersion"]
                        self._take(kind, pod)
            if version == before:
                await anyio.sleep(PAUSE)
                version = await self._list()

    async def _list(self) -> str:
        """Hand over what is gone, then what is there; return the version of the list."""
        listing = await self.api.get(PODS)
        there = {pod["metadata"]["uid"]: pod for pod in listing["items"]}
        for pod in [pod for uid, pod in self._pods.items() if uid not in there]:
            self._take("DELETED", pod)
        for pod in there.values():
            self._take("MODIFIED", pod)
        return str(listing["metadata"]["resourceVersion"])

    def _take(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        self._pods.pop(uid, None)
        if kind != "DELETED":
            self._pods[uid] = pod
        self.history.note(kind, pod, time.perf_counter())
        self.also(kind, pod)
        self._seen.set()

    async def until(self, met: Callable[[], bool], *, within: float) -> bool:
        """Wait until a condition on the history holds; return whether it does within so many seconds."""
        with anyio.move_on_after(within):
            while not met():
                self._seen = anyio.Event()
                await self._seen.wait()
        return met()
