"""Whatever a network or a proxy answers affects one request: it gets an answer, an ApiError or an UnreachableError."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.lowlevel
import pytest
import yarl

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.http1 import KeptConnections
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.telemetry.errors import ApiError, ApiTimeoutError, UnreachableError
from tests.support.patience import PATIENCE
from tests.support.scripted_server import refuse, scripted

PROXIED = pytest.mark.parametrize("proxied", [False, True], ids=["directly", "through a proxy"])
MOST_LOGGED: Final = 5_000
"""Characters of an error, which is in log lines, conditions and Events."""
LONG: Final = b"x" * (1 << 20)


def refusing(content: bytes) -> bytes:
    return b"HTTP/1.1 403 No\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content)


HOSTILE: Final[dict[str, bytes]] = {
    "nothing": b"",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a header in no encoding": b"HTTP/1.1 500 \xff\r\nRetry-After: \xff\xb2\r\nX: \xff\r\nContent-Length: 0\r\n\r\n",
    "a chunk that is cut": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    "a deep refusal": refusing(b'{"a":' + b"[" * 100_000),
    "a redirect to nowhere": b"HTTP/1.1 301 No\r\nLocation: http://[::\r\nContent-Length: 0\r\n\r\n",
    "a long sentence": refusing(
        b'{"apiVersion":"v1","kind":"Status","status":"Failure","code":403,"message":"%b"}' % LONG
    ),
    "a long page": refusing(b"<p>%b" % LONG),
}


@asynccontextmanager
async def saying(sent: bytes, *, more: bytes = b"", proxied: bool = False) -> AsyncIterator[Connection]:
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
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield Connection(url, "a test", proxy=yarl.URL(url) if proxied else None)
    finally:
        server.close()


@PROXIED
@pytest.mark.parametrize("sentence", HOSTILE)
async def test_no_answer_raises_anything_else(proxied: bool, sentence: str) -> None:
    """The next request is answered, no callback warns, and the sentence of the error is not what a proxy likes."""
    loop, complaints = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: complaints.append(str(context)))
    try:
        async with (
            saying(HOSTILE[sentence], proxied=proxied) as connection,
            Client(connection=connection) as client,
        ):
            for _ in range(2):
                with pytest.raises((ApiError, UnreachableError)) as raised:
                    await client.request("POST", "/x", timeout=PATIENCE)
                assert len(str(raised.value)) < MOST_LOGGED
    finally:
        loop.set_exception_handler(None)

    assert not complaints


@PROXIED
async def test_no_exception_of_a_library_ends_more_than_its_request(
    proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid answer to a write is an outcome in doubt, and is counted as a request without an answer."""
    counted: list[tuple[str, str]] = []

    def count(code: str, method: str, _seconds: float | None) -> None:
        counted.append((code, method))

    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the handler is closed")

    async with scripted(proxied=proxied, on_request=count) as (_, client):
        monkeypatch.setattr(KeptConnections, "exchange", fail)
        monkeypatch.setattr(client._sessions[Pool.API], "_request", fail)
        with pytest.raises(UnreachableError, match="POST /x"):
            await client.request("POST", "/x")

    assert counted == [("<error>", "POST")]


@PROXIED
async def test_a_body_that_trickles_in_is_given_up(proxied: bool) -> None:
    """The time limit is for the whole answer, not for its next byte."""
    head = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with (
        saying(head, more=b"1\r\nx\r\n", proxied=proxied) as connection,
        Client(connection=connection) as client,
    ):
        with anyio.fail_after(PATIENCE), pytest.raises(ApiTimeoutError):
            await client.request("POST", "/x", timeout=0.1)


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
