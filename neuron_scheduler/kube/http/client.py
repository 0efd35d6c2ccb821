"""
The only way to the API server: send bytes, check the status, return bytes.

Writes are sent once: only their callers know whether a repeat is harmless.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final, Self, TypeVar
from urllib.parse import SplitResult, urlencode, urlsplit

import aiohttp
import anyio
import attrs
import msgspec
import yarl

from neuron_scheduler import __version__
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.http1 import KeptConnections
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.http.pools import (
    CONNECT_TIMEOUT,
    Pool,
    open_session,
    open_socket,
    translate_errors,
    unreachable,
)
from neuron_scheduler.kube.http.status import api_error
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import ApiError, FencedError, NeuronSchedulerError

USER_AGENT: Final = f"neuron-scheduler/{__version__}"
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
OPEN_TIMEOUT: Final = 60.0  # seconds until a watch is answered; the API server may hold a request back for 15

T = TypeVar("T")


@attrs.define(eq=False)
class Stream:
    """
    The body of a successful answer as it arrives: line by line for a watch, or all of it for a list.

    A line has at most `2 * READ_BUFFER` bytes. An object in etcd has about 1.5 MiB at most; JSON's escapes (six bytes
    for `<`) may make six times as much of it.
    """

    _content: aiohttp.StreamReader
    _target: str

    async def next(self) -> bytes:
        """
        Return the next line with its newline; a last line without one was cut off; empty at the end.

        Raises:
            ApiTimeoutError: nothing came within the read timeout.
            UnreachableError: the connection broke, or the line is too long.
        """
        with translate_errors(self._target):
            return await self._content.readline()

    async def whole(self, most: int) -> bytes | None:
        """
        Return the body; None, without reading the rest, if it is longer than `most` bytes.

        Raises:
            ApiTimeoutError, UnreachableError: as `next`.
        """
        parts, length = [], 0
        with translate_errors(self._target):
            async for part in self._content.iter_any():
                length += len(part)
                if length > most:
                    return None
                parts.append(part)
        return b"".join(parts)


class Response(msgspec.Struct, frozen=True):
    """A status of success and the body."""

    status: int
    body: bytes


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request without its credentials; `timeout` (0 for none) and `read_timeout` in seconds."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str = JSON
    timeout: float = 0.0
    pool: Pool = Pool.API
    permit: Callable[[], bool] | None = None
    read_timeout: float | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.target.partition('?')[0]}"


@attrs.define(eq=False, kw_only=True)
class Client:
    """
    Requests to one API server; an async context manager that owns its connections.

    Attributes:
        on_request: called with the status code (`<error>` without one) and the method of every request, and the seconds
            until the head of the answer, or the failure; None for a stream.
        qps, burst: limit on writes other than those to the Lease; 0 for none.
        bind_concurrency: first tries of Bindings at once, each on its own connection; 0 for a client that sends none.
    """

    connection: Connection
    on_request: Callable[[str, str, float | None], None] | None = None
    qps: float = 0.0
    burst: int = 1
    bind_concurrency: int = 0
    user_agent: str = USER_AGENT
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    _sessions: dict[Pool, aiohttp.ClientSession] = attrs.field(factory=dict, init=False)
    _kept: dict[Pool, KeptConnections] = attrs.field(factory=dict, init=False)
    _server: SplitResult = attrs.field(init=False)
    _trust: Tls | None = attrs.field(init=False)
    _to_proxy: dict[str, str] = attrs.field(factory=dict, init=False, repr=False)
    _bucket: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._server = urlsplit(self.connection.server)
        self._trust = self.connection.tls
        proxy = self.connection.proxy
        if self._trust is None and proxy is not None and proxy.scheme == "https":
            self._trust = Tls(clock=time.monotonic)  # it is the proxy whose certificate is verified
        if proxy is not None and proxy.user is not None:
            self._to_proxy = {"Proxy-Authorization": aiohttp.encode_basic_auth(proxy.user, proxy.password or "")}
        self._bucket = TokenBucket(time.monotonic, self.qps, self.burst)

    async def __aenter__(self) -> Self:
        self._sessions = {pool: open_session(pool, self.user_agent, self._limit(pool)) for pool in Pool}
        self._kept = {
            pool: KeptConnections(server=self._server, limit=self._limit(pool), open_socket=open_socket(pool))
            for pool in Pool
        }
        return self

    async def __aexit__(self, *_exc: object) -> None:
        for connections in self._kept.values():
            connections.close()
        for session in self._sessions.values():
            with anyio.CancelScope(shield=True), anyio.move_on_after(0.5):  # each one: a stall must leave none open
                await session.close()

    def _limit(self, pool: Pool) -> int:
        return pool.value + (self.bind_concurrency if pool is Pool.BIND else 0)

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = 30.0,  # noqa: ASYNC109 - each try has its own, and closes its connection
        pool: Pool = Pool.API,
        permit: Callable[[], bool] | None = None,
    ) -> Response:
        """
        Send one request and return its answer; lists use `stream`.

        A 401 forces new credentials and one more try. After a 429 the caller waits. `timeout` is in seconds, for each
        try. `permit` is called when the connection is open.

        Raises:
            ApiError: the status is not 2xx.
            UnreachableError: no complete answer (ApiTimeoutError, CredentialsError); a write may have happened.
            FencedError: `permit` returned False; nothing was sent.
        """
        if method != "GET" and pool is not Pool.LEASE and (wait := self._bucket.take()):
            await self.sleep(wait)
        target = f"{path}?{urlencode(params)}" if params else path
        request = _Request(
            method=method,
            target=target,
            body=body,
            content_type=content_type,
            timeout=timeout,
            pool=pool,
            permit=permit,
        )
        return await self._send_authorized(
            request, self._send if self.connection.proxy is None else self._through_proxy
        )

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float, pool: Pool = Pool.API
    ) -> AsyncIterator[Stream]:
        """
        Open a streamed answer; the status has been checked, `read_timeout` is the longest silence in seconds.

        Raises:
            ApiError, UnreachableError: as `request`, also while it is read.
        """
        request = _Request(method="GET", target=f"{path}?{urlencode(params)}", read_timeout=read_timeout, pool=pool)
        with translate_errors(str(request)):
            async with asyncio.timeout(OPEN_TIMEOUT):
                answer = await self._send_authorized(request, self._open)
        async with answer:
            yield Stream(answer.content, f"GET {path}")

    async def _send_authorized(self, request: _Request, send: Callable[[_Request, str | None], Awaitable[T]]) -> T:
        """
        Send, and after a 401 once more with new credentials.

        A write is sent once more only if the API server itself has refused it. Before a proxy's page it may have been
        carried out, which a refusal of the repeat would hide.
        """
        credentials = self.connection.credentials
        authorization = await credentials.authorization()
        try:
            return await send(request, authorization)
        except ApiError as error:
            if error.status != 401 or (renewed := await credentials.renew(authorization)) is None:
                raise
            if request.method != "GET" and not error.is_status:
                raise
        return await send(request, renewed)

    async def _send(self, request: _Request, authorization: str | None) -> Response:
        tls, code, started = self.connection.tls, "<error>", time.monotonic()
        try:
            answer = await self._kept[request.pool].exchange(
                self._encode(request, authorization),
                context=None if tls is None else tls.context(),
                server_name=None if tls is None else tls.server_name,
                permit=request.permit,
                timeout=request.timeout,
            )
            code = str(answer.status)
        except NeuronSchedulerError:
            raise
        except Exception as error:  # as `translate_errors`, which takes longer
            raise unreachable(error, str(request)) from error
        finally:
            self._count(request, code, time.monotonic() - started)
        if not 200 <= answer.status < 300:
            raise api_error(answer.status, answer.headers, answer.body)
        return Response(answer.status, answer.body)

    def _count(self, request: _Request, code: str, seconds: float) -> None:
        if self.on_request is not None:
            self.on_request(code, request.method, seconds if request.read_timeout is None else None)

    def _encode(self, request: _Request, authorization: str | None) -> bytes:
        fields = _common_fields(
            self._server.netloc, self.user_agent, request.content_type, authorization, self.connection.headers
        )
        target, body = f"{self._server.path}{request.target}", request.body or b""
        return f"{request.method} {target} HTTP/1.1\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def _through_proxy(self, request: _Request, authorization: str | None) -> Response:
        """Send through aiohttp, which speaks to proxies; `permit` is called before the connection is opened."""
        if request.permit is not None and not request.permit():
            raise FencedError("this replica may no longer write; nothing was sent")
        async with await self._open(request, authorization) as answer:
            with translate_errors(str(request)):
                return Response(answer.status, await answer.read())

    async def _open(self, request: _Request, authorization: str | None) -> aiohttp.ClientResponse:
        """Send through aiohttp, and return a successful answer, whose body has not been read."""
        tls, proxy, code = self.connection.tls, self.connection.proxy, "<error>"
        started = time.monotonic()
        headers = [*self.connection.headers]
        if authorization is not None:
            headers.append(("Authorization", authorization))
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        try:
            with translate_errors(str(request)):
                answer = await self._sessions[request.pool].request(
                    request.method,
                    yarl.URL(f"{self.connection.server}{request.target}", encoded=True),
                    data=request.body,
                    headers=headers if tls is not None else [*headers, *self._to_proxy.items()],
                    timeout=aiohttp.ClientTimeout(
                        total=request.timeout, sock_connect=CONNECT_TIMEOUT, sock_read=request.read_timeout
                    ),
                    proxy=None if proxy is None else proxy.with_user(None),  # URLs are written to logs and errors
                    proxy_headers=self._to_proxy if tls is not None else None,
                    ssl=True if self._trust is None else self._trust.context(),
                    server_hostname=None if tls is None else tls.server_name,
                    allow_redirects=False,
                )
            code = str(answer.status)
        finally:
            self._count(request, code, time.monotonic() - started)
        if 200 <= answer.status < 300:
            return answer
        async with answer:
            with translate_errors(str(request)):
                raise api_error(answer.status, answer.headers, await answer.read())


@lru_cache(maxsize=8)
def _common_fields(
    netloc: str, user_agent: str, content_type: str, authorization: str | None, configured: tuple[tuple[str, str], ...]
) -> str:
    """Return the headers that many requests have in common; `auth` has checked what it took from outside."""
    fields = (
        ("Host", netloc.rpartition("@")[2]),
        ("User-Agent", user_agent),
        ("Accept", JSON),
        ("Accept-Encoding", "identity"),
        ("Content-Type", content_type),
        *((("Authorization", authorization),) if authorization is not None else ()),
        *configured,
    )
    return "".join(f"{name}: {value}\r\n" for name, value in fields)
