"""
Lines of a watch on their way to a socket, and the ways in which they can fail to arrive.
"""

import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio
import attrs
import msgspec
from aiohttp import web

from neuron_scheduler.sandbox.apiserver.faults import ErrorEvent, Fault, Silence, Truncate


@attrs.define(eq=False)
class Waits:
    """Waits without an end of their own, which can be ended all at once: open watches, requests held by a fault."""

    _scopes: set[anyio.CancelScope] = attrs.field(factory=set)

    @contextmanager
    def endable(self) -> Iterator[None]:
        """Leave the block when `end` is called."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def end(self) -> None:
        """End every wait."""
        for scope in self._scopes:
            scope.cancel()


def abort(request: web.Request) -> None:
    """Reset the connection of a request: the client reads ECONNRESET, and no further byte."""
    transport = request.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


async def send(
    request: web.Request, response: web.StreamResponse, lines: AsyncIterator[bytes], fault: Fault | None
) -> None:
    """Write the lines of a watch until they end, the client has gone, or the fault is due."""
    sent = 0
    try:
        while not await _ended(response, fault, sent):
            line = await anext(lines, None)
            if line is None:
                return
            if isinstance(fault, Truncate) and sent == fault.after:
                await response.write(line[: len(line) // 2])
                abort(request)
                return
            await response.write(line)
            sent += 1
    except ConnectionError:
        return  # the client has gone, which is how most watches end


async def _ended(response: web.StreamResponse, fault: Fault | None, sent: int) -> bool:
    match fault:
        case Silence(after=after) if after == sent:
            await anyio.sleep_forever()
        case ErrorEvent(error=error, after=after) if after == sent:
            await response.write(msgspec.json.encode({"type": "ERROR", "object": error.body()}) + b"\n")
            return True
        case _:
            return False
    return True
