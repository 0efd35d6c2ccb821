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
from collections.abc import Callable, Generator, Mapping
from typing import Final, TypeAlias, TypeVar, cast
from urllib.parse import SplitResult

import aiohappyeyeballs
import attrs
import msgspec
from aiohappyeyeballs import AddrInfoType

from neuron_scheduler.errors import FencedError
from neuron_scheduler.kube.transport import CONNECT_TIMEOUT, KEEPALIVE, require_at_most
from neuron_scheduler.kube.worklist import Worklist

T = TypeVar("T")

MOST_HEAD: Final = 64 << 10  # bytes of a status line and headers
MOST_INTERIM: Final = 16  # answers with a status below 200 before the one that counts
MOST_CHUNK_LINE: Final = 1 << 10  # bytes before a chunk: its length and extensions
CLOCK_STEP: Final = 0.002  # seconds by which an alarm may come early: the loop's clock counts milliseconds
HAPPY_EYEBALLS: Final = 0.25  # seconds after which the next address is tried beside the first

_TEXT: Final = rb"[\t -~\x80-\xff]*"
_HEAD: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: %b)?(?:\r\n[-!#$%%&'*+.^_`|~0-9A-Za-z]+:%b)*\r\n\r\n" % (_TEXT, _TEXT)
)
_FIELD: Final = re.compile(rb"\n([^:]+):([^\r]*)")
_FRAMING: Final = re.compile(rb"\n(?i:(content-length|content-encoding|transfer-encoding|connection)):([^\r]*)")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;%b)?[ \t]*" % _TEXT)
_SWITCHING: Final = 101
_WITHOUT_BODY: Final = (204, 304)

_Pieces: TypeAlias = Generator[None, bytes, T]


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
        return {
            name.lower().decode("latin-1"): value.strip().decode("latin-1") for name, value in _FIELD.findall(self.head)
        }


def reading(most_bytes: int) -> _Pieces[Answer]:
    """
    Read one answer, whose pieces are sent in as they come, and return it with its last byte.

    Every byte is looked at a few times at most, whatever the size of the pieces.

    Args:
        most_bytes: of the body, with what frames its chunks.

    Raises:
        ValueError: what came is no answer, or one whose end cannot be known (`TooLongError`: it is too long).
    """
    received = bytearray()
    for _ in range(MOST_INTERIM + 1):
        head = yield from _head(received)
        status, framing = int(head[2]), _framing(head)
        if status >= 200:
            break
        if status == _SWITCHING or framing.in_chunks or framing.length is not None:
            raise ValueError(f"an interim answer that changes the connection: {head[0][:60]!r}")
    else:
        raise ValueError(f"more than {MOST_INTERIM} interim answers")
    if status in _WITHOUT_BODY:
        body = b""
    elif framing.in_chunks:
        body = yield from _in_chunks(received, most_bytes)
    elif framing.length is not None:
        body = yield from _of_length(framing.length, received, most_bytes)
    else:
        raise ValueError("an answer that does not tell its length may have been cut")
    return Answer(status, head[0], body, not framing.closes and not received)


def _head(received: bytearray) -> _Pieces[re.Match[bytes]]:
    searched = 0
    while (end := received.find(b"\r\n\r\n", searched)) < 0 and len(received) <= MOST_HEAD:
        searched = max(0, len(received) - 3)
        received += yield
    if not 0 <= end <= MOST_HEAD:
        raise ValueError("the headers of the answer have no end")
    head = _HEAD.fullmatch(bytes(received[: end + 4]))
    if head is None:
        raise ValueError(f"not an answer of HTTP/1.1: {bytes(received[:60])!r}")
    del received[: end + 4]
    return head


class _Framing(msgspec.Struct, frozen=True):
    """What the headers say about the end of an answer: its length in bytes if they tell it, and what comes then."""

    length: int | None = None
    in_chunks: bool = False
    closes: bool = False


def _framing(head: re.Match[bytes]) -> _Framing:
    length, in_chunks, closes = None, False, head[1] == b"0"
    for name, value in _FRAMING.findall(head[0]):
        told = value.strip().lower()
        match name.lower():
            case b"connection":
                closes = closes or b"close" in map(bytes.strip, told.split(b","))
            case b"content-encoding" if told == b"identity":
                pass
            case b"content-length" if length is None and _LENGTH.fullmatch(told):
                length = int(told)
            case b"transfer-encoding" if told == b"chunked" and head[1] == b"1" and not in_chunks:
                in_chunks = True
            case _:
                raise ValueError(f"an answer whose {name.decode()} cannot be relied on: {told[:60]!r}")
    if in_chunks and length is not None:
        raise ValueError("an answer that is in chunks and tells a length")
    return _Framing(length, in_chunks, closes)


def _of_length(length: int, received: bytearray, most: int) -> _Pieces[bytes]:
    require_at_most(most, length)
    while len(received) < length:
        received += yield
    body = bytes(received[:length])
    del received[:length]
    return body


def _in_chunks(received: bytearray, most: int) -> _Pieces[bytes]:
    body, taken = bytearray(), 0
    while True:
        while (end := received.find(b"\r\n", 0, MOST_CHUNK_LINE)) < 0 and len(received) < MOST_CHUNK_LINE:
            received += yield
        size = _CHUNK.fullmatch(received, 0, end) if end > 0 else None
        if size is None:
            raise ValueError("a chunk of the answer does not tell its length")
        start = end + 2
        stop = start + int(size[1], 16)
        taken += stop
        require_at_most(most, taken)
        while len(received) < stop + 2:
            received += yield
        if received[stop : stop + 2] != b"\r\n":
            raise ValueError("a chunk of the answer is longer than it says, or trailers follow the last one")
        if start == stop:
            del received[: stop + 2]
            return bytes(body)
        body += received[start:stop]
        del received[: stop + 2]


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
        self._reading: _Pieces[Answer] | None = None
        self._most_bytes = 0
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
        """Send and wait; given up, the connection is cut at once: TLS would otherwise say a long goodbye first."""
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
        most_bytes: int,
    ) -> Answer:
        """
        Send the bytes of a request and return the answer, within `timeout` seconds and of at most `most_bytes`.

        `context` is None for a connection without TLS; `server_name` is checked in place of the server's host; `permit`
        is asked with the connection in hand, right before the first byte: waiting for one may have taken seconds.

        Raises:
            OSError: the connection failed (`ssl.SSLCertVerificationError`: it is not trusted).
            TimeoutError: there was no answer in time, or no connection.
            ValueError: what came is no answer that can be relied on.
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
            answer = await connection.exchange(request, deadline, most_bytes)
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
