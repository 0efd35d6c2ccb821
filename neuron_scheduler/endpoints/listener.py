"""
Listens on one of the process's own ports, so that no client can slow the scheduler down or delay another's probe.

Every pod of the cluster can connect, and the event loop that answers also schedules. So the work that clients can cause
is limited: an unread connection waits, which costs a few microseconds; a limited number of connections per second is
read and answered (`turns` says whose); each of them ends after a few seconds. Does not depend on what the requests
mean.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

import attrs

from neuron_scheduler.endpoints.client import Client
from neuron_scheduler.endpoints.exchange import Answer, Reply, read_request, text
from neuron_scheduler.endpoints.turns import Turns
from neuron_scheduler.kube.http.rate_limit import TokenBucket
from neuron_scheduler.telemetry import logs

ACCEPTED_AT_ONCE: Final = 8  # connections in one turn of the event loop
BACKLOG: Final = 1024  # connections that the kernel keeps for us
GOODBYE: Final = 1.0  # seconds for the end of TLS
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
        client = Client(self.limits.head, encrypted=self.certificate is not None)
        tls: dict[str, Any] = {"ssl_handshake_timeout": self.limits.seconds, "ssl_shutdown_timeout": GOODBYE}
        try:
            async with asyncio.timeout(self.limits.seconds):
                options = {} if self.certificate is None else tls | {"ssl": self.certificate()}
                await self._loop.connect_accepted_socket(lambda: client, connection, **options)
                reply, with_body = await _answered(client, self.answer)
                await client.end_with(reply.encode(with_body=with_body), reply.more if with_body else ())
        except TimeoutError:
            self.dropped("slow")
        except OSError:
            pass  # the client does not use TLS, or has gone
        finally:
            client.abort()
            connection.close()


async def _answered(client: Client, answer: Answer) -> tuple[Reply, bool]:
    """Return the answer to a client's request, and whether its body is sent."""
    head = await client.head
    if head is None:
        return text(431, "the request is too large"), True
    request = read_request(head)
    if request is None:
        return text(400, "not a request of HTTP/1.1"), True
    try:
        reply = await answer(attrs.evolve(request, connection=client))
    except Exception as error:  # noqa: BLE001 - this client gets an answer; other clients are not affected
        log.error("Cannot answer a request", path=request.path, exc=error)
        reply = text(500, "internal error; see the log")
    return reply, request.method != "HEAD"
