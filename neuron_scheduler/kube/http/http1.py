"""
One small request and its answer over kept connections: the part of HTTP/1.1 that an API server uses.

A general client takes about 0.3 ms of CPU for each of the two writes that a pod needs, several times what the decision
takes; this is one write, one future and one pass over the answer (`answer`). A connection whose answer was refused is
not used again. Refuses what other modules do: streams, compression and proxies (`pools`, with aiohttp), credentials and
the meaning of a status (`client`).
"""

import asyncio
import math
import socket
import ssl
from collections.abc import Callable
from typing import Final, cast
from urllib.parse import SplitResult

import aiohappyeyeballs
import attrs
from aiohappyeyeballs import AddrInfoType

from neuron_scheduler.errors import FencedError
from neuron_scheduler.kube.http.answer import Answer, Pieces, reading
from neuron_scheduler.kube.http.pools import CONNECT_TIMEOUT, KEEPALIVE, SPARE
from neuron_scheduler.work_queue import WorkQueue

CLOCK_STEP: Final = 0.002  # seconds by which an alarm may ring early: the loop's clock counts milliseconds
HAPPY_EYEBALLS: Final = 0.25  # seconds after which the next address is tried beside the first


class _Connection(asyncio.Protocol):
    """
    One connection, with at most one request on its way.

    The alarm for a request's deadline stays set when the answer comes, and serves later requests: an alarm for each
    request would cost a sixth of the whole exchange.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self._loop = asyncio.get_running_loop()
        self.idle_since = self._loop.time()
        self._transport: asyncio.Transport | None = None
        self._reading: Pieces[Answer] | None = None
        self._most_bytes = 0
        self._answer: asyncio.Future[Answer] | None = None
        self._deadline = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, but is no subclass

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # there is no request
            return
        try:
            if self._reading is None:
                self._reading = reading(self._most_bytes)
                next(self._reading)
            self._reading.send(data)
        except StopIteration as end:
            self.idle_since = self._loop.time()
            self._answer.set_result(end.value)
        except ValueError as error:
            self._answer.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._disarm()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    @property
    def usable(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, deadline: float, most_bytes: int) -> Answer:
        """Send and wait; on a timeout, abort the connection at once, without the slow end of TLS."""
        if self._transport is None:
            raise ConnectionError("the server closed the connection")
        self._reading, self._most_bytes = None, most_bytes
        self._answer = self._loop.create_future()
        self._deadline = deadline
        if self._alarm_at > deadline:
            self._arm()
        try:
            self._transport.write(request)
            return await self._answer
        except BaseException:
            self.abort()
            raise
        finally:
            self._answer = None

    def _arm(self) -> None:
        self._disarm()
        self._alarm_at = self._deadline
        self._alarm = self._loop.call_at(self._deadline, self._ring)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, math.inf

    def _ring(self) -> None:
        self._disarm()
        if self._answer is None or self._answer.done():
            return
        if self._loop.time() >= self._deadline - CLOCK_STEP:
            self._answer.set_exception(TimeoutError())
        else:
            self._arm()

    def abort(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()


@attrs.define(eq=False, kw_only=True)
class Connections:
    """
    Connections to one server, at most `limit`, each kept for the next request; the last used is the first to be used.

    So those that are not needed stay idle: after `SPARE` seconds the next answer closes them.

    Attributes:
        open_socket: makes the socket for an address.
    """

    server: SplitResult
    limit: int
    open_socket: Callable[[AddrInfoType], socket.socket]
    _idle: list[_Connection] = attrs.field(factory=list, init=False)
    _slots: WorkQueue[bool] = attrs.field(init=False)  # asyncio.Semaphore takes twice as long

    def __attrs_post_init__(self) -> None:
        self._slots = WorkQueue(self.limit)
        for _ in range(self.limit):
            self._slots.put(item=True)

    async def exchange(
        self,
        request: bytes,
        *,
        context: ssl.SSLContext | None,
        server_name: str | None,
        permit: Callable[[], bool] | None,
        timeout: float,  # noqa: ASYNC109 - the connection keeps it, at less cost
        most_bytes: int,
    ) -> Answer:
        """
        Send the bytes of a request and return the answer, within `timeout` seconds and of at most `most_bytes`.

        `context` is None for a connection without TLS; `server_name` is checked in place of the server's host; `permit`
        is called when the connection is open, right before the first byte: waiting for it may have taken seconds.

        Raises:
            OSError: the connection failed (`ssl.SSLCertVerificationError`: it is not trusted).
            TimeoutError: there was no answer in time, or no connection.
            ValueError: the bytes that came are no valid answer.
            FencedError: `permit` returned False.
        """
        now = asyncio.get_running_loop().time()
        deadline = now + timeout
        await self._take_slot(deadline)
        try:
            connection = self._kept(context, now) or await self._connect(context, server_name, deadline)
            if permit is not None and not permit():
                self._idle.append(connection)
                raise FencedError("this replica may no longer write; nothing was sent")
            answer = await connection.exchange(request, deadline, most_bytes)
            if answer.reusable:
                self._idle.append(connection)
                while self._idle[0].idle_since < connection.idle_since - SPARE:
                    self._idle.pop(0).abort()
            else:
                connection.abort()
            return answer
        finally:
            self._slots.put(item=True)

    def close(self) -> None:
        """Abort all connections that wait for their next request."""
        while self._idle:
            self._idle.pop().abort()

    async def _take_slot(self, deadline: float) -> None:
        if self._slots:
            await self._slots.next()  # does not wait
            return
        async with asyncio.timeout_at(deadline):
            await self._slots.next()

    def _kept(self, context: ssl.SSLContext | None, now: float) -> _Connection | None:
        """Return a connection that the server still keeps, and that was made with the same certificates."""
        oldest = now - KEEPALIVE
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.context is context and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self, context: ssl.SSLContext | None, server_name: str | None, deadline: float) -> _Connection:
        loop, host = asyncio.get_running_loop(), self.server.hostname or ""
        port = self.server.port or (80 if context is None else 443)
        async with asyncio.timeout_at(min(deadline, loop.time() + CONNECT_TIMEOUT)):
            addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            opened = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=HAPPY_EYEBALLS, interleave=1, socket_factory=self.open_socket
            )
            try:
                _, connection = await loop.create_connection(
                    lambda: _Connection(context),
                    sock=opened,
                    ssl=context,
                    server_hostname=None if context is None else server_name or host,
                )
            except BaseException:
                opened.close()
                raise
        return connection
