"""Clients get their answers, and none takes more than its share: on real sockets."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import cast

import anyio
import attrs
import pytest
import trustme

from neuron_scheduler.endpoints import listener
from neuron_scheduler.endpoints.exchange import Reply, Request, text
from neuron_scheduler.endpoints.listener import Limits, Listener, open_socket
from tests.support.patience import PATIENCE

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
FILES = Path("/proc/self/fd")
IMPATIENT = Limits(seconds=0.05)


@attrs.define(eq=False)
class Served:
    """
    A listener in front of a function that a test may hold up.

    Attributes:
        asked: the paths in the order in which they were asked for.
        dropped: the reasons of the connections that were dropped.
        answering: set while requests are answered; a request waits for it.
    """

    port: int = 0
    body: bytes = b"ok"
    asked: list[str] = attrs.field(factory=list)
    dropped: list[str] = attrs.field(factory=list)
    answering: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def answer(self, request: Request) -> Reply:
        """Answer as soon as the test allows it."""
        self.asked.append(request.path)
        await self.answering.wait()
        if request.path == "/broken":
            raise RuntimeError("broken")
        if request.path == "/body":
            body = await request.body(10)
            return body if isinstance(body, Reply) else Reply(200, body)
        if request.path == "/large":
            return Reply(200, b"<", more=[b"x" * 60_000] * 50)
        if request.path == "/peer":
            return text(200, f"{request.connection.peer} {request.confidential}")
        if request.path == "/watched":
            while not request.connection.gone():
                await anyio.lowlevel.checkpoint()
            self.asked.append("gone")
        return text(200, "") if not self.body else Reply(200, self.body)


@asynccontextmanager
async def served(
    limits: Limits,
    *,
    address: str = "127.0.0.1",
    opened: socket.socket | None = None,
    certificate: Callable[[], ssl.SSLContext] | None = None,
) -> AsyncIterator[Served]:
    """Serve on a free port."""
    here = Served()
    here.answering.set()
    opened = opened or open_socket(address, 0)
    here.port = opened.getsockname()[1]
    serving = Listener(
        listening=opened, answer=here.answer, dropped=here.dropped.append, limits=limits, certificate=certificate
    )
    try:
        yield here
    finally:
        await serving.close()


async def exchange(here: Served, data: bytes = LIVEZ, *, host: str = "127.0.0.1", source: str | None = None) -> bytes:
    """Send bytes and return all that comes until the end of the connection; empty if it is cut."""
    local = None if source is None else (source, 0)
    reader, writer = await asyncio.open_connection(host, here.port, local_addr=local)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def until(met: Callable[[], bool]) -> None:
    """Wait until the condition is true; this event loop also runs what makes it true."""
    with anyio.fail_after(PATIENCE):
        while not met():  # noqa: ASYNC110 - there is no event to wait for
            await anyio.sleep(0.001)


def status(answer: bytes) -> int:
    """Return the status of an answer, 0 for none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


@contextmanager
def reserved(addresses: list[str]) -> Iterator[int]:
    """Bind one port at all addresses without listening: no other process can answer there inside the block."""
    with ExitStack() as stack:
        port = 0
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            holder = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            holder.bind((address, port))
            port = holder.getsockname()[1]
        yield port


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
async def test_an_unspecified_address_is_both_families(address: str) -> None:
    """IPv4 and IPv6 clients are served, on one port."""
    async with served(Limits(), address=address) as here:
        assert [status(await exchange(here, host=host)) for host in ("127.0.0.1", "::1")] == [200, 200]


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
async def test_a_host_without_ipv6(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without IPv6, IPv4 alone is served."""
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with served(Limits(), address=address) as here:
        assert status(await exchange(here)) == 200


@pytest.mark.parametrize(
    ("address", "others"),
    [("127.0.0.1", ["::1", "127.0.0.2"]), ("::1", ["127.0.0.1"]), ("::ffff:127.0.0.1", ["::1", "127.0.0.2"])],
)
async def test_an_address_is_that_address(address: str, others: list[str]) -> None:
    """Only the given address is served."""
    with reserved(others) as port:
        async with served(Limits(), opened=open_socket(address, port)) as here:
            assert status(await exchange(here, host=address.removeprefix("::ffff:"))) == 200
            for other in others:
                with pytest.raises(ConnectionRefusedError):
                    await exchange(here, host=other)


@pytest.mark.parametrize("taken", ["127.0.0.1", "::1"])
def test_half_a_port_is_none(taken: str) -> None:
    """A port that is taken in one family is an error, not a listener in the other."""
    family = socket.AF_INET6 if ":" in taken else socket.AF_INET
    with socket.create_server((taken, 0), family=family) as other, pytest.raises(OSError, match="in use"):
        open_socket("0.0.0.0", other.getsockname()[1])


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_one_request_a_connection() -> None:
    """The connection ends with the answer, and further requests on it are not read."""
    async with served(Limits()) as here:
        answer = await exchange(here, LIVEZ + b"GET /other HTTP/1.1\r\n\r\n")
        assert (status(answer), answer.count(b"HTTP/1.1"), answer[-2:]) == (200, 1, b"ok")
        assert here.asked == ["/livez"]


async def test_a_request_in_pieces() -> None:
    """A request may arrive byte by byte within the time limit."""
    async with served(Limits()) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        for byte in LIVEZ:
            writer.write(bytes([byte]))
            await writer.drain()
            await anyio.lowlevel.checkpoint()
        assert status(await reader.read()) == 200
        writer.close()


async def test_whoever_only_asks_and_listens() -> None:
    """A client that closes its side after the request gets the answer."""
    async with served(Limits()) as here:
        here.answering.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(LIVEZ)
        writer.write_eof()
        await until(lambda: bool(here.asked))
        here.answering.set()
        assert status(await reader.read()) == 200
        writer.close()


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"GET /" + b"a" * 20_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4_000 + b"\r\n", 431),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
    ids=["endless line", "endless headers", "no request", "TLS on the plain port", "an error of ours"],
)
async def test_what_is_refused(data: bytes, want: int) -> None:
    """A hostile request gets an answer and its connection ends; the next client is served."""
    async with served(Limits()) as here:
        answer = status(await exchange(here, data))
        assert answer == want or (want == 431 and answer == 0)  # who still sends may see a reset
        assert status(await exchange(here)) == 200


# -- bodies, and what follows the head ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "body", "want"),
    [
        ("Content-Length: 5", b"hello", (200, b"hello")),
        ("Content-Length: 5", b"hello and more", (200, b"hello")),
        ("Content-Length: 0", b"", (200, b"")),
        ("Content-Length: 11", b"hello world", (413, b"the body has 11 bytes; 10 are the most\n")),
        ("Content-Length: 999999999", b"", (413, b"the body has 999999999 bytes; 10 are the most\n")),
        ("Accept: a", b"hello", (411, b"send the body with its Content-Length\n")),
        ("Content-Length: -5", b"hello", (411, b"send the body with its Content-Length\n")),
        ("Content-Length: \xb2", b"hello", (411, b"send the body with its Content-Length\n")),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            b"5\r\nhello",
            (411, b"send the body with its Content-Length\n"),
        ),
    ],
)
async def test_a_body(fields: str, body: bytes, want: tuple[int, bytes]) -> None:
    """A body is read by its length, up to the page's limit; everything else is refused."""
    async with served(Limits()) as here:
        answer = await exchange(here, b"POST /body HTTP/1.1\r\n" + fields.encode("latin-1") + b"\r\n\r\n" + body)
        assert (status(answer), answer.partition(b"\r\n\r\n")[2]) == want or (answer == b"" and want[0] != 200)


async def test_a_body_in_pieces() -> None:
    """A body may arrive byte by byte; one that ends early is refused."""
    async with served(Limits()) as here:
        for sent, want in ((b"hello", 200), (b"hell", 400)):
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(b"POST /body HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
            for byte in sent:
                await writer.drain()
                await anyio.lowlevel.checkpoint()
                writer.write(bytes([byte]))
            writer.write_eof()
            assert status(await reader.read()) == want
            writer.close()


async def test_a_body_that_never_comes_is_cut_off() -> None:
    """A client that announces a body and sends none has its time, as every client."""
    async with served(IMPATIENT) as here:
        assert await exchange(here, b"POST /body HTTP/1.1\r\nContent-Length: 5\r\n\r\nhell") == b""
        assert here.dropped == ["slow"]


async def test_a_large_answer_is_sent_in_pieces() -> None:
    """The pieces arrive in order, with their length in the head; a HEAD gets the head only."""
    async with served(Limits()) as here:
        head, _, body = (await exchange(here, b"GET /large HTTP/1.1\r\n\r\n")).partition(b"\r\n\r\n")
        assert b"Content-Length: 3000001\r\n" in head
        assert body == b"<" + b"x" * 3_000_000
        assert (await exchange(here, b"HEAD /large HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\n")


async def test_a_client_that_goes_away_is_noticed() -> None:
    """An answer that takes long can end when nobody waits for it, whatever else the client has sent."""
    async with served(Limits()) as here:
        for rest in (b"", b"x" * 9_000):
            here.asked.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(b"GET /watched HTTP/1.1\r\n\r\n" + rest)
            await until(lambda: bool(here.asked))
            writer.close()
            await until(lambda: here.asked[-1] == "gone")


@pytest.mark.parametrize(("address", "host"), [("127.0.0.1", "127.0.0.1"), ("::", "127.0.0.1"), ("::", "::1")])
async def test_who_asks(address: str, host: str) -> None:
    """The page knows the client's address; this host's own are confidential, in both families."""
    async with served(Limits(), address=address) as here:
        answer = await exchange(here, b"GET /peer HTTP/1.1\r\n\r\n", host=host)
        assert answer.endswith(f"{host} True".encode())


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"GET /livez HTTP/1.1\r\nHost:"], ids=["says nothing", "never finishes"])
async def test_a_silent_client_is_cut_off(data: bytes) -> None:
    """A connection without a whole request ends after its time."""
    async with served(IMPATIENT) as here:
        assert await exchange(here, data) == b""
        assert here.dropped == ["slow"]


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    """An answer that the client does not read is not kept in memory."""
    async with served(IMPATIENT) as here:
        here.body = bytes(32 << 20)
        with closing(socket.create_connection(("127.0.0.1", here.port))) as client:
            client.sendall(LIVEZ)
            await until(lambda: here.dropped == ["slow"])


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    """An answer that takes too long does not occupy a client's place for ever."""
    async with served(IMPATIENT) as here:
        here.answering.clear()
        assert await exchange(here) == b""
        assert here.dropped == ["slow"]


async def test_silent_clients_do_not_keep_others_out() -> None:
    """When all places are taken, the oldest connection ends for the next one."""
    async with served(Limits(at_once=3, rate=0)) as here:
        silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(10)]
        assert status(await exchange(here, source="127.0.0.2")) == 200
        assert here.dropped == ["slow"] * 8
        for _, writer in silent:
            writer.close()


async def test_a_probe_does_not_wait_for_a_flood() -> None:
    """Clients beyond the rate wait and are answered later, and a peer that seldom asks goes first."""
    async with served(Limits(burst=5, rate=200.0)) as here, anyio.create_task_group() as tasks:
        here.answering.clear()
        for _ in range(300):
            tasks.start_soon(exchange, here, b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(lambda: len(here.asked) >= 5)
        here.answering.set()
        assert status(await exchange(here, source="127.0.0.2")) == 200
        assert here.asked.index("/livez") < 150, "it came after all of them"
        assert not here.dropped
        await until(lambda: len(here.asked) == 301)


async def test_too_many_are_turned_away() -> None:
    """When too many wait, only the peer with the most loses a connection."""
    async with served(Limits(waiting=10, burst=1, rate=0.001)) as here, anyio.create_task_group() as tasks:
        ended: list[bytes] = []

        async def ask(source: str) -> None:
            ended.append(await exchange(here, source=source))

        tasks.start_soon(ask, "127.0.0.1")
        await until(lambda: len(ended) == 1)
        tasks.start_soon(ask, "127.0.0.3")
        for _ in range(20):
            tasks.start_soon(ask, "127.0.0.2")
        await until(lambda: len(here.dropped) == 11)
        await until(lambda: len(ended) == 12)
        assert (ended[1:], set(here.dropped)) == ([b""] * 11, {"crowded"})
        tasks.cancel_scope.cancel()


async def test_no_files_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no connection can be accepted, the listener pauses instead of spinning, and continues later."""
    monkeypatch.setattr(listener, "PAUSE", 0.01)
    tries = 0

    class Exhausted:
        """A socket that cannot accept for a while."""

        def __init__(self, real: socket.socket) -> None:
            self.fileno, self.close, self.getsockname = real.fileno, real.close, real.getsockname
            self.accept_really = real.accept

        def accept(self) -> tuple[socket.socket, tuple[str, int]]:
            nonlocal tries
            tries += 1
            if tries < 5:
                raise OSError(errno.EMFILE, "Too many open files")
            return self.accept_really()

    async with served(Limits(), opened=cast(socket.socket, Exhausted(open_socket("127.0.0.1", 0)))) as here:
        assert status(await exchange(here)) == 200
        assert tries == 6


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and a client that trusts it."""
    authority = trustme.CA()
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.mark.parametrize("data", [b"", LIVEZ, b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "plain", "half a hello"])
async def test_no_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext], data: bytes) -> None:
    """A client that does not finish the handshake is disconnected without an answer."""
    async with served(IMPATIENT, certificate=lambda: contexts[0]) as here:
        await exchange(here, data)
        assert here.asked == []


async def test_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """The answers over TLS are the same, and silent clients do not block others."""
    server, client = contexts
    async with served(Limits(at_once=3, rate=0), certificate=lambda: server) as here:
        silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(10)]
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=client)
        writer.write(b"GET /peer HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"127.0.0.1 True")
        assert here.dropped == ["slow"] * 8
        for connection in (writer, *(writer for _, writer in silent)):
            connection.close()


async def test_a_client_that_goes_away_over_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """That it has gone is noticed there, too; a body and a large answer pass."""
    server, client = contexts
    async with served(Limits(), certificate=lambda: server) as here:
        _, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=client)
        writer.write(b"GET /watched HTTP/1.1\r\n\r\n")
        await until(lambda: bool(here.asked))
        writer.close()
        await until(lambda: here.asked[-1] == "gone")
        for request, want in (
            (b"POST /body HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
            (b"GET /large HTTP/1.1\r\n\r\n", b"<" + b"x" * 3_000_000),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=client)
            writer.write(request)
            assert (await reader.read()).partition(b"\r\n\r\n")[2] == want
            writer.close()


@pytest.mark.skipif(not FILES.exists(), reason="the open files of the process cannot be counted")
async def test_nothing_is_left_behind(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """Closing ends connections that wait, shake hands or are answered, and leaves no open file."""

    async def close_amid(certificate: Callable[[], ssl.SSLContext] | None) -> None:
        async with served(Limits(burst=3, rate=0.001), certificate=certificate) as here:
            here.answering.clear()
            clients = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(10)]
            for _, writer in clients:
                writer.write(LIVEZ)
        for reader, writer in clients:
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def open_files() -> int:
        return len(list(FILES.iterdir()))

    await close_amid(None)  # the event loop opens files of its own at first
    before = open_files()
    for certificate in (None, lambda: contexts[0]):
        await close_amid(certificate)
        await until(lambda: open_files() <= before)
