"""An answer is understood to its last byte or not at all, and a connection is used again only when it is certain."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import attrs
import pytest
import trustme
from hypothesis import given, strategies as st

from neuron_scheduler.errors import FencedError
from neuron_scheduler.kube.http1 import MOST_HEAD, MOST_INTERIM, Connections
from neuron_scheduler.kube.transport import KEEPALIVE, MOST_BYTES, Pool, TooLongError, open_socket
from tests.kube.answers import OK, read_answer

ANSWERS: dict[str, tuple[bytes, int, bytes, bool]] = {
    "with a length": (OK, 200, b"hi", True),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "without a reason phrase": (b"HTTP/1.1 201\r\nContent-Length: 0\r\n\r\n", 201, b"", True),
    "in chunks": (
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        201,
        b"abc0123456789",
        True,
    ),
    "the last on its connection": (
        b"HTTP/1.1 409 Conflict\r\nConnection: Close\r\nContent-Length: 1\r\n\r\n!",
        409,
        b"!",
        False,
    ),
    "of HTTP/1.0": (b"HTTP/1.0 502 Bad Gateway\r\nContent-Length: 1\r\n\r\n!", 502, b"!", False),
    "the last on its connection, in other words": (
        b"HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: a, CLOSE\r\nConnection: y\r\nContent-Length: 0\r\n\r\n",
        200,
        b"",
        False,
    ),
    "after an interim one": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, 200, b"hi", True),
    "after as many interim ones as may be": (b"HTTP/1.1 100 Continue\r\n\r\n" * MOST_INTERIM + OK, 200, b"hi", True),
    "with many headers": (OK.replace(b"Content", b"a:\r\n" * 16_000 + b"Content"), 200, b"hi", True),
}


@pytest.mark.parametrize("sentence", ANSWERS)
def test_answers(sentence: str) -> None:
    """Every way to tell an answer's end is understood, and no part of an answer is taken for a whole one."""
    data, *want = ANSWERS[sentence]
    found = read_answer(data)

    assert found is not None
    assert [found.status, found.body, found.reusable] == want
    assert read_answer(*(data[i : i + 1] for i in range(len(data)))) == found
    assert read_answer(*(data[i : i + 1] for i in range(len(data) - 1))) is None


def test_headers_are_found_by_their_name_in_lower_case() -> None:
    """As `Retry-After`, which is all that is ever asked for."""
    found = read_answer(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After:  7 \r\nContent-Length: 0\r\n\r\n")

    assert found is not None
    assert found.headers == {"retry-after": "7", "content-length": "0"}


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 2\xb200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nwithout a length",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"x" * 2_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: trailer\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n Content-Length: 2\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + OK,
        b"HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\n" + OK,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1_200 + OK,
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
        OK.replace(b"Content", b"a:\r\n" * 17_000 + b"Content"),
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    """Nothing of it is believed, not even the status, and what comes later is not waited for."""
    with pytest.raises(ValueError, match=r"."):
        read_answer(data)
    with pytest.raises(ValueError, match=r"."):
        read_answer(*(data[i : i + 7] for i in range(0, len(data), 7)))


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MOST_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b"x" * (1 << 20) + b"\r\n") * 16,
    ],
)
def test_what_is_too_long(data: bytes) -> None:
    """It is refused as soon as it says so, whatever has come of it."""
    with pytest.raises(TooLongError):
        read_answer(data)


def test_an_answer_may_be_as_long_as_it_may_be() -> None:
    """The limit is of the body, not of the headers with it."""
    assert read_answer(OK, most_bytes=2) is not None
    with pytest.raises(TooLongError, match="2 bytes or more, of at most 1"):
        read_answer(OK, most_bytes=1)


@pytest.mark.timeout(30)  # a reader that looks at all of it for every piece takes an hour
@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * (MOST_HEAD - 100) + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4194304\r\n\r\n" + b"x" * (4 << 20),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 500_000 + b"0\r\n\r\n",
    ],
    ids=["headers", "a body", "chunks"],
)
def test_an_answer_may_come_byte_by_byte(data: bytes) -> None:
    """No byte is looked at again for each that follows."""
    assert read_answer(*(data[i : i + 1] for i in range(len(data)))) is not None


@given(st.binary())
def test_noise_is_never_an_answer(noise: bytes) -> None:
    """Whatever the bytes are, they are refused or waited for."""
    with suppress(ValueError):
        assert read_answer(noise) is None


@attrs.define(eq=False)
class Server:
    """Says `say` to every request, and counts connections and requests."""

    say: bytes = OK
    afterwards: Callable[[asyncio.StreamWriter], None] = lambda _: None
    connections: int = 0
    requests: int = 0
    ended: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                writer.write(self.say)
                self.afterwards(writer)
        except (asyncio.IncompleteReadError, OSError):
            self.ended.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(server: Server, *, limit: int = 4) -> AsyncIterator[Connections]:
    """Serve on a free port, and give the connections to it."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connections = Connections(
        server=urlsplit(f"http://127.0.0.1:{port}"), limit=limit, open_socket=open_socket(Pool.BIND)
    )
    try:
        yield connections
    finally:
        connections.close()
        listening.close()


async def ask(
    connections: Connections,
    permit: Callable[[], bool] | None = None,
    timeout: float = 5,  # noqa: ASYNC109 - what is tested
) -> bytes:
    """Send a request."""
    request = b"POST /x HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    answer = await connections.exchange(
        request, context=None, server_name=None, permit=permit, timeout=timeout, most_bytes=MOST_BYTES
    )
    return answer.body


async def test_one_connection_carries_many_requests() -> None:
    """What was answered in full leaves the connection to the next."""
    server = Server()
    async with serving(server) as connections:
        assert [await ask(connections) for _ in range(3)] == [b"hi"] * 3

    assert (server.connections, server.requests) == (1, 3)


async def test_no_more_connections_than_the_limit() -> None:
    """Others wait for one to be free."""
    server = Server()
    async with serving(server, limit=2) as connections, anyio.create_task_group() as tasks:
        for _ in range(9):
            tasks.start_soon(ask, connections)

    assert (server.connections, server.requests) == (2, 9)


async def test_a_connection_with_something_left_over_is_not_used_again() -> None:
    """The next answer would be somebody else's."""
    server = Server(say=OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
    async with serving(server) as connections:
        assert [await ask(connections) for _ in range(2)] == [b"hi"] * 2

    assert server.connections == 2


async def test_a_connection_on_which_nobody_asked_is_cut() -> None:
    """What comes between two requests belongs to none of them."""
    server = Server()
    writers: list[asyncio.StreamWriter] = []
    server.afterwards = writers.append
    async with serving(server) as connections:
        await ask(connections)
        writers[0].write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        with anyio.fail_after(5):
            await server.ended.wait()
        assert await ask(connections) == b"hi"

    assert server.connections == 2


async def test_a_connection_that_the_server_closed_is_not_used() -> None:
    """A server that has had enough of a connection has not refused the next request."""
    server = Server(afterwards=asyncio.StreamWriter.close)
    async with serving(server) as connections:
        for _ in range(3):
            assert await ask(connections) == b"hi"
            with anyio.fail_after(5):
                while connections._idle[0].usable:
                    await anyio.lowlevel.checkpoint()

    assert server.connections == 3


async def test_a_connection_that_has_waited_long_is_not_used() -> None:
    """The server may be about to close it."""
    server = Server()
    async with serving(server) as connections:
        await ask(connections)
        connections._idle[0].idle_since -= KEEPALIVE + 1
        await ask(connections)

    assert server.connections == 2


@pytest.mark.parametrize("say", [b"", OK[:-1], b"HTTP/1.1 201 Created\r\n\r\n", b"noise\r\n\r\n"])
async def test_a_cut_answer_is_none(say: bytes) -> None:
    """A status is not believed before the end of the answer has come."""
    async with serving(Server(say=say, afterwards=asyncio.StreamWriter.close)) as connections:
        with pytest.raises((OSError, ValueError), match=r"."):
            await ask(connections)
        assert not connections._idle


async def test_a_fence_keeps_the_connection() -> None:
    """Nothing is sent without permission, which is asked when the connection is there."""
    server = Server()
    async with serving(server) as connections:
        asked: list[int] = []
        await ask(connections, lambda: not asked.append(server.connections))  # type: ignore[func-returns-value]
        with pytest.raises(FencedError):
            await ask(connections, lambda: False)
        await ask(connections)

    assert (server.connections, server.requests) == (1, 2)


async def test_what_is_given_up_is_cut_off() -> None:
    """The answer of a request that nobody waits for any more cannot come to the next one."""
    server = Server(say=b"")
    async with serving(server) as connections:
        with anyio.move_on_after(0.05):
            await ask(connections)
        with anyio.fail_after(5):
            await server.ended.wait()
        assert not connections._idle


async def test_a_request_has_its_own_deadline() -> None:
    """Neither an earlier one's alarm cuts it off, nor does a later alarm keep it waiting."""
    server = Server()
    async with serving(server) as connections:
        await ask(connections, timeout=0.02)
        server.say = b""
        with anyio.move_on_after(0.05) as patience:
            await ask(connections)
        assert patience.cancelled_caught

        server.say = OK
        await ask(connections)
        server.say = b""
        with anyio.fail_after(5), pytest.raises(TimeoutError):
            await ask(connections, timeout=0.02)
        await server.ended.wait()

    assert (server.connections, server.requests) == (2, 4)


async def test_a_connection_is_waited_for_no_longer_than_for_an_answer() -> None:
    """All connections may be taken by requests that are never answered."""
    server = Server(say=b"")
    async with serving(server, limit=1) as connections, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, connections)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5), pytest.raises(TimeoutError):
            await ask(connections, timeout=0.02)
        tasks.cancel_scope.cancel()


async def test_new_certificates_need_new_connections() -> None:
    """A rotated CA is trusted from the next request on, and the old one no longer."""
    authority, server = trustme.CA(), Server()
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("api.test").configure_cert(theirs)
    ours = [trusting(authority) for _ in range(2)]
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=theirs)
    port = listening.sockets[0].getsockname()[1]
    url = urlsplit(f"https://127.0.0.1:{port}")
    connections = Connections(server=url, limit=4, open_socket=open_socket(Pool.API))
    exchange = partial(connections.exchange, b"POST /x HTTP/1.1\r\n\r\n", permit=None, timeout=5, most_bytes=9)

    for context in (ours[0], ours[0], ours[1]):
        await exchange(context=context, server_name="api.test")
    with pytest.raises(ssl.SSLCertVerificationError):
        await exchange(context=ssl.create_default_context(), server_name="api.test")
    with pytest.raises(ssl.SSLCertVerificationError):  # the URL's own host is checked where no other name is given
        await exchange(context=trusting(authority), server_name=None)
    connections.close()
    listening.close()

    assert server.connections == 2


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """A context that trusts the authority, and has no connection yet."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context
