"""
Faults of the sandbox's API server on demand: what happens to the next matching request of a test.

A fault is added with a condition and a number of times; it strikes when a request matches. Nothing happens by chance or
by the clock: the test releases a held request.
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
    """Reset the connection, before anything is done or (`committed`) when the request has had its effect."""

    committed: bool = False


@attrs.define(eq=False)
class Hold:
    """Wait until the test releases it, then continue normally, even if the client has gone."""

    arrived: anyio.Event = attrs.field(factory=anyio.Event)
    released: anyio.Event = attrs.field(factory=anyio.Event)

    def release(self) -> None:
        """Continue the request."""
        self.released.set()


Fault: TypeAlias = Answer | Reset | Hold


@attrs.define
class _Planned:
    fault: Fault
    method: str | None
    path: re.Pattern[str]
    watch: bool | None
    times: int


@attrs.define(eq=False)
class Faults:
    """The faults that are still to come, in the order in which they were added; a middleware of an `ApiServer`."""

    _planned: list[_Planned] = attrs.field(factory=list)

    def add(
        self, fault: Fault, *, method: str | None = None, path: str = "", watch: bool | None = None, times: int = 1
    ) -> None:
        """
        Plan a fault for the next `times` requests that match.

        Args:
            fault: what happens to them.
            method: `GET`, `POST`, ...; any if it is None.
            path: A regular expression that is searched in the path, without the query.
            watch: only watches, or only other requests; both if it is None.
            times: how many requests.
        """
        self._planned.append(_Planned(fault, method, re.compile(path), watch, times))

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, with the fault that strikes it."""
        watching = request.query.get("watch", "") in {"1", "true"}
        fault = self._taken(request.method, request.path, watch=watching)
        match fault:
            case Answer(error=error):
                return refusal(error)
            case Hold():
                fault.arrived.set()
                await fault.released.wait()
            case Reset(committed=False):
                abort(request)
                return web.Response()
        response = await handler(request)
        if isinstance(fault, Reset):
            abort(request)
        return response

    def _taken(self, method: str, path: str, *, watch: bool) -> Fault | None:
        """Return the fault for this request, if one is planned, and count it as used."""
        for planned in self._planned:
            if planned.method not in {None, method} or planned.watch not in {None, watch}:
                continue
            if planned.path.search(path) is None:
                continue
            planned.times -= 1
            if planned.times <= 0:
                self._planned.remove(planned)
            return planned.fault
        return None


def abort(request: web.Request) -> None:
    """Reset the connection of a request: the client reads ECONNRESET, and no further byte."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
