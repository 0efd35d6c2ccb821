"""
Connections to the extender's port: how many there may be, TLS, and how long an idle one is kept.

aiohttp reads the requests, since kube-scheduler reuses connections and sends bodies; `endpoints.listener` is for
clients that do neither. Whoever can connect can have pods bound, so clients may have to show a certificate. Does not
depend on what a request means.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
from aiohttp import web

from neuron_scheduler.endpoints.certificate import Certificate

MOST_CONNECTIONS: Final = 2048
MOST_OF_A_PEER: Final = 1024
"""kube-scheduler is one peer, and opens a connection for each pod whose Binding waits (`allocate_fence`)."""
HANDSHAKE_SECONDS: Final = 10.0
KEPT: Final = 120.0
"""Seconds after which an idle connection is closed. kube-scheduler closes it after 90: it does not repeat a POST."""
LINGER: Final = 5.0
"""Seconds for the rest of a body that is not read, so that its client reads the refusal instead of a reset."""

_ACCEPTED_AT_ONCE: Final = 8
_CLOSING_SECONDS: Final = 2.0
_PAUSE: Final = 1.0  # seconds without new connections after one could not be accepted

_silent = logging.getLogger(f"{__name__}.aiohttp")
_silent.disabled = True  # it would write lines as fast as a broken client connects


@attrs.frozen(eq=False, kw_only=True)
class Reactions:
    """
    What is done with what happens on a connection.

    Attributes:
        answer: answers a request; it is cancelled when the client hangs up.
        unreadable: answers what is not HTTP/1.1, and an exception of `answer`.
        refused: called with why a connection was refused, and its peer's address.
    """

    answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    unreadable: Callable[[BaseException | None, str], web.StreamResponse]
    refused: Callable[[str, str], None]


class _Connection(web.RequestHandler):
    """One client's connection."""

    __slots__ = ("_ended", "_unreadable")

    def __init__(self, server: web.Server, reactions: Reactions, ended: Callable[[], None]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEPT,
            access_log=None,  # type: ignore[arg-type]  # None means no log
            logger=_silent,
            auto_decompress=False,  # a small body must not become a large one
            lingering_time=LINGER,
        )
        self._unreadable = reactions.unreadable
        self._ended = ended

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell that there is room for another connection."""
        super().connection_lost(exc)
        self._ended()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - aiohttp calls it with these
        status: int = 500,  # noqa: ARG002
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP/1.1, or an exception of the handler."""
        response = self._unreadable(exc, message or "")
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
    certificate: Certificate | None = None
    _loop: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop, init=False)
    _server: web.Server = attrs.field(init=False)
    _peers: Counter[str] = attrs.field(factory=Counter, init=False)
    _opening: set[asyncio.Task[None]] = attrs.field(factory=set, init=False)
    _pause: asyncio.TimerHandle | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._server = web.Server(self.reactions.answer, handler_cancellation=True)
        self._loop.add_reader(self.listening, self._accept)

    @property
    def count(self) -> int:
        """How many connections there are."""
        return self._peers.total()

    async def close(self) -> None:
        """Close the socket, and end all connections; requests that are being answered have two seconds."""
        self._loop.remove_reader(self.listening)
        self.listening.close()
        if self._pause is not None:
            self._pause.cancel()
        for task in self._opening:
            task.cancel()
        self._server.pre_shutdown()
        await self._server.shutdown(_CLOSING_SECONDS)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self.listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:  # no file descriptor or memory is left; the socket stays readable
                self.reactions.refused(f"cannot accept connections: {error}", "")
                self._loop.remove_reader(self.listening)
                self._pause = self._loop.call_later(_PAUSE, self._loop.add_reader, self.listening, self._accept)
                return
            peer = str(address[0])
            if self.count >= MOST_CONNECTIONS or self._peers[peer] >= MOST_OF_A_PEER:
                connection.close()
                self.reactions.refused("too many connections", peer)
                continue
            connection.setblocking(False)
            self._peers[peer] += 1
            task = self._loop.create_task(self._open(connection, peer))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket, peer: str) -> None:
        """Hand a connection over to aiohttp, after the handshake of TLS."""
        certificate = self.certificate
        try:
            await self._loop.connect_accepted_socket(
                lambda: _Connection(self._server, self.reactions, lambda: self._ended(peer)),
                connection,
                ssl=None if certificate is None else certificate.context(),
                ssl_handshake_timeout=None if certificate is None else HANDSHAKE_SECONDS,
            )
        except Exception as error:  # noqa: BLE001 - it is one client's error: no TLS, not trusted, or gone
            connection.close()
            self.reactions.refused(f"TLS handshake failed: {str(error) or type(error).__name__}", peer)
            self._ended(peer)

    def _ended(self, peer: str) -> None:
        self._peers[peer] -= 1
        if self._peers[peer] <= 0:
            del self._peers[peer]
