"""
One client's connection as the event loop sees it: the head of its request, the body if that is wanted, and the answer.

Keeps no more than a head and the body that a page has asked for. Does not interpret either, and measures no time:
`listener` ends a connection that takes too long.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, cast

END_OF_HEAD: Final = b"\r\n\r\n"


class Client(asyncio.Protocol):
    """
    One connection: collects a request, and waits until the client has the answer.

    Nothing is read beyond the head unless a page asks for the body, or whether the client has gone; what a client sends
    then without being asked is dropped, up to the size of a head.

    Attributes:
        head: including its empty line; None if it is larger than allowed, empty if the client has gone.
        peer: the client's IP address.
        encrypted: the connection uses TLS.
    """

    def __init__(self, most: int, *, encrypted: bool) -> None:
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[bytes | None] = loop.create_future()
        self.peer = ""
        self.encrypted = encrypted
        self._ended: asyncio.Future[None] = loop.create_future()
        self._most = most
        self._received = bytearray()
        self._wanted = 0
        self._arrived = asyncio.Event()
        self._at_end = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, but is no subclass
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])

    def data_received(self, data: bytes) -> None:
        """Collect the head, and later what was asked for."""
        if self.head.done():
            self._received += data
            if len(self._received) >= max(self._wanted, self._most):
                self._read_on(False)
            self._arrived.set()
            return
        searched = max(len(self._received) - len(END_OF_HEAD), 0)
        self._received += data
        end = self._received.find(END_OF_HEAD, searched, self._most)
        if end < 0 and len(self._received) < self._most:
            return
        end += len(END_OF_HEAD)
        self.head.set_result(None if end < len(END_OF_HEAD) else bytes(self._received[:end]))
        del self._received[:end]
        self._read_on(False)  # a connection has one request

    def eof_received(self) -> bool:
        """Note that the client sends no more; True keeps the connection open for the answer."""
        self._at_end = True
        self._arrived.set()
        return self.head.done() and not self.encrypted  # a client may end its side before it has the answer

    def connection_lost(self, _exc: Exception | None) -> None:
        """End every wait."""
        self._transport, self._at_end = None, True
        self._arrived.set()
        self._writable.set()
        if not self._ended.done():
            self._ended.set_result(None)
        if not self.head.done():
            self.head.set_result(b"")

    def pause_writing(self) -> None:
        """Hold back further pieces of the answer: the client is slow."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Send on."""
        self._writable.set()

    async def read(self, count: int) -> bytes:
        """Return so many bytes after the head; fewer if the client ends before."""
        self._wanted = count
        while len(self._received) < count and not self._at_end:
            self._arrived.clear()
            self._read_on(True)
            await self._arrived.wait()
        self._read_on(False)
        body = bytes(self._received[:count])
        del self._received[:count]
        return body

    def gone(self) -> bool:
        """Return whether the client has ended the connection, as far as is known; the first call begins to look."""
        if len(self._received) < self._most:
            self._read_on(True)
        return self._at_end

    async def end_with(self, answer: bytes, more: Sequence[bytes] = ()) -> None:
        """Send the answer, and return when the client has it or has gone."""
        for piece in (answer, *more):
            if self._transport is None:
                return
            self._transport.write(piece)
            await self._writable.wait()
        if self._transport is not None:
            self._transport.close()
            await self._ended

    def abort(self) -> None:
        """Abort the connection, if it is still open."""
        if self._transport is not None:
            self._transport.abort()

    def _read_on(self, on: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
