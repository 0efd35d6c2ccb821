"""The extender's port, over real connections: kept ones, large bodies, bad input, TLS, and its limits."""

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import aiohttp.web
import anyio
import anyio.lowlevel
import attrs
import pytest
import trustme

from neuron_scheduler.extender import server
from neuron_scheduler.extender.server import ExtenderServer
from neuron_scheduler.extender.verbs import FILTER, VERBS, Verbs
from neuron_scheduler.serving import connections
from neuron_scheduler.serving.certificate import Certificate
from neuron_scheduler.serving.connections import Connections, open_listening
from neuron_scheduler.serving.server import health
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from tests.control_plane.objects import pod_manifest
from tests.extender.test_verbs import BIND, Leader, Replica, by_names
from tests.support.patience import PATIENCE
from tests.telemetry.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses


@attrs.define(eq=False)
class Port:
    """A replica's extender on a free port."""

    replica: Replica = attrs.field(factory=Replica)
    metrics: Metrics = attrs.field(factory=Metrics)
    stopping: bool = False
    unready: str | None = None
    now: float = 0.0
    number: int = 0
    connections: Connections | None = None
    log: io.StringIO = attrs.field(factory=io.StringIO)

    @asynccontextmanager
    async def open(self, certificate: Certificate | None = None) -> AsyncIterator[None]:
        """Listen inside the block."""
        logs.configure(stream=self.log)
        answering = ExtenderServer(
            verbs=self.replica.verbs,
            health=health({}, {"informer-sync": lambda: self.unready}),
            metrics=self.metrics,
            is_stopping=lambda: self.stopping,
            clock=lambda: self.now,
        )
        listening = open_listening("127.0.0.1", 0, "--extender-bind-address")
        self.number = listening.getsockname()[1]
        self.connections = answering.listen(listening, certificate)
        try:
            yield
        finally:
            await self.connections.close()

    @asynccontextmanager
    async def client(self, context: ssl.SSLContext | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        """Return a client that keeps one connection, as kube-scheduler does."""
        scheme = "http" if context is None else "https"
        connector = aiohttp.TCPConnector(limit=1, ssl=context or True)
        async with aiohttp.ClientSession(
            f"{scheme}://127.0.0.1:{self.number}", connector=connector, trust_env=False
        ) as session:
            yield session

    async def raw(self, text: bytes) -> bytes:
        """Send bytes over a connection of their own, and return all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        writer.write(text)
        with anyio.fail_after(PATIENCE):
            answer = await reader.read()
        writer.close()
        return answer

    def counted(self, name: str) -> dict[str, float]:
        """Return the samples of a metric above 0, by their labels."""
        lines = self.metrics.exposition()[0].decode().splitlines()
        samples = (line.removeprefix(name).rpartition(" ") for line in lines if line.startswith(name + "{"))
        return {labels: float(value) for labels, _, value in samples if float(value)}


JSON = {"Content-Type": "application/json"}
REQUESTS = "neuron_scheduler_extender_requests_total"
DROPPED = "neuron_scheduler_connections_dropped_total"


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    """An open port."""
    opened = Port()
    async with opened.open():
        yield opened


async def post(client: aiohttp.ClientSession, verb: str, request: Any) -> tuple[int, Any]:
    """Return status and answer, as JSON if it is."""
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    async with client.post(f"/{verb}", data=io.BytesIO(body), headers=JSON) as response:
        text = await response.text()
        return response.status, json.loads(text) if response.content_type == "application/json" else text


async def test_one_connection_carries_all_verbs(port: Port) -> None:
    """It is kept after answers and after refusals, and each request is counted."""
    request = by_names(pod_manifest("p", neuron=4))
    async with port.client() as client:
        for _ in range(3):
            status, answer = await post(client, "filter", request)
            assert (status, answer["NodeNames"]) == (200, ["trn1", "inf2"])
            assert (await post(client, "prioritize", request))[1][1] == {"Host": "ghost", "Score": 0}
            assert await post(client, "bind", BIND) == (200, {"Error": ""})
            assert (await post(client, "preempt", {"Pod": pod_manifest("p")}))[0] == 200
            assert (await post(client, "filter", b"no JSON"))[0] == 400
        assert port.connections is not None
        assert port.connections.count == 1

    assert port.counted(REQUESTS) == {
        **{f'{{code="200",verb="{verb}"}}': 3.0 for verb in VERBS},
        '{code="400",verb="filter"}': 3.0,
    }
    seconds = port.counted("neuron_scheduler_extender_request_duration_seconds_count")
    assert seconds == {**{f'{{verb="{verb}"}}': 3.0 for verb in VERBS}, '{verb="filter"}': 6.0}


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/filter", 405, "/filter takes POST only\n"),
        ("PUT", "/bind", 405, "/bind takes POST only\n"),
        (
            "POST",
            "/",
            404,
            "no such path; there are /filter, /prioritize, /bind, /preempt, /healthz, /livez, /readyz\n",
        ),
        ("POST", "/filter/", 404, "no such path"),
        ("GET", "/metrics", 404, "no such path"),
        ("POST", "/healthz", 405, "405 method not allowed\n"),
        ("GET", "/healthz", 200, "ok"),
        ("GET", "/livez", 200, "ok"),
        ("GET", "/readyz?verbose", 200, "[+]ping ok\n[+]informer-sync ok\nreadyz check passed\n"),
    ],
)
async def test_other_requests(port: Port, method: str, path: str, status: int, text: str) -> None:
    """Every mistake is told in a sentence; health answers as on the other port."""
    async with port.client() as client, client.request(method, path) as response:
        assert (response.status, (await response.text())[: len(text)]) == (status, text)
        assert response.headers["Server"] == "neuron-scheduler"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", id="TLS"),
        pytest.param(b"GARBAGE\r\n\r\n", id="no request line"),
        pytest.param(b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", id="no length"),
        pytest.param(b"POST /filter HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", id="endless header"),
        pytest.param(
            b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="two lengths",
        ),
    ],
)
async def test_what_is_not_http(port: Port, text: bytes) -> None:
    """It is answered with 400, counted, and the connection ends."""
    answer = await port.raw(text)
    assert answer.startswith((b"HTTP/1.1 400 Bad Request\r\n", b"HTTP/1.0 400 Bad Request\r\n"))
    assert answer.endswith(b"not a request of HTTP/1.1\n")
    assert port.counted(REQUESTS) == {'{code="400",verb="none"}': 1.0}


async def test_a_broken_client_does_not_flood_the_log(port: Port) -> None:
    """After a few lines there is one in ten seconds; the metric counts all."""
    async with port.client() as client:
        for _ in range(50):
            await post(client, "filter", b"no JSON")
        assert port.log.getvalue().count("Cannot serve a request to the extender") == server.LINES_AT_ONCE
        port.now += 10.0
        await post(client, "nothing", b"")
    last = port.log.getvalue().splitlines()[-1]

    assert 'verb="none" client="127.0.0.1" code=404 err="no such path' in last
    assert port.counted(REQUESTS) == {'{code="400",verb="filter"}': 50.0, '{code="404",verb="none"}': 1.0}


async def test_a_body_that_is_too_large() -> None:
    """It is refused when too much has arrived, with the setting that makes it small."""
    most, port = 1 << 20, Port()
    limits = mock.patch.object(server, "LIMITS", attrs.evolve(server.LIMITS, body=most))
    with limits, mock.patch.object(server, "MOST_BODY", most), mock.patch.object(connections, "LINGER", 0.05):
        async with port.open():
            head = b"POST /filter HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
            chunk = b"%x\r\n%b\r\n" % (1 << 19, b" " * (1 << 19))
            answer = await port.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + 3 * chunk + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"the body is larger than 1 MiB; set nodeCacheCapable: true" in answer


async def test_a_body_that_does_not_come(port: Port) -> None:
    """A client that stops in the middle does not hold its connection for ever."""
    with mock.patch.object(server, "BODY_SECONDS", 0.05), mock.patch.object(connections, "LINGER", 0.05):
        answer = await port.raw(b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 0.05 s" in answer


async def test_a_client_that_hangs_up_cancels_its_call(port: Port) -> None:
    """`bind` is told, so that a Binding that was not sent can be withdrawn."""
    begun, cancelled = anyio.Event(), anyio.Event()

    async def bind(*_: Any) -> str:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return ""

    with mock.patch.object(Leader, "bind", bind), anyio.fail_after(PATIENCE):
        _, writer = await asyncio.open_connection("127.0.0.1", port.number)
        body = json.dumps(BIND).encode()
        writer.write(b"POST /bind HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await begun.wait()
        writer.transport.abort()
        await cancelled.wait()
        while not port.counted(REQUESTS):
            await anyio.lowlevel.checkpoint()
    assert port.counted(REQUESTS) == {'{code="499",verb="bind"}': 1.0}


async def test_a_client_that_hangs_up_while_it_is_answered_is_counted_as_gone(port: Port) -> None:
    """It is no error of ours."""
    request = by_names(pod_manifest("p", neuron=4))
    gone = mock.patch.object(aiohttp.web.Response, "write_eof", side_effect=ConnectionResetError)
    async with port.client() as client:
        with gone, pytest.raises(aiohttp.ClientError):
            await post(client, FILTER, request)
    assert port.counted(REQUESTS) == {'{code="499",verb="filter"}': 1.0}


async def test_a_compressed_body_is_not_expanded(port: Port) -> None:
    """Nobody of the protocol compresses, and a small body could become a large one."""
    async with (
        port.client() as client,
        client.post("/filter", data=b"{}", headers={"Content-Encoding": "gzip"}) as response,
    ):
        assert (response.status, await response.text()) == (
            400,
            "the request of filter cannot be read: it has no Pod\n",
        )


async def test_one_peer_cannot_take_all_connections() -> None:
    """Connections beyond the limit are closed unread, and there is room again when others end."""
    port, request = Port(), by_names(pod_manifest("p"))
    with mock.patch.object(server, "LIMITS", attrs.evolve(server.LIMITS, of_a_peer=1)):
        async with port.open():
            async with port.client() as client:
                await post(client, FILTER, request)
                assert await port.raw(b"") == b""
                assert port.counted(DROPPED) == {'{reason="refused"}': 1.0}
                assert (await post(client, FILTER, request))[0] == 200
            async with port.client() as client:
                assert (await post(client, FILTER, request))[0] == 200


async def test_a_stopping_replica_lets_its_clients_go(port: Port) -> None:
    """The answer ends the connection, so that kube-scheduler's next one goes to another replica."""
    port.stopping = True
    async with port.client() as client, client.post("/filter", json=by_names(pod_manifest("p"))) as response:
        assert (response.status, response.headers["Connection"]) == (200, "close")


async def test_a_defect_is_answered_and_logged(port: Port) -> None:
    """An exception outside the verbs costs this client its connection, and nobody else anything."""
    with mock.patch.object(Verbs, "answer", side_effect=RuntimeError("broken")):
        async with port.client() as client:
            assert await post(client, "filter", b"{}") == (500, "internal error; see the log\n")
    assert "Cannot answer a request to the extender" in port.log.getvalue()
    assert port.counted(REQUESTS) == {'{code="500",verb="filter"}': 1.0}
    async with port.client() as client:
        assert (await post(client, FILTER, by_names(pod_manifest("p"))))[0] == 200


@attrs.define(eq=False)
class Authority:
    """Issues certificates for the port and for clients."""

    folder: Path
    authority: trustme.CA = attrs.field(factory=trustme.CA)

    def certificate(self, client_ca: trustme.CA | None = None) -> Certificate:
        """Return the port's certificate; clients need one if their authority is given."""
        issued = self.authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.folder / "tls.crt")
        issued.private_key_pem.write_to_path(self.folder / "tls.key")
        trusted = ""
        if client_ca is not None:
            trusted = str(self.folder / "ca.crt")
            client_ca.cert_pem.write_to_path(trusted)
        return Certificate(str(self.folder / "tls.crt"), str(self.folder / "tls.key"), trusted, flags="--extender-tls")

    def context(self, client_ca: trustme.CA | None = None) -> ssl.SSLContext:
        """Return a client's context, with a certificate of its own if its authority is given."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if client_ca is not None:
            client_ca.issue_cert("kube-scheduler@example.com").configure_cert(context)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """An authority."""
    return Authority(tmp_path)


async def test_tls(authority: Authority) -> None:
    """With a certificate there is nothing but TLS; a client without it is refused and counted."""
    port = Port()
    async with port.open(authority.certificate()):
        async with port.client(authority.context()) as client:
            for _ in range(2):
                assert (await post(client, FILTER, by_names(pod_manifest("p"))))[0] == 200
        assert b"200" not in await port.raw(b"POST /filter HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        with anyio.fail_after(PATIENCE):
            while not port.counted(DROPPED):
                await anyio.lowlevel.checkpoint()
    assert "Refused a connection to the extender" in port.log.getvalue()


async def test_only_trusted_clients(authority: Authority) -> None:
    """With an authority for clients, a client without its certificate gets no answer."""
    trusted, other = trustme.CA(), trustme.CA()
    port = Port()
    async with port.open(authority.certificate(trusted)):
        async with port.client(authority.context(trusted)) as client:
            assert (await post(client, FILTER, by_names(pod_manifest("p"))))[0] == 200
        for stranger in (authority.context(), authority.context(other)):
            async with port.client(stranger) as client:
                with pytest.raises(aiohttp.ClientError):
                    await post(client, FILTER, by_names(pod_manifest("p")))
    assert port.counted(REQUESTS) == {'{code="200",verb="filter"}': 1.0}
