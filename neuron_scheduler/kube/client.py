"""
The one way to the API server: send bytes, check the status, return bytes.

What a request means is known elsewhere (`wire`, `codec`, `binder`, ...). Refuses to retry writes: only their callers
know whether a repeat is harmless.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, Self
from urllib.parse import urlencode

import aiohttp
import anyio
import attrs
import msgspec
import yarl

from neuron_scheduler import __version__
from neuron_scheduler.errors import ApiError
from neuron_scheduler.kube import wire
from neuron_scheduler.kube.auth import Connection
from neuron_scheduler.kube.rate import TokenBucket
from neuron_scheduler.kube.transport import CONNECT_TIMEOUT, Pool, open_session, translated

USER_AGENT: Final = f"neuron-scheduler/{__version__}"
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
READ_TRIES: Final = 5  # of a read that is answered with 429
LONGEST_PAUSE: Final = 30.0  # seconds of a Retry-After that are honoured
EXCERPT: Final = 500  # bytes of an error body that is no Status

_STATUS: Final = msgspec.json.Decoder(wire.Status)


@attrs.frozen
class Response:
    """A status of success and the body."""

    status: int
    body: bytes


@attrs.frozen
class Lines:
    """The lines of a streamed answer."""

    _content: aiohttp.StreamReader
    _target: str

    async def next(self) -> bytes:
        """
        Return the next line with its newline; a last line without one was cut off; empty at the end.

        Raises:
            ApiTimeoutError: nothing came within the read timeout.
            OversizedLineError: the line is longer than any object may be.
            UnreachableError: the connection broke.
        """
        with translated(self._target):
            return await self._content.readline()


def _nobody_counts(_code: str, _method: str) -> None:
    """Count nothing."""


@attrs.define(eq=False, kw_only=True)
class Client:
    """
    Requests to one API server; an async context manager that owns its connections.

    Attributes:
        connection: from `auth.load`.
        on_request: called with the status code (`<error>` without one) and the method of every request
            (`rest_client_requests_total`).
        qps, burst: limit on writes other than those to the Lease; 0 for none.
    """

    connection: Connection
    on_request: Callable[[str, str], None] = _nobody_counts
    qps: float = 0.0
    burst: int = 1
    user_agent: str = USER_AGENT
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    _sessions: dict[Pool, aiohttp.ClientSession] = attrs.field(factory=dict, init=False)
    _bucket: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._bucket = TokenBucket(time.monotonic, self.qps, self.burst)

    async def __aenter__(self) -> Self:
        self._sessions = {pool: open_session(pool, self.user_agent) for pool in Pool}
        return self

    async def __aexit__(self, *_exc: object) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            for session in self._sessions.values():
                await session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = 30.0,  # noqa: ASYNC109 - aiohttp's own limit closes the connection; a scope would only cancel
        pool: Pool = Pool.API,
        permit: Callable[[], bool] | None = None,
    ) -> Response:
        """
        Send one request and return its answer.

        A read that is answered with 429 waits as long as the server says and is sent again, a few times. A 401 forces
        new credentials and one more try. `timeout` is in seconds, for each try. `permit`, in `Pool.BIND` only, is asked
        when the connection is there; False holds the request back.

        Raises:
            ApiError: the status is not 2xx.
            UnreachableError: no complete answer (ApiTimeoutError, CredentialsError); a write may have happened.
            FencedError: `permit` said no.
        """
        if method != "GET" and pool is not Pool.LEASE and (wait := self._bucket.take()):
            await self.sleep(wait)
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        headers = None if body is None else {"Content-Type": content_type}
        tries = READ_TRIES if method == "GET" else 1
        while True:
            tries -= 1
            try:
                async with self._exchange(
                    method, path, params=params, body=body, headers=headers, limit=limit, pool=pool, permit=permit
                ) as answer:
                    with translated(f"{method} {path}"):
                        return Response(answer.status, await answer.read())
            except ApiError as error:
                if error.status != 429 or not tries:
                    raise
                await self.sleep(min(error.retry_after or 1.0, LONGEST_PAUSE))

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float, pool: Pool = Pool.API
    ) -> AsyncIterator[Lines]:
        """
        Open a watch and give its lines; the status has been checked, `read_timeout` is the longest silence in seconds.

        Raises:
            ApiError, UnreachableError: as `request`, also from `Lines.next`.
        """
        limit = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=read_timeout)
        async with self._exchange("GET", path, params=params, limit=limit, pool=pool) as answer:
            yield Lines(answer.content, f"watch {path}")

    @contextlib.asynccontextmanager
    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        limit: aiohttp.ClientTimeout,
        pool: Pool,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        permit: Callable[[], bool] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send, once more after a 401, and give an answer whose status is good."""
        credentials = self.connection.credentials
        authorization = await credentials.authorization()
        url = self._url(path, params)
        for last in (False, True):
            sent = dict(headers) if headers else {}
            if authorization is not None:
                sent["Authorization"] = authorization
            answer = await self._send(method, url, body=body, headers=sent, limit=limit, pool=pool, permit=permit)
            async with answer:
                if 200 <= answer.status < 300:
                    yield answer
                    return
                with translated(f"{method} {path}"):
                    said = await answer.read()
                if answer.status != 401 or last or authorization is None:
                    raise api_error(answer.status, answer.headers, said)
            authorization = await credentials.renew(authorization)

    async def _send(
        self,
        method: str,
        url: yarl.URL,
        *,
        body: bytes | None,
        headers: dict[str, str],
        limit: aiohttp.ClientTimeout,
        pool: Pool,
        permit: Callable[[], bool] | None,
    ) -> aiohttp.ClientResponse:
        tls = self.connection.tls
        code = "<error>"
        try:
            with translated(f"{method} {url.path}"):
                answer = await self._sessions[pool].request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    timeout=limit,
                    proxy=self.connection.proxy,
                    ssl=True if tls is None else tls.context(),
                    server_hostname=None if tls is None else tls.server_name,
                    allow_redirects=False,
                    trace_request_ctx=permit,
                )
            code = str(answer.status)
            return answer
        finally:
            self.on_request(code, method)

    def _url(self, path: str, params: Mapping[str, str] | None) -> yarl.URL:
        query = f"?{urlencode(params)}" if params else ""
        return yarl.URL(f"{self.connection.server}{path}{query}", encoded=True)


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error that a refused request is, whatever its body turned out to be."""
    retry_after = _seconds(headers.get("Retry-After"))
    try:
        said = _STATUS.decode(body)
    except msgspec.MsgspecError:
        return ApiError(status, message=body[:EXCERPT].decode(errors="replace").strip(), retry_after=retry_after)
    return status_error(said, status=status, retry_after=retry_after)


def status_error(said: wire.Status, *, status: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error that a Status describes (the body of a refusal, or the object of an ERROR event)."""
    details = said.details or wire.StatusDetails()
    return ApiError(
        status or said.code or 500,
        reason=said.reason or "",
        message=said.message or "",
        kind=details.kind or "",
        retry_after=retry_after if retry_after is not None else (details.retry_after_seconds or None),
    )


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None
