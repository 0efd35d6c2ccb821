"""Any bytes of a server or proxy affect one request: it gets an answer, an ApiError or an UnreachableError."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import pytest

from neuron_scheduler.errors import (
    ApiError,
    ApiTimeoutError,
    OversizedAnswerError,
    UnreachableError,
)
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.http1 import Connections
from neuron_scheduler.kube.http.pools import MOST_BYTES, Pool
from tests.support.patience import PATIENCE
from tests.support.scripted_server import answer, refuse, scripted

METHODS = pytest.mark.parametrize("method", ["GET", "POST"], ids=["aiohttp", "our own HTTP"])
MIB: Final = 1 << 20
MOST_LOGGED: Final = 5_000
"""Characters of an error, which is in log lines, conditions and Events."""


def body(length: int, *headers: bytes) -> bytes:
    """An answer of so many bytes."""
    return b"HTTP/1.1 200 OK\r\n" + b"".join(headers) + b"Content-Length: %d\r\n\r\n" % length + b" " * length


def packed(content: bytes, encoding: bytes) -> bytes:
    """An answer whose headers say that the body is compressed."""
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (encoding, len(content)) + content


def body_of(content: bytes) -> bytes:
    """An answer that refuses."""
    return b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)


LONG: Final = b"x" * MIB

HOSTILE: Final[dict[str, bytes]] = {
    "nothing": b"",
    "noise": bytes(range(256)) * 9,
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x46",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no number": b"HTTP/1.1 abc OK\r\n\r\n",
    "a huge status": b"HTTP/1.1 99999999999999999999 OK\r\nContent-Length: 0\r\n\r\n",
    "a status below all": b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
    "another protocol from here on": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nnoise",
    "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" * 1_200,
    "a length in other digits": b"HTTP/1.1 200 OK\r\nContent-Length: \xc2\xb2\r\n\r\nhi",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhi",
    "a length of many digits": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000 + b"\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\na: " + b"b" * MIB + b"\r\n\r\n",
    "a header without a name": b"HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 0\r\n\r\n",
    "a header in no encoding": b"HTTP/1.1 500 \xff\r\nRetry-After: \xff\xb2\r\nX: \xff\r\nContent-Length: 0\r\n\r\n",
    "cookies": b"HTTP/1.1 500 OK\r\nSet-Cookie: \x01=\xff; expires=never; =\r\nContent-Length: 0\r\n\r\n",
    "a type in no encoding": b"HTTP/1.1 500 OK\r\nContent-Type: a/\xff; charset=no-such\r\nContent-Length: 0\r\n\r\n",
    "a chunk without a length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    "a chunk of a negative length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
    "a chunk that is cut": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "no gzip": packed(b"noise", b"gzip"),
    "no deflate": packed(b"noise", b"deflate"),
    "brotli": packed(b"noise", b"br"),
    "zstd": packed(b"noise", b"zstd"),
    "a refusal that is no JSON": b"HTTP/1.1 403 No\r\nContent-Length: 3\r\n\r\n\xff\xfe\xfd",
    "a deep refusal": b"HTTP/1.1 403 No\r\nContent-Length: 100005\r\n\r\n" + b'{"a":' + b"[" * 100_000,
    "a redirect to nowhere": b"HTTP/1.1 301 No\r\nLocation: http://[::\r\nContent-Length: 0\r\n\r\n",
    "a long sentence": body_of(
        b'{"apiVersion":"v1","kind":"Status","status":"Failure","code":403,"message":"%b"}' % LONG
    ),
    "a long reason": body_of(b'{"apiVersion":"v1","kind":"Status","status":"Failure","code":403,"reason":"%b"}' % LONG),
    "a long page": body_of(b"<p>%b" % LONG),
    "a long line": LONG,
    "a long header that is none": b"HTTP/1.1 200 OK\r\na b: %b\r\n\r\n" % LONG[:4000],
    "a time to wait that is none": b"HTTP/1.1 503 No\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n",
}


@asynccontextmanager
async def saying(sent: bytes, *, more: bytes = b"") -> AsyncIterator[Connection]:
    """Answer each request with these bytes, then `more` until the client has gone; then close."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(sent)
            await writer.drain()
            while more:
                writer.write(more)
                await writer.drain()
                await anyio.lowlevel.checkpoint()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Connection(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "a test")
    finally:
        server.close()


@METHODS
@pytest.mark.parametrize("sentence", HOSTILE)
async def test_no_answer_raises_anything_else(method: str, sentence: str) -> None:
    """The next request is answered, no callback warns, and the sentence of the error is not what a proxy likes."""
    loop, complaints = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    try:
        async with saying(HOSTILE[sentence]) as connection, Client(connection=connection) as client:
            for _ in range(2):
                with pytest.raises((ApiError, UnreachableError)) as raised:
                    await client.request(method, "/x", timeout=PATIENCE)
                assert len(str(raised.value)) < MOST_LOGGED
    finally:
        loop.set_exception_handler(None)

    assert not complaints


RAISED: Final[tuple[Callable[[], Exception], ...]] = (
    lambda: RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed"),
    AssertionError,
    lambda: ValueError("x"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
    lambda: zlib.error("x"),
    lambda: KeyError("x"),
    lambda: AttributeError("'NoneType' object has no attribute 'write'"),
    lambda: RecursionError("x"),
    lambda: ExceptionGroup("x", [OSError("y")]),
    StopAsyncIteration,
)


@METHODS
@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error()).__name__)
async def test_no_exception_of_a_library_ends_more_than_its_request(
    method: str, error: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid answer to a write is an outcome in doubt, and is counted as a request without an answer."""
    counted: list[tuple[str, str]] = []

    async def fail(*_: object, **__: object) -> None:
        raise error()

    async with scripted(on_request=lambda code, method: counted.append((code, method))) as (_, client):
        monkeypatch.setattr(Connections, "exchange", fail)
        monkeypatch.setattr(client._sessions[Pool.API], "_request", fail)
        with pytest.raises(UnreachableError, match=f"{method} /x"):
            await client.request(method, "/x")

    assert counted == [("<error>", method)]


async def test_what_ends_a_stream_is_an_error_of_ours() -> None:
    """A watch goes through the same library."""
    async with (
        saying(packed(b"noise", b"gzip")) as connection,
        Client(connection=connection) as client,
        client.stream("/x", params={}, read_timeout=PATIENCE) as lines,
    ):
        with pytest.raises(UnreachableError):
            await lines.next()


@METHODS
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("pool", [Pool.API, Pool.LEASE])
async def test_a_body_has_an_end(method: str, status: int, pool: Pool) -> None:
    """An endless answer is given up at its limit, whatever its status is."""
    head = b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    async with saying(head, more=chunk) as connection, Client(connection=connection) as client:
        with anyio.fail_after(PATIENCE), pytest.raises(OversizedAnswerError, match="too long"):
            await client.request(method, "/x", most_bytes=MIB, pool=pool)


@METHODS
async def test_a_body_that_trickles_in_is_given_up(method: str) -> None:
    """The time limit is for the whole answer, not for its next byte."""
    head = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with saying(head, more=b"1\r\nx\r\n") as connection, Client(connection=connection) as client:
        with anyio.fail_after(PATIENCE), pytest.raises(ApiTimeoutError):
            await client.request(method, "/x", timeout=0.1)


@METHODS
async def test_a_body_that_is_known_to_be_too_long_is_not_read(method: str) -> None:
    """An answer whose header exceeds the limit is refused at once; one at the limit is read."""
    async with scripted(answer("x" * 100), answer("x" * 100), answer("x" * 100)) as (server, client):
        with pytest.raises(OversizedAnswerError):
            await client.request(method, "/x", most_bytes=99)
        assert len((await client.request(method, "/x", most_bytes=100)).body) == 100

    assert len(server.seen) == 2


async def test_what_is_packed_is_measured_unpacked() -> None:
    """The limit is for the decompressed body."""
    bomb = packed(gzip.compress(bytes(64 * MIB)), b"gzip")
    async with saying(bomb) as connection, Client(connection=connection) as client:
        with pytest.raises(OversizedAnswerError):
            await client.request("GET", "/x", pool=Pool.LEASE)


@METHODS
@pytest.mark.parametrize("pool", Pool)
async def test_an_answer_is_one_object(method: str, pool: Pool) -> None:
    """The default limit is that of one object: lists are streamed."""
    large = body(MOST_BYTES + 1)
    async with saying(large) as connection, Client(connection=connection) as client:
        with pytest.raises(OversizedAnswerError):
            await client.request(method, "/x", pool=pool)


async def test_a_watch_that_is_not_answered_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch must be answered within its limit, even if bytes keep arriving."""
    monkeypatch.setattr("neuron_scheduler.kube.http.client.OPEN_TIMEOUT", 0.05)
    async with saying(b"HTTP/1.1 200 OK\r\n", more=b"x") as connection, Client(connection=connection) as client:
        with anyio.fail_after(PATIENCE), pytest.raises(ApiTimeoutError):
            async with client.stream("/x", params={}, read_timeout=60):
                raise AssertionError


async def test_the_lease_waits_for_no_server() -> None:
    """A read of the Lease that is answered with 429 is not repeated by the client: its caller has a deadline."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with scripted(refuse(429, headers={"Retry-After": "30"}), sleep=sleep) as (server, client):
        with pytest.raises(ApiError, match="429"):
            await client.request("GET", "/x", pool=Pool.LEASE)

    assert (waits, len(server.seen)) == ([], 1)


@pytest.mark.parametrize("own_http", [True, False])
async def test_the_lease_is_never_sent_over_our_own_http(own_http: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease never uses our own HTTP: a fault in it must not cost the Lease."""

    async def fail(*_: object, **__: object) -> None:
        raise AssertionError("a fault in http1")

    monkeypatch.setattr(Connections, "exchange", fail)
    async with scripted(answer(), answer("written"), own_http=own_http) as (_, client):
        await client.request("GET", "/lease", pool=Pool.LEASE)
        assert (await client.request("PUT", "/lease", body=b"{}", pool=Pool.LEASE)).body == b"written"
