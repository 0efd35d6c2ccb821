"""
One small request and its answer over kept connections: HTTP/1.1 as far as an API server speaks it.

A general client takes about 0.3 ms of CPU for each of the two writes that a pod needs, several times what the decision
takes; this is one write, one future and one look at the answer. What is not understood down to the last byte is no
answer, and its connection is not used again. Refuses what has another place: streams, compression and proxies
(`transport`), credentials and the meaning of a status (`client`).
"""

import asyncio
import math
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, cast
from urllib.parse import SplitResult

import aiohappyeyeballs
import attrs
import msgspec
from aiohappyeyeballs import AddrInfoType

from neuron_scheduler.errors import FencedError
from neuron_scheduler.kube.transport import CONNECT_TIMEOUT, KEEPALIVE
from neuron_scheduler.kube.worklist import Worklist

MOST_HEAD: Final = 64 << 10  # bytes of a status line and headers
CLOCK_STEP: Final = 0.002  # seconds by which an alarm may come early: the loop's clock counts milliseconds
HAPPY_EYEBALLS: Final = 0.25  # seconds after which the next address is tried beside the first

_HEAD: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?(?:\r\n[^:\r\n]+:[^\r\n]*)*\r\n\r\n")
_FIELD: Final = re.compile(rb"\n([^:]+):[ \t]*([^\r]*)")
_FRAMING: Final = re.compile(rb"\n(?i:(content-length|transfer-encoding|connection)):[ \t]*([^\r]*)")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_WITHOUT_BODY: Final = (204, 304)


class Answer(msgspec.Struct, frozen=True):
    """
    A whole answer.

    Attributes:
        head: the status line and the headers.
        reusable: whether the connection may carry another request.
    """

    status: int
    head: bytes
    body: bytes
    reusable: bool

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by name in lower case; of a repeated one the last."""
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in _headers(_FIELD, self.head).items()}


def read_answer(data: bytes) -> Answer | None:
    """
    Return the answer that these bytes are, None while it is not complete.

    Raises:
        ValueError: they are none, or one whose end cannot be told.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > MOST_HEAD:
            raise ValueError("the headers of the answer have no end")
        return None
    head = _HEAD.match(data)
    if head is None:
        raise ValueError(f"not an answer of HTTP/1.1: {data[:60]!r}")
    status, start = int(head[2]), head.end()
    if status < 200:
        return read_answer(data[start:])  # the real one follows
    framing = _headers(_FRAMING, head[0])
    found = (b"", start) if status in _WITHOUT_BODY else _body(data, start, framing)
    if found is None:
        return None
    body, stop = found
    reusable = head[1] == b"1" and framing.get(b"connection", b"").lower() != b"close" and stop == len(data)
    return Answer(status, head[0], body, reusable)


def _headers(sort: re.Pattern[bytes], head: bytes) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in sort.findall(head):
        known_as = name.lower()
        if known_as == b"content-length" and known_as in headers:
            raise ValueError("an answer that tells two lengths")
        headers[known_as] = value.strip()
    return headers


def _body(data: bytes, start: int, framing: Mapping[bytes, bytes]) -> tuple[bytes, int] | None:
    """Return the body that begins at `start`, and where it ends; None while it is not complete."""
    if (encoding := framing.get(b"transfer-encoding")) is not None:
        if encoding.lower() != b"chunked":
            raise ValueError(f"transfer encoding {encoding[:60]!r} is not understood")
        return _chunks(data, start)
    length = framing.get(b"content-length", b"")
    if not length.isdigit():
        raise ValueError("an answer that does not tell its length may have been cut")
    stop = start + int(length)
    return (data[start:stop], stop) if len(data) >= stop else None


def _chunks(data: bytes, start: int) -> tuple[bytes, int] | None:
    chunks: list[bytes] = []
    while size := _CHUNK.match(data, start):
        begin = size.end()
        start = begin + int(size[1], 16)
        if start == begin:  # the last one; trailers are not asked for
            return (b"".join(chunks), begin + 2) if data[begin : begin + 2] == b"\r\n" else None
        if data[start : start + 2] not in (b"\r\n", b"\r", b""):
            raise ValueError("a chunk of the answer is longer than it says")
        chunks.append(data[begin:start])
        start += 2
    if len(data) - start > MOST_HEAD:
        raise ValueError("a chunk of the answer does not tell its length")
    return None


class _Connection(asyncio.Protocol):
    """
    One connection, with at most one request on its way.

    The alarm for a request's deadline is left set when the answer comes, and serves the requests after it: to set and
    take back one for each costs a sixth of the whole exchange.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self._loop = asyncio.get_running_loop()
        self.idle_since = self._loop.time()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[Answer] | None = None
        self._deadline = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by its methods only

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # nobody asked
            return
        self._received += data
        try:
            answer = read_answer(self._received)
        except ValueError as error:
            self._answer.set_exception(ConnectionError(str(error)))
            return
        if answer is not None:
            self.idle_since = self._loop.time()
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._disarm()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    @property
    def usable(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, deadline: float) -> Answer:
        """Send and wait; given up, the connection is cut at once: TLS would otherwise say a long goodbye first."""
        if self._transport is None:
            raise ConnectionError("the server closed the connection")
        self._received = b""
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
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()


@attrs.define(eq=False, kw_only=True)
class Connections:
    """
    Connections to one server, at most `limit`, each kept for the next request; the last used is the first to be used.

    Attributes:
        open_socket: makes the socket for an address.
    """

    server: SplitResult
    limit: int
    open_socket: Callable[[AddrInfoType], socket.socket]
    _idle: list[_Connection] = attrs.field(factory=list, init=False)
    _slots: Worklist[bool] = attrs.field(init=False)  # asyncio.Semaphore takes twice as long

    def __attrs_post_init__(self) -> None:
        self._slots = Worklist(self.limit)
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
    ) -> Answer:
        """
        Send the bytes of a request and return the answer, within `timeout` seconds.

        `context` is None for a connection without TLS; `server_name` is checked in place of the server's host; `permit`
        is asked with the connection in hand, right before the first byte: waiting for one may have taken seconds.

        Raises:
            OSError: the connection failed (`ssl.SSLCertVerificationError`: it is not trusted).
            TimeoutError: there was no answer in time, or no connection.
            FencedError: `permit` said no.
        """
        now = asyncio.get_running_loop().time()
        deadline = now + timeout
        await self._take_slot(deadline)
        try:
            connection = self._kept(context, now) or await self._connect(context, server_name, deadline)
            if permit is not None and not permit():
                self._idle.append(connection)
                raise FencedError("this replica may no longer write; nothing was sent")
            answer = await connection.exchange(request, deadline)
            if answer.reusable:
                self._idle.append(connection)
            else:
                connection.abort()
            return answer
        finally:
            self._slots.put(item=True)

    def close(self) -> None:
        """Cut all connections that wait for their next request."""
        while self._idle:
            self._idle.pop().abort()

    async def _take_slot(self, deadline: float) -> None:
        if self._slots:
            await self._slots.next()  # does not wait
            return
        async with asyncio.timeout_at(deadline):
            await self._slots.next()

    def _kept(self, context: ssl.SSLContext | None, now: float) -> _Connection | None:
        """Return a connection that the server has not yet given up, and that was made with the same certificates."""
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
