"""
Faults of the sandbox's API server on demand: what happens to all requests of a test that match.

Nothing happens by chance or by the clock: the test releases a held request.
"""

import re
import socket
import struct
from typing import TypeAlias

import anyio
import attrs
from aiohttp import web
from aiohttp.typedefs import Handler

from sandbox.apiserver.status import StatusError
from sandbox.server import refusal


@attrs.frozen
class Answer:
    """Refuse with this status, as HTTP response (429 with a `retry_after`, 500, 410, 403, ...)."""

    error: StatusError


@attrs.frozen
class Reset:
    """Reset the connection before anything is done."""


@attrs.define(eq=False)
class Hold:
    """Wait until the test releases it, then continue normally, even if the client has gone."""

    arrived: anyio.Event = attrs.field(factory=anyio.Event)
    released: anyio.Event = attrs.field(factory=anyio.Event)

    def release(self) -> None:
        self.released.set()


Fault: TypeAlias = Answer | Reset | Hold


@attrs.frozen
class _Planned:
    fault: Fault
    method: str | None
    path: re.Pattern[str]
    watch: bool | None

    def matches(self, request: web.Request) -> bool:
        watching = request.query.get("watch", "") in {"1", "true"}
        asked = self.method in {None, request.method} and self.watch in {None, watching}
        return asked and self.path.search(request.path) is not None


@attrs.define(eq=False)
class Faults:
    """The faults of a test; the first that matches a request strikes it. A middleware of an `ApiServer`."""

    _planned: list[_Planned] = attrs.field(factory=list)

    def add(self, fault: Fault, *, path: str, method: str | None = None, watch: bool | None = None) -> None:
        """
        Plan a fault for the requests that match.

        Args:
            fault: what happens to them.
            path: A regular expression that is searched in the path, without the query.
            method: `GET`, `POST`, ...; any if it is None.
            watch: only watches, or only other requests; both if it is None.
        """
        self._planned.append(_Planned(fault, method, re.compile(path), watch))

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, with the fault that strikes it."""
        match next((planned.fault for planned in self._planned if planned.matches(request)), None):
            case Answer(error=error):
                return refusal(error)
            case Reset():
                abort(request)
                return web.Response()
            case Hold() as hold:
                hold.arrived.set()
                await hold.released.wait()
        return await handler(request)


def abort(request: web.Request) -> None:
    """Reset the connection of a request: the client reads ECONNRESET, and no further byte."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
