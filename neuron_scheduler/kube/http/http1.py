"""
Small requests over kept connections of HTTP/1.1: writes, the Lease, and each object that is read alone.

A general client takes about five times the CPU for the two writes of a pod, several times what the decision takes.
httptools parses the answers, as for aiohttp. Streams, compression and proxies are aiohttp's (`pools`).
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Final, cast
from urllib.parse import SplitResult

import aiohappyeyeballs
import attrs
import httptools
import msgspec
from aiohappyeyeballs import AddrInfoType

from neuron_scheduler.kube.http.pools import CONNECT_TIMEOUT, KEEPALIVE, SPARE
from neuron_scheduler.telemetry.errors import FencedError

HAPPY_EYEBALLS: Final = 0.25  # seconds after which the next address is tried beside the first

_FINAL: Final = 200  # answers with a lower status come before the one that counts


class HttpAnswer(msgspec.Struct, frozen=True):
    """
    A whole answer.

    Attributes:
        fields: the headers as they came; of a repeated one the last.
    """

    status: int
    fields: Mapping[bytes, bytes]
    body: bytes

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.lower().decode("latin-1"): value.decode("latin-1") for name, value in self.fields.items()}


class _Connection(asyncio.Protocol):
    """
    One connection, with at most one request on its way; the parser calls the methods that begin with `on_`.

    Attributes:
        reusable: whether another request can be sent after the answer.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.reusable = True
        self._loop = asyncio.get_running_loop()
        self.idle_since = self._loop.time()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._read: HttpAnswer | None = None
        self._fields: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self.on_header = self._fields.__setitem__  # C calls C: there are eight headers
        self.on_body = self._body.append
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, but is no subclass

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # there is no request
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.reusable = False
            if self._read is None:
                self._answer.set_exception(ValueError(f"not an answer of HTTP/1.1: {error!r}"))
                return
        if self._read is not None:
            self.idle_since = self._loop.time()
            self._answer.set_result(self._read)

    def on_message_begin(self) -> None:
        if self._read is not None:  # something follows a complete answer
            self.reusable = False

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= _FINAL and self._read is None:
            self.reusable = self._parser.should_keep_alive()
            self._read = HttpAnswer(status, dict(self._fields), b"".join(self._body))
        self._fields.clear()
        self._body.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        del self._parser  # which refers to this: a cycle that was frozen is looked for once an hour
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, deadline: float) -> HttpAnswer:
        """Send and wait; if that is given up, abort the connection at once, without the slow end of TLS."""
        if self._transport is None:
            raise ConnectionError("the server closed the connection")
        self._read = None
        self._answer = self._loop.create_future()
        alarm = self._loop.call_at(deadline, self._give_up)  # costs a tenth of `asyncio.timeout`
        try:
            self._transport.write(request)
            return await self._answer
        except BaseException:
            self.abort()
            raise
        finally:
            alarm.cancel()
            self._answer = None

    def _give_up(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(TimeoutError())

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@attrs.define(eq=False, kw_only=True)
class KeptConnections:
    """
    Connections to one server, at most `limit`, each kept for the next request.

    The last used is used first, so spare ones stay idle: after `SPARE` seconds the next answer closes them.
    """

    server: SplitResult
    limit: int
    open_socket: Callable[[AddrInfoType], socket.socket]
    _idle: list[_Connection] = attrs.field(factory=list, init=False)
    _free: asyncio.Semaphore = attrs.field(init=False)

    @_free.default
    def _make_semaphore(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.limit)

    async def exchange(
        self,
        request: bytes,
        *,
        context: ssl.SSLContext | None,
        server_name: str | None,
        permit: Callable[[], bool] | None,
        timeout: float,  # noqa: ASYNC109 - the wait for a connection is part of it
    ) -> HttpAnswer:
        """
        Send the bytes of a request and return the answer, within `timeout` seconds.

        `context` is None without TLS; `server_name` is checked in place of the server's host. `permit` is called right
        before the first byte: waiting for a connection may have taken seconds.

        Raises:
            OSError: the connection failed (`ssl.SSLCertVerificationError`: it is not trusted).
            TimeoutError: there was no answer in time, or no connection.
            ValueError: the bytes that came are no valid answer.
            FencedError: `permit` returned False.
        """
        now = asyncio.get_running_loop().time()
        deadline = now + timeout
        await self._take_turn(deadline)
        try:
            connection = self._take_kept(context, now) or await self._connect(context, server_name, deadline)
            if permit is not None and not permit():
                self._idle.append(connection)
                raise FencedError("this replica may no longer write; nothing was sent")
            answer = await connection.exchange(request, deadline)
            if connection.reusable:
                self._idle.append(connection)
                while self._idle[0].idle_since < connection.idle_since - SPARE:
                    self._idle.pop(0).abort()
            else:
                connection.abort()
            return answer
        finally:
            self._free.release()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    async def _take_turn(self, deadline: float) -> None:
        if self._free.locked():
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        else:
            await self._free.acquire()  # does not wait

    def _take_kept(self, context: ssl.SSLContext | None, now: float) -> _Connection | None:
        """Return a connection of the same certificates that the server still keeps."""
        oldest = now - KEEPALIVE
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and connection.context is context and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def _connect(self, context: ssl.SSLContext | None, server_name: str | None, deadline: float) -> _Connection:
        loop, host = asyncio.get_running_loop(), self.server.hostname or ""
        port = self.server.port or (80 if context is None else 443)
        async with asyncio.timeout_at(min(deadline, loop.time() + CONNECT_TIMEOUT)):
            try:
                addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                opened = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=HAPPY_EYEBALLS, interleave=1, socket_factory=self.open_socket
                )
            except OSError as error:
                raise ConnectionError(f"cannot connect to {host}:{port}: {error}") from error
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
