"""A connection is used again only if the last answer was read to its end."""

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import attrs
import pytest
import trustme

from neuron_scheduler.kube.http import http1
from neuron_scheduler.kube.http.http1 import KeptConnections
from neuron_scheduler.kube.http.pools import KEEPALIVE, SPARE, Pool, open_socket
from neuron_scheduler.telemetry.errors import FencedError
from tests.support.patience import PATIENCE

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


@attrs.define(eq=False)
class Server:
    """Answers every request with `say`, and counts connections and requests."""

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
async def serving(server: Server, *, limit: int = 4) -> AsyncIterator[KeptConnections]:
    """Serve on a free port, and yield the connections to it."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connections = KeptConnections(
        server=urlsplit(f"http://127.0.0.1:{port}"), limit=limit, open_socket=open_socket(Pool.BIND)
    )
    try:
        yield connections
    finally:
        connections.close()
        listening.close()


async def ask(
    connections: KeptConnections,
    permit: Callable[[], bool] | None = None,
    timeout: float = PATIENCE,  # noqa: ASYNC109 - what is tested
) -> bytes:
    """Send a request."""
    request = b"POST /x HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    answer = await connections.exchange(request, context=None, server_name=None, permit=permit, timeout=timeout)
    return answer.body


async def give_up(connections: KeptConnections, server: Server) -> None:
    """Cancel a request whose answer is waited for."""
    requests = server.requests
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, connections)
        with anyio.fail_after(PATIENCE):
            while server.requests == requests:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def test_one_connection_carries_many_requests() -> None:
    """After a complete answer, the next request uses the same connection."""
    server = Server()
    async with serving(server) as connections:
        assert [await ask(connections) for _ in range(3)] == [b"hi"] * 3

    assert (server.connections, server.requests) == (1, 3)


async def test_no_more_connections_than_the_limit() -> None:
    """Further requests wait for a free connection."""
    server = Server()
    async with serving(server, limit=2) as connections, anyio.create_task_group() as tasks:
        for _ in range(9):
            tasks.start_soon(ask, connections)

    assert (server.connections, server.requests) == (2, 9)


async def test_a_connection_with_bytes_that_belong_to_no_request_is_cut() -> None:
    """Bytes between two requests end the connection."""
    server = Server()
    writers: list[asyncio.StreamWriter] = []
    server.afterwards = writers.append
    async with serving(server) as connections:
        await ask(connections)
        writers[0].write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        with anyio.fail_after(PATIENCE):
            await server.ended.wait()
        assert await ask(connections) == b"hi"

    assert server.connections == 2


async def test_a_connection_that_the_server_closed_is_not_used() -> None:
    """A connection that the server has closed is replaced, and the request is not refused."""
    server = Server(afterwards=asyncio.StreamWriter.close)
    async with serving(server) as connections:
        for _ in range(3):
            assert await ask(connections) == b"hi"
            with anyio.fail_after(PATIENCE):
                while connections._idle[0].is_usable:
                    await anyio.lowlevel.checkpoint()

    assert server.connections == 3


async def test_a_connection_that_has_waited_long_is_not_used() -> None:
    """A connection that was idle for too long is not used: the server may be about to close it."""
    server = Server()
    async with serving(server) as connections:
        await ask(connections)
        connections._idle[0].idle_since -= KEEPALIVE + 1
        await ask(connections)

    assert server.connections == 2


async def test_connections_that_are_not_needed_are_closed() -> None:
    """Of five from a burst one serves what comes after it; the four others are closed, and it is kept."""
    server = Server()
    async with serving(server, limit=5) as connections:
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask, connections)
        spare = connections._idle[:4]
        await ask(connections)
        assert all(connection.is_usable for connection in spare)
        for connection in connections._idle:
            connection.idle_since -= SPARE + 1
        await ask(connections)
        assert not any(connection.is_usable for connection in spare)
        assert len(connections._idle) == 1
        await ask(connections)

    assert (server.connections, server.requests) == (5, 8)


CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n"


@pytest.mark.parametrize(
    ("say", "connections"),
    [
        (CHUNKED + b"0\r\n\r\n", 1),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 1),
        (OK.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), 2),
        (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), 2),
        (OK + b"noise", 2),
        (OK + OK, 2),
    ],
    ids=["chunks", "an interim answer", "close", "HTTP/1.0", "noise after it", "another answer"],
)
async def test_an_answer_says_how_long_it_is_and_whether_the_connection_stays(say: bytes, connections: int) -> None:
    """Every form that servers and proxies send is read."""
    server = Server(say=say)
    async with serving(server) as kept:
        assert [await ask(kept) for _ in range(2)] == [b"hi"] * 2

    assert server.connections == connections


@pytest.mark.parametrize(
    "say",
    [
        b"",
        OK[:-1],
        CHUNKED,
        b"HTTP/1.1 201 Created\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"noise\r\n\r\n",
    ],
    ids=["nothing", "a byte is missing", "the last chunk is missing", "no length", "another protocol", "noise"],
)
async def test_a_cut_answer_is_none(say: bytes) -> None:
    """A status counts only when the answer is complete."""
    async with serving(Server(say=say, afterwards=asyncio.StreamWriter.close)) as connections:
        with pytest.raises((OSError, ValueError), match=r"."):
            await ask(connections)
        assert not connections._idle


async def test_a_fence_keeps_the_connection() -> None:
    """Nothing is sent without permission, which is asked for when the connection is open."""
    server = Server()
    async with serving(server) as connections:
        asked: list[int] = []
        await ask(connections, lambda: not asked.append(server.connections))  # type: ignore[func-returns-value]
        with pytest.raises(FencedError):
            await ask(connections, lambda: False)
        await ask(connections)

    assert (server.connections, server.requests) == (1, 2)


async def test_what_is_given_up_is_cut_off() -> None:
    """The answer to a cancelled request cannot reach the next one."""
    server = Server(say=b"")
    async with serving(server) as connections:
        await give_up(connections, server)
        with anyio.fail_after(PATIENCE):
            await server.ended.wait()
        assert not connections._idle


async def test_a_request_has_its_own_deadline() -> None:
    """The longer limit of a request before it does not count."""
    server = Server()
    async with serving(server) as connections:
        await ask(connections, timeout=10 * PATIENCE)
        server.say = b""
        with anyio.fail_after(PATIENCE), pytest.raises(TimeoutError):
            await ask(connections, timeout=0.02)
        assert not connections._idle


async def test_a_connection_is_waited_for_no_longer_than_for_an_answer() -> None:
    """The wait for a free connection has the same deadline."""
    server = Server(say=b"")
    async with serving(server, limit=1) as connections, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, connections)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(PATIENCE), pytest.raises(TimeoutError):
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
    connections = KeptConnections(server=url, limit=4, open_socket=open_socket(Pool.API))
    exchange = partial(connections.exchange, b"POST /x HTTP/1.1\r\n\r\n", permit=None, timeout=PATIENCE)

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
    """A context that trusts the authority, without a connection."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_a_closed_connection_is_freed_without_the_garbage_collector() -> None:
    """What is frozen is looked at once an hour, and connections are closed at all times."""

    def are_left() -> bool:
        return any(isinstance(each, http1._Connection) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        closing = OK.replace(b"OK", b"OK\r\nConnection: close")
        async with serving(Server(say=closing)) as connections:
            assert await ask(connections) == b"hi"
        with anyio.fail_after(PATIENCE):
            while are_left():
                await anyio.lowlevel.checkpoint()
    finally:
        gc.enable()
