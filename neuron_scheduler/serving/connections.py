"""
Connections to one of the process's ports: how many there may be, whose turn it is, TLS, and how long one lasts.

aiohttp reads the requests and has no limits: not for a request's first byte, nor for its headers, a client that does
not read, or the number of connections. Every pod of the cluster can connect, and the event loop that answers also
schedules. So an accepted connection waits unread, which costs a few microseconds, until it is its peer's turn: peers
take turns, however many connections each has opened. The kubelet has an address that no pod has and asks a few times a
minute, so its probe is soon among the next.
"""

import asyncio
import ipaddress
import logging
import os
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import attrs
from aiohttp import web

from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.serving.certificate import Certificate
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ConfigurationError

BACKLOG: Final = 1024  # connections that the kernel keeps for us
HANDSHAKE_SECONDS: Final = 10.0
KEPT: Final = 120.0
"""Seconds after which an idle connection is closed. kube-scheduler closes it after 90: it does not repeat a POST."""
LINGER: Final = 5.0
"""Seconds for the rest of a body that is not read, so that its client reads the refusal instead of a reset."""
LONGEST_LINE: Final = 16 << 10
"""Bytes of a header or of the request line: enough for the token of an identity provider."""
SERVER: Final = {"Server": "neuron-scheduler"}  # instead of the versions of Python and aiohttp
PAUSE: Final = 1.0  # seconds without new connections after one could not be accepted

_ACCEPTED_AT_ONCE: Final = 8  # connections in one turn of the event loop
_CLOSING_SECONDS: Final = 2.0
_LONGEST_CLOSING: Final = 3.0

log = logs.logger(__name__)
_silent = logging.getLogger(f"{__name__}.aiohttp")
_silent.disabled = True  # it would write lines as fast as a broken client connects


@attrs.frozen(kw_only=True)
class Limits:
    """
    The limits for the clients of one port.

    Attributes:
        at_once: connections that are being read or answered.
        of_a_peer: of these, those of one address; 0 for no limit.
        waiting: connections that wait for their turn.
        rate, burst: connections per second that get their turn, and how many may follow each other without a pause; a
            rate of 0 is no limit.
        seconds: from a connection's turn to its end, TLS included. A further connection than `at_once` then ends the
            oldest one. 0 for as long as the client wants: a further one is refused.
        body: bytes of a request's body; reading a larger one raises aiohttp's HTTPRequestEntityTooLarge.
    """

    at_once: int
    of_a_peer: int = 0
    waiting: int = 512
    rate: float = 0.0
    burst: int = 1
    seconds: float = 0.0
    body: int = 128 << 10


@attrs.frozen(eq=False, kw_only=True)
class Reactions:
    """
    What is done with what happens on a connection.

    Attributes:
        answer: answers a request; it is cancelled when the client hangs up.
        unreadable: answers what is not HTTP/1.1, and an exception of `answer`.
        on_drop: called with `crowded`, `slow` or `refused` when a connection ends without an answer, with a sentence
            and the peer's address.
    """

    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    unreadable: Callable[[BaseException | None, str], web.StreamResponse]
    on_drop: Callable[[str, str, str], None]


class _Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_unreadable", "ended")

    def __init__(self, server: web.Server, reactions: Reactions) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=KEPT,
            access_log=None,  # type: ignore[arg-type]  # None means no log
            logger=_silent,
            auto_decompress=False,  # a small body must not become a large one
            lingering_time=LINGER,
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
        )
        self._unreadable = reactions.unreadable
        self.ended: asyncio.Future[None] = loop.create_future()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if not self.ended.done():
            self.ended.set_result(None)

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp calls it with these
        status: int = 500,  # noqa: ARG002
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP/1.1, or an exception of the handler."""
        response = self._unreadable(exc, message or "")
        response.headers.update(SERVER)
        response.force_close()
        return response


@attrs.define(eq=False, kw_only=True)
class Connections:
    """
    All connections to one port, until `close`.

    Attributes:
        listening: a socket that listens; it belongs to the connections.
        certificate: None for no TLS.
    """

    listening: socket.socket
    reactions: Reactions
    limits: Limits
    certificate: Certificate | None = None
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop, init=False)
    _server: web.Server = attrs.field(init=False)
    _bucket: TokenBucket = attrs.field(init=False)
    _waiting: dict[str, deque[socket.socket]] = attrs.field(factory=dict, init=False)
    _crowd: int = attrs.field(default=0, init=False)
    _running: dict[asyncio.Task[None], None] = attrs.field(factory=dict, init=False)
    _peers: Counter[str] = attrs.field(factory=Counter, init=False)
    _next_turn: asyncio.TimerHandle | None = attrs.field(default=None, init=False)
    _pause: asyncio.TimerHandle | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        limited = partial(web.BaseRequest, loop=self._loop, client_max_size=self.limits.body)
        self._server = web.Server(self.reactions.answer, handler_cancellation=True, request_factory=limited)
        self._bucket = TokenBucket(self._loop.time, self.limits.rate, self.limits.burst)
        self._loop.add_reader(self.listening, self._accept)

    @property
    def count(self) -> int:
        return len(self._running)

    async def close(self) -> None:
        """Close the socket, and end all connections, also if cancelled; requests being answered have two seconds."""
        self._loop.remove_reader(self.listening)
        self.listening.close()
        for timer in (self._next_turn, self._pause):
            if timer is not None:
                timer.cancel()
        while self._waiting:
            self._next()[1].close()
        self._server.pre_shutdown()
        with anyio.CancelScope(shield=True), anyio.move_on_after(_LONGEST_CLOSING):
            await self._server.shutdown(_CLOSING_SECONDS)
            running = [*self._running]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self.listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                break
            except OSError as error:  # no file descriptor or memory is left; the socket stays readable
                log.warning("Cannot accept connections; pausing", exc=error)
                self._loop.remove_reader(self.listening)
                self._pause = self._loop.call_later(PAUSE, self._loop.add_reader, self.listening, self._accept)
                break
            self._admit(connection, str(address[0]))
        self._begin()

    def _admit(self, connection: socket.socket, peer: str) -> None:
        """Let a connection wait for its turn; if too many wait then, the newest one of the peer with the most ends."""
        connection.setblocking(False)
        self._waiting.setdefault(peer, deque()).append(connection)
        self._crowd += 1
        if self._crowd > self.limits.waiting:
            peer = max(self._waiting, key=lambda peer: len(self._waiting[peer]))
            self._waiting[peer].pop().close()
            self._crowd -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]
            self.reactions.on_drop("crowded", "too many connections wait", peer)

    def _next(self) -> tuple[str, socket.socket]:
        """Remove and return the connection whose turn it is; its peer is the last in the row then."""
        peer = next(iter(self._waiting))
        connections = self._waiting.pop(peer)
        connection = connections.popleft()
        self._crowd -= 1
        if connections:
            self._waiting[peer] = connections
        return peer, connection

    def _begin(self) -> None:
        """Begin to read as many connections as may begin now, and schedule the next one."""
        while self._waiting and self._next_turn is None:
            wait = self._bucket.take()
            if wait:
                self._next_turn = self._loop.call_later(wait, self._on_turn)
            else:
                self._read_next()

    def _on_turn(self) -> None:
        self._next_turn = None
        self._read_next()
        self._begin()

    def _read_next(self) -> None:
        peer, connection = self._next()
        crowded = self.count >= self.limits.at_once
        if crowded and self.limits.seconds:
            oldest = next(iter(self._running))
            del self._running[oldest]
            oldest.cancel()
            self.reactions.on_drop("slow", "a newer connection takes its place", peer)
        elif crowded or 0 < self.limits.of_a_peer <= self._peers[peer]:
            connection.close()
            self.reactions.on_drop("refused", "too many connections", peer)
            return
        self._peers[peer] += 1
        task = self._loop.create_task(self._serve(connection, peer))
        self._running[task] = None
        task.add_done_callback(lambda done: self._on_end(done, peer))

    def _on_end(self, task: "asyncio.Task[None]", peer: str) -> None:
        self._running.pop(task, None)
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    async def _serve(self, connection: socket.socket, peer: str) -> None:
        """Hand a connection over to aiohttp, after the handshake of TLS, and wait for its end."""
        client, certificate = _Connection(self._server, self.reactions), self.certificate
        try:
            async with asyncio.timeout(self.limits.seconds or None):
                try:
                    await self._loop.connect_accepted_socket(
                        lambda: client,
                        connection,
                        ssl=None if certificate is None else certificate.context(),
                        ssl_handshake_timeout=None if certificate is None else HANDSHAKE_SECONDS,
                    )
                except Exception as error:  # noqa: BLE001 - it is one client's error: no TLS, not trusted, or gone
                    sentence = f"TLS handshake failed: {str(error) or type(error).__name__}"
                    self.reactions.on_drop("refused", sentence, peer)
                    return
                await client.ended
        except TimeoutError:
            self.reactions.on_drop("slow", "it took too long", peer)
        finally:
            if client.transport is not None:
                client.transport.abort()
            connection.close()


def open_listening(address: str, port: int, flags: str) -> socket.socket:
    """
    Return a socket that listens on an IP address, as Go's `net.Listen` does; `flags` are those that say so.

    An unspecified address (`0.0.0.0`, `::`) means all interfaces and both families, or IPv4 on a host without IPv6. One
    socket serves both, so that another process cannot have the same port for the other family.
    """
    unspecified = ipaddress.ip_address(address).is_unspecified
    both = unspecified and socket.has_dualstack_ipv6()
    host = ("::" if both else "0.0.0.0") if unspecified else address  # noqa: S104 - as the flag says
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        opened = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigurationError(
            f"cannot listen on {address} at port {port} ({reason}); choose another {flags}"
        ) from error
    opened.setblocking(False)
    return opened
