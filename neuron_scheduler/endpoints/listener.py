"""
Listens on one of the process's own ports, so that no client can slow the scheduler down or delay another's probe.

Every pod of the cluster can connect, and the event loop that answers also schedules. So the work that clients can cause
is limited: an unread connection waits, which costs a few microseconds; a limited number of connections per second is
read and answered (`turns` says whose); each of them ends after a few seconds. Refuses to know what the requests mean.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

import attrs

from neuron_scheduler.endpoints.exchange import Answer, read_request, text
from neuron_scheduler.endpoints.turns import Turns
from neuron_scheduler.kube.http.rate_limit import TokenBucket
from neuron_scheduler.telemetry import logs

ACCEPTED_AT_ONCE: Final = 8  # connections in one turn of the event loop
BACKLOG: Final = 1024  # connections that the kernel keeps for us
GOODBYE: Final = 1.0  # seconds for the end of TLS
END_OF_HEAD: Final = b"\r\n\r\n"
PAUSE: Final = 1.0  # seconds without new connections after one could not be accepted

log = logs.logger(__name__)


@attrs.frozen(kw_only=True)
class Limits:
    """
    The limits for the clients of one port.

    If every waiting connection has a different peer, each still gets its turn before a probe's time limit.

    Attributes:
        waiting: connections that wait for their turn.
        at_once: connections that are being read or answered; a further one ends the oldest.
        rate, burst: connections per second that get their turn, and how many may follow each other without a pause.
        seconds: from a connection's turn to its end, TLS included.
        head: bytes of a request; large enough for the token of an identity provider.
    """

    waiting: int = 512
    at_once: int = 64
    rate: float = 200.0
    burst: int = 20
    seconds: float = 10.0
    head: int = 16 << 10


PLAIN: Final = Limits()
TLS: Final = Limits(waiting=128, rate=50.0)
"""A handshake takes about five times as long as an answer."""


def open_socket(address: str, port: int) -> socket.socket:
    """
    Return a socket that listens on an IP address, as Go's `net.Listen` does.

    An unspecified address (`0.0.0.0`, `::`) means all interfaces and both families; one socket serves both, so that
    another process cannot have the same port for the other family. A host without IPv6 gets IPv4 only.

    Raises:
        OSError: the address is taken, or not ours.
    """
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    both = ip.is_unspecified and socket.has_dualstack_ipv6()
    if both:
        ip = ipaddress.IPv6Address(0)
    elif ip.is_unspecified:
        ip = ipaddress.IPv4Address(0)
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    opened = socket.create_server((str(ip), port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    opened.setblocking(False)
    return opened


@attrs.define(eq=False, kw_only=True)
class Listener:
    """
    All connections to one port, until `close`.

    Attributes:
        listening: from `open_socket`; it belongs to the listener.
        certificate: returns the TLS context for a new connection; None for no TLS.
        dropped: called with the reason, `crowded` or `slow`, for each connection that is ended without its answer.
    """

    listening: socket.socket
    answer: Answer
    dropped: Callable[[str], None]
    limits: Limits
    certificate: Callable[[], ssl.SSLContext] | None = None
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop, init=False)
    _turns: Turns[socket.socket] = attrs.field(init=False)
    _bucket: TokenBucket = attrs.field(init=False)
    _next_turn: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _pause: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _running: dict[asyncio.Task[None], None] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = Turns(self.limits.waiting)
        self._bucket = TokenBucket(self._loop.time, self.limits.rate, self.limits.burst)
        self._loop.add_reader(self.listening, self._accept)

    async def close(self) -> None:
        """End all connections and close the socket."""
        self._loop.remove_reader(self.listening)
        self.listening.close()
        for timer in (self._next_turn, self._pause):
            if timer is not None:
                timer.cancel()
        while self._turns:
            self._turns.next().close()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, address = self.listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                break
            except OSError as error:  # no file descriptor or memory is left; the socket stays readable
                log.warning("Cannot accept connections; pausing", exc=error)
                self._loop.remove_reader(self.listening)
                self._pause = self._loop.call_later(PAUSE, self._loop.add_reader, self.listening, self._accept)
                break
            connection.setblocking(False)
            crowded = self._turns.add(address[0], connection)
            if crowded is not None:
                crowded.close()
                self.dropped("crowded")
        self._begin_exchanges()

    def _begin_exchanges(self) -> None:
        """Begin as many exchanges as may begin now, and schedule the next one."""
        while self._turns and self._next_turn is None:
            wait = self._bucket.take()
            if wait:
                self._next_turn = self._loop.call_later(wait, self._turn_has_come)
            else:
                self._begin_exchange()

    def _turn_has_come(self) -> None:
        self._next_turn = None
        self._begin_exchange()
        self._begin_exchanges()

    def _begin_exchange(self) -> None:
        if len(self._running) >= self.limits.at_once:
            oldest = next(iter(self._running))
            del self._running[oldest]
            oldest.cancel()
            self.dropped("slow")
        task = self._loop.create_task(self._exchange(self._turns.next()))
        self._running[task] = None
        task.add_done_callback(lambda done: self._running.pop(done, None))

    async def _exchange(self, connection: socket.socket) -> None:
        client = _Client(self.limits.head)
        tls: dict[str, Any] = {"ssl_handshake_timeout": self.limits.seconds, "ssl_shutdown_timeout": GOODBYE}
        try:
            async with asyncio.timeout(self.limits.seconds):
                options = {} if self.certificate is None else tls | {"ssl": self.certificate()}
                await self._loop.connect_accepted_socket(lambda: client, connection, **options)
                await client.end_with(await _answered(await client.head, self.answer))
        except TimeoutError:
            self.dropped("slow")
        except OSError:
            pass  # the client does not use TLS, or has gone
        finally:
            client.abort()
            connection.close()


async def _answered(head: bytes | None, answer: Answer) -> bytes:
    if head is None:
        return text(431, "the request is too large").encode()
    request = read_request(head)
    if request is None:
        return text(400, "not a request of HTTP/1.1").encode()
    try:
        reply = await answer(request)
    except Exception as error:  # noqa: BLE001 - this client gets an answer; other clients are not affected
        log.error("Cannot answer a request", path=request.path, exc=error)
        reply = text(500, "internal error; see the log")
    return reply.encode(with_body=request.method != "HEAD")


class _Client(asyncio.Protocol):
    """
    One connection: collects the head of a request, and waits until the client has the answer.

    Attributes:
        head: including its empty line; None if it is larger than allowed, empty if the client has gone.
    """

    def __init__(self, most: int) -> None:
        loop = asyncio.get_running_loop()
        self.head: asyncio.Future[bytes | None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._most = most
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, but is no subclass

    def data_received(self, data: bytes) -> None:
        if self.head.done():
            return
        searched = max(len(self._received) - len(END_OF_HEAD), 0)
        self._received += data
        end = self._received.find(END_OF_HEAD, searched, self._most)
        if end < 0 and len(self._received) < self._most:
            return
        self.head.set_result(None if end < 0 else bytes(self._received[: end + len(END_OF_HEAD)]))
        if self._transport is not None:
            self._transport.pause_reading()  # a connection has one request

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        if not self._ended.done():
            self._ended.set_result(None)
        if not self.head.done():
            self.head.set_result(b"")

    async def end_with(self, answer: bytes) -> None:
        """Send the answer, and return when the client has it or has gone."""
        if self._transport is not None:
            self._transport.write(answer)
            self._transport.close()
            await self._ended

    def abort(self) -> None:
        """Abort the connection, if it is still open."""
        if self._transport is not None:
            self._transport.abort()
