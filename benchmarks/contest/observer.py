"""
Observes when each pod gets its node, at the least cost for the API server and this process.

A watch of metadata only, in protobuf, of pods that have a node; frames are counted and names extracted, nothing is
decoded. The contenders share the machine with us.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Final

import aiohttp
import anyio
import attrs

from tests.control_plane.server import ADMIN, ControlPlane

ACCEPT: Final = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
ADDED: Final = b"\n\x05ADDED"  # field 1 of a WatchEvent: the pod is new among those with a node, so it was bound
ERROR: Final = b"\n\x05ERROR"
PREFIX: Final = 4  # bytes before each frame, its length
NAME: Final = re.compile(rb"run-[0-9]{6}")
VERSION: Final = re.compile(rb"\x2a\x24[0-9a-f-]{36}\x32(.)", re.DOTALL)  # the uid, then the version with its length
PATH: Final = "/api/v1/namespaces/default/pods?watch=1&fieldSelector=spec.nodeName!%3D&resourceVersion="


class DisturbedError(RuntimeError):
    """The run is invalid: the API server no longer has the events that the observer missed."""


@attrs.define(eq=False, kw_only=True)
class Observer:
    """
    Records when pods are bound.

    Attributes:
        plane: the control plane.
        on_first: called at the first bind.
        bound: by name, the `time.perf_counter()` of each bind.
        last: of the latest.
    """

    plane: ControlPlane
    on_first: Callable[[], None]
    bound: dict[str, float] = attrs.field(factory=dict, init=False)
    last: float = attrs.field(default=0.0, init=False)
    _wanted: int = attrs.field(default=0, init=False)
    _there: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _rest: bytes = attrs.field(default=b"", init=False)
    _newest: bytes = attrs.field(default=b"", init=False)

    async def run(self, version: str) -> None:
        """
        Watch from that resource version on until cancelled.

        An API server that is short of CPU disconnects a client that does not read at once; then the watch continues
        where it was, as that of every informer.

        Raises:
            DisturbedError: it cannot continue.
        """
        headers = {"Authorization": f"Bearer {ADMIN.token}", "Accept": ACCEPT}
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=self.plane.trust)
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
            while True:
                async with session.get(self.plane.server + PATH + version) as response:
                    response.raise_for_status()
                    async for chunk in response.content.iter_any():
                        self._take(chunk, time.perf_counter())
                version, self._rest = version_of(self._newest) or version, b""

    async def wait_for(self, count: int, *, start: float, pause: float) -> bool:
        """Return True when so many are bound, False after `start` seconds without any or `pause` without another."""
        self._wanted = count
        while len(self.bound) < count:
            known, self._there = len(self.bound), anyio.Event()
            with anyio.move_on_after(pause if known else start):
                await self._there.wait()
            if len(self.bound) == known:
                return False
        return True

    def _take(self, chunk: bytes, now: float) -> None:
        """Count the arrived events."""
        had = len(self.bound)
        for frame in self._frames(chunk):
            self._newest = frame
            if frame.startswith(ADDED) and (name := NAME.search(frame)):
                self.bound.setdefault(name[0].decode(), now)
            elif frame.startswith(ERROR):
                raise DisturbedError(f"the watch of bound pods failed: {frame!r}")
        if len(self.bound) > had:
            self.last = now
            if not had:
                self.on_first()
                self._there.set()
        if len(self.bound) >= self._wanted:
            self._there.set()

    def _frames(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the complete frames; keep the remainder."""
        data, at = self._rest + chunk, 0
        while len(data) - at >= PREFIX:
            end = at + PREFIX + int.from_bytes(data[at : at + PREFIX])
            if end > len(data):
                break
            yield data[at + PREFIX : end]
            at = end
        self._rest = data[at:]


def version_of(frame: bytes) -> str:
    """Return the resource version of the object in an event, empty if there is none."""
    match = VERSION.search(frame)
    return frame[match.end() : match.end() + match[1][0]].decode() if match else ""
