"""Clients get their answers, and none takes more than its share: on real sockets."""

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import cast

import anyio
import attrs
import pytest
import trustme
from aiohttp import web

from neuron_scheduler.serving import connections
from neuron_scheduler.serving.certificate import Certificate
from neuron_scheduler.serving.connections import Connections, Limits, Reactions, open_listening
from neuron_scheduler.serving.pages import text
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.patience import PATIENCE

LIVEZ = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"
FILES = Path("/proc/self/fd")
FLAG = "--port"
MANY = Limits(at_once=64, rate=200.0, burst=20, seconds=10.0)
IMPATIENT = Limits(at_once=64, seconds=0.05)
FEW = Limits(at_once=3, seconds=10.0)


@attrs.define(eq=False)
class Served:
    """
    Connections in front of a function that a test may hold up.

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

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as soon as the test allows it."""
        self.asked.append(request.path)
        try:
            await self.answering.wait()
        except asyncio.CancelledError:
            self.asked.append("gone")
            raise
        if request.path == "/broken":
            raise RuntimeError("broken")
        response = web.Response(body=await request.read() if request.method == "POST" else self.body)
        response.force_close()
        return response


@asynccontextmanager
async def served(
    limits: Limits,
    *,
    address: str = "127.0.0.1",
    opened: socket.socket | None = None,
    certificate: Certificate | None = None,
) -> AsyncIterator[Served]:
    """Serve on a free port."""
    here = Served()
    here.answering.set()
    opened = opened or open_listening(address, 0, FLAG)
    here.port = opened.getsockname()[1]
    reactions = Reactions(
        answer=here.answer,
        unreadable=lambda _error, message: text(400 if message else 500, ""),
        on_drop=lambda how, _why, _peer: here.dropped.append(how),
    )
    serving = Connections(listening=opened, reactions=reactions, limits=limits, certificate=certificate)
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


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
async def test_an_unspecified_address_is_both_families(address: str) -> None:
    """IPv4 and IPv6 clients are served, on one port."""
    async with served(MANY, address=address) as here:
        assert [status(await exchange(here, host=host)) for host in ("127.0.0.1", "::1")] == [200, 200]


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
async def test_a_host_without_ipv6(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without IPv6, IPv4 alone is served."""
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with served(MANY, address=address) as here:
        assert status(await exchange(here)) == 200


@pytest.mark.parametrize("taken", ["127.0.0.1", "::1"])
def test_half_a_port_is_none(taken: str) -> None:
    """A port that is taken in one family is an error, not a listener in the other."""
    family = socket.AF_INET6 if ":" in taken else socket.AF_INET
    with socket.create_server((taken, 0), family=family) as other, pytest.raises(ConfigurationError, match="in use"):
        open_listening("0.0.0.0", other.getsockname()[1], FLAG)


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (b"GET /" + b"a" * 20_000, 400),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 4_000 + b"\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /broken HTTP/1.1\r\nHost: a\r\n\r\n", 500),
    ],
    ids=["endless line", "endless headers", "no request", "TLS on the plain port", "an error of ours"],
)
async def test_what_is_refused(data: bytes, want: int) -> None:
    """A hostile request gets an answer and its connection ends; the next client is served."""
    async with served(MANY) as here:
        answer = status(await exchange(here, data))
        assert answer in (want, 0)  # who still sends may see a reset
        assert answer == want or len(data) > 10_000
        assert status(await exchange(here)) == 200


async def test_a_large_body() -> None:
    """It is refused, and not kept in memory."""
    async with served(MANY) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 140000\r\n\r\n" + bytes(140_000))
        assert status(await reader.readuntil(b"\r\n\r\n")) == 413
        writer.close()


async def test_the_token_of_an_identity_provider() -> None:
    """A header may have 15 KiB."""
    async with served(MANY) as here:
        token = b"Authorization: Bearer " + b"x" * (15 << 10)
        assert status(await exchange(here, b"GET / HTTP/1.1\r\nHost: a\r\n" + token + b"\r\n\r\n")) == 200


async def test_an_answer_ends_when_its_client_has_gone() -> None:
    """It is cancelled."""
    async with served(MANY) as here:
        here.answering.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(LIVEZ)
        await until(lambda: bool(here.asked))
        writer.close()
        await until(lambda: here.asked == ["/livez", "gone"])


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"", b"GET /livez HTTP/1.1\r\nHost:", b"POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell"],
    ids=["says nothing", "never finishes", "half a body"],
)
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


async def test_silent_clients_do_not_keep_others_out() -> None:
    """When all places are taken, the oldest connection ends for the next one."""
    async with served(FEW) as here:
        silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(10)]
        assert status(await exchange(here, source="127.0.0.2")) == 200
        assert here.dropped == ["slow"] * 8
        for _, writer in silent:
            writer.close()


async def test_a_probe_does_not_wait_for_a_flood() -> None:
    """Clients beyond the rate wait and are answered later, and peers take turns."""
    async with served(attrs.evolve(MANY, burst=5)) as here, anyio.create_task_group() as tasks:
        here.answering.clear()
        for _ in range(300):
            tasks.start_soon(exchange, here, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        await until(lambda: len(here.asked) >= 5)
        here.answering.set()
        assert status(await exchange(here, source="127.0.0.2")) == 200
        assert here.asked.index("/livez") < 150, "it came after all of them"
        assert not here.dropped
        await until(lambda: len(here.asked) == 301)


async def test_too_many_are_turned_away() -> None:
    """When too many wait, only the peer with the most loses a connection."""
    limits = Limits(at_once=64, waiting=10, burst=1, rate=0.001, seconds=10.0)
    async with served(limits) as here, anyio.create_task_group() as tasks:
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
    """When no connection can be accepted, there is a pause, and it goes on later."""
    monkeypatch.setattr(connections, "PAUSE", 0.01)
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

    async with served(MANY, opened=cast(socket.socket, Exhausted(open_listening("127.0.0.1", 0, FLAG)))) as here:
        assert status(await exchange(here)) == 200
        assert tries == 6


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, ssl.SSLContext]:
    """Return a certificate and the context of a client that trusts it."""
    authority, client, folder = trustme.CA(), ssl.create_default_context(), tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
    authority.configure_trust(client)
    return Certificate(str(folder / "both.pem"), str(folder / "both.pem")), client


@pytest.mark.parametrize("data", [b"", LIVEZ, b"\x16\x03\x01\x02\x00\x01"], ids=["silent", "plain", "half a hello"])
async def test_no_tls(trusted: tuple[Certificate, ssl.SSLContext], data: bytes) -> None:
    """A client that does not finish the handshake is disconnected without an answer."""
    async with served(IMPATIENT, certificate=trusted[0]) as here:
        await exchange(here, data)
        assert here.asked == []
        await until(lambda: here.dropped in (["slow"], ["refused"]))


async def test_tls(trusted: tuple[Certificate, ssl.SSLContext]) -> None:
    """The answers over TLS are the same, large ones too, and silent clients do not block others."""
    async with served(FEW, certificate=trusted[0]) as here:
        here.body = b"x" * 3_000_000
        silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(10)]
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port, ssl=trusted[1])
        writer.write(LIVEZ)
        assert (await reader.read()).endswith(here.body)
        assert here.dropped == ["slow"] * 8
        for connection in (writer, *(writer for _, writer in silent)):
            connection.close()


@pytest.mark.skipif(not FILES.exists(), reason="the open files of the process cannot be counted")
async def test_nothing_is_left_behind(
    trusted: tuple[Certificate, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing ends connections that wait, shake hands or are answered, and leaves no open file."""
    monkeypatch.setattr(connections, "_CLOSING_SECONDS", 0.01)

    async def close_amid(certificate: Certificate | None) -> None:
        limits = Limits(at_once=64, burst=3, rate=0.001, seconds=10.0)
        async with served(limits, certificate=certificate) as here:
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
    for certificate in (None, trusted[0]):
        await close_amid(certificate)
        await until(lambda: open_files() <= before)
