"""
Both ends of a connection in memory, and the bytes on their way between them.

Bytes arrive in order, after a delay that the connection's own dice choose. A process that ends leaves what it has
written to the network: it still arrives. Refuses to look into the bytes, and to know who listens where.
"""

import asyncio
from collections import deque
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, Protocol

import attrs

from tests.simulation.process import Process

FASTEST: Final = 0.000_2
TYPICAL: Final = 0.001
"""Seconds that a chunk is on its way: at least, and on average on top of it."""
NEXT: Final = 0.000_001
"""Seconds between two chunks that were sent one after the other, at least."""
HIGH_WATER: Final = 64 * 1024  # bytes on their way after which a sender has to wait


class Faults(Protocol):
    """What goes wrong with connections."""

    def at_connect(self, client: str, server: str, /) -> str:
        """Return what happens to a new connection: "" (nothing), "refuse" or "hang"."""

    def at_chunk(self, client: str, server: str, /) -> tuple[str, float]:
        """
        Return what happens to bytes: "" (nothing), "cut", "half" (half of them arrive, then it is cut), "silence" or
        "late", and for "late" by how many seconds.
        """


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, connection: "Connection", owner: Process | None, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._connection = connection
        self._context: Context = copy_context()  # of the process that reads what arrives
        self.protocol: Any = None
        self.owner = owner
        self.peer: Transport
        self._loop = asyncio.get_running_loop()
        self._arrives_at = 0.0
        self._on_the_way = 0
        self._paused_writing = False
        self._reading = True
        self._unread: deque[bytes | None] = deque()
        self._closing = False
        self._lost = False
        self._no_more = False

    # -- what the protocol calls ---------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Return whether it is closing or closed."""
        return self._closing

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol  # type: ignore[no-any-return]

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_reading(self) -> bool:
        """Return whether what arrives is passed on."""
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        """Pass on what was kept, and what arrives."""
        self._reading = True
        if self._unread:
            self._loop.call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Keep the limits."""

    def get_write_buffer_size(self) -> int:
        return self._on_the_way

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        """Send bytes."""
        if self._closing or self._no_more or not data:
            return
        self._send(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._no_more:
            self._no_more = True
            self._send(None)

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._end(None)

    def abort(self) -> None:
        if not self._lost:
            self._connection.reset_after(self)
            self._end(None)

    # -- the way to the other end --------------------------------------------------------------------------------------

    def _send(self, data: bytes | None) -> None:
        delay, fate = self._connection.fate()
        if fate == "vanish":
            return
        if fate == "cut":
            self._connection.cut()
            return
        if fate == "half" and data:
            data = data[: len(data) // 2]
        self._arrives_at = max(self._arrives_at + NEXT, self._loop.time() + delay)  # timers of one time have no order
        if data:
            self._on_the_way += len(data)
            if self._on_the_way > HIGH_WATER and not self._paused_writing:
                self._paused_writing = True
                self.protocol.pause_writing()
        self._loop.call_at(self._arrives_at, self._arrived, data, context=Context())
        if fate == "half":
            self._loop.call_at(self._arrives_at + NEXT, self._connection.cut, context=Context())

    def _arrived(self, data: bytes | None) -> None:
        """Put bytes, or the end, into the other end's buffer; the other process reads them when it runs."""
        if data:
            self._on_the_way -= len(data)
            if self._paused_writing and self._on_the_way <= HIGH_WATER // 4 and not self._lost:
                self._paused_writing = False
                self._loop.call_soon(self.protocol.resume_writing, context=self._context)
        peer = self.peer
        if not peer._closing:
            peer._unread.append(data)
            self._loop.call_soon(peer._read, context=peer._context)

    def _read(self) -> None:
        while self._unread and self._reading and not self._closing:
            data = self._unread.popleft()
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
            else:
                self.protocol.data_received(data)

    def hang_up(self) -> None:
        """End as the kernel does for a process that is gone: what was written still arrives, and then the end."""
        if not self._closing and not self._no_more:
            self._send(None)
        self._closing = self._lost = True

    def reset(self) -> None:
        """Fail with a reset, after what has arrived was read."""
        if not self._lost:
            self._loop.call_soon(
                self._end, ConnectionResetError(104, "Connection reset by peer"), context=self._context
            )

    def _end(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._closing = self._lost = True
        self._unread.clear()
        self._loop.call_soon(self.protocol.connection_lost, error, context=self._context)


@attrs.define(eq=False)
class Connection:
    """
    A connection between two processes.

    Attributes:
        number: of the connections that this client has made.
        silent: bytes vanish, in both directions, and nobody is told.
    """

    faults: Faults
    seed: int
    client_name: str
    server_name: str
    number: int
    dice: Random = attrs.field(init=False)
    client: Transport = attrs.field(init=False)
    server: Transport = attrs.field(init=False)
    silent: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.dice = Random(f"{self.seed}/{self.client_name}/{self.number}")

    def fate(self) -> tuple[float, str]:
        """Return after how many seconds a chunk arrives, and what else happens to it."""
        delay = FASTEST + self.dice.expovariate(1 / TYPICAL)
        if self.silent:
            return delay, "vanish"
        fault, seconds = self.faults.at_chunk(self.client_name, self.server_name)
        if fault == "silence":
            self.silent = True
            return delay, "vanish"
        return delay + seconds, fault if fault in {"cut", "half"} else ""

    def cut(self) -> None:
        """Reset both ends."""
        self.client.reset()
        self.server.reset()

    def reset_after(self, sender: Transport) -> None:
        """Let the other end see a reset, after the bytes that are on their way."""
        if self.silent:
            return
        loop = asyncio.get_running_loop()
        arrives = max(sender._arrives_at + NEXT, loop.time() + FASTEST)
        loop.call_at(arrives, sender.peer.reset, context=Context())
