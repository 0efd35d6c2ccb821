"""A follower passes requests on to the leader: where to, how, and what it answers when that fails."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import attrs
import pytest
from aiohttp import web

from neuron_scheduler.extender.forward import Forward, own_url
from neuron_scheduler.extender.protocol import FORWARDED
from neuron_scheduler.serving.certificate import Certificate
from tests.support.certificates import Authority, Issued, strict
from tests.support.scripted_server import answer, hang, reset, scripted

BODY = b'{"PodName":"p"}'
BOUND = b'{"Error":""}'


@pytest.fixture(autouse=True)
def defaults_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make default contexts as strict as those of Python 3.13, so that these tests can fail on each."""
    monkeypatch.setattr(ssl, "create_default_context", strict(ssl.create_default_context))


def saying(error: str) -> bytes:
    return b'{"Error": "%b"}' % error.encode()


async def test_the_leader_is_asked_and_its_answer_returned() -> None:
    """The body passes unchanged, with a header that says who has passed it on; the connection is kept."""
    async with scripted(answer({"Error": ""}), answer("busy\n", status=503)) as (server, _):
        forward = Forward(leader_url=lambda: server.url, identity="me_1")
        assert await forward.send("bind", BODY) == (200, b'{"Error": ""}')
        assert await forward.send("preempt", BODY) == (503, b"busy\n")
        forward.close()
    assert [(seen.method, seen.path, seen.body) for seen in server.seen] == [
        ("POST", "/bind", BODY),
        ("POST", "/preempt", BODY),
    ]
    assert {seen.headers[FORWARDED] for seen in server.seen} == {"me_1"}
    assert {seen.headers["Content-Type"] for seen in server.seen} == {"application/json"}


async def test_a_new_leader_is_asked_at_its_own_address() -> None:
    """The address is read for each request."""
    async with scripted(answer({"Error": "one"})) as (first, _), scripted(answer({"Error": "two"})) as (second, _):
        urls = iter([first.url, second.url])
        forward = Forward(leader_url=lambda: next(urls))
        assert await forward.send("bind", BODY) == (200, saying("one"))
        assert await forward.send("bind", BODY) == (200, saying("two"))
        forward.close()


async def test_many_requests_at_once() -> None:
    """Calls that wait at the leader's fence delay no other."""
    arrived, released = anyio.Event(), anyio.Event()
    waiting: list[int] = []

    async def wait(_request: web.Request) -> web.StreamResponse:
        waiting.append(1)
        if len(waiting) == 100:
            arrived.set()
        await released.wait()
        return web.Response(body=BOUND)

    results: list[tuple[int, bytes]] = []
    async with scripted(*[wait] * 100, answer({"Error": "at once"})) as (server, _):
        forward = Forward(leader_url=lambda: server.url)

        async def send() -> None:
            results.append(await forward.send("bind", BODY))

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(send)
            await arrived.wait()
            assert await forward.send("bind", BODY) == (200, saying("at once"))
            released.set()
        forward.close()
    assert results == [(200, BOUND)] * 100


async def sentence_of(forward: Forward) -> str:
    """Send a request that cannot be passed on, and return the sentence."""
    status, body = await forward.send("bind", BODY)
    assert status == 503
    assert body.endswith(b"\n")
    forward.close()
    return body.decode()


async def test_without_a_leader() -> None:
    """Nobody holds the Lease, or its holder serves no extender."""
    assert "knows no extender of the replica that does" in await sentence_of(Forward(leader_url=lambda: ""))


async def test_an_address_that_is_none() -> None:
    """It is an error of this request."""
    assert "gives no answer" in await sentence_of(Forward(leader_url=lambda: "http://10.0.0.7:99999"))


async def test_a_leader_that_does_not_answer() -> None:
    """A refused, cut or silent connection, or garbage, is an error of this request."""
    async with scripted(reset, hang) as (server, _):
        assert "closed the connection" in await sentence_of(Forward(leader_url=lambda: server.url))
        hanging = Forward(leader_url=lambda: server.url, timeout=0.05)
        assert "none came within 0.05 s" in await sentence_of(hanging)
    assert "gives no answer" in await sentence_of(Forward(leader_url=lambda: server.url))


@attrs.frozen
class Files:
    """A replica's certificate files."""

    certificate: Path
    key: Path

    def forward(self, url: str, client_ca_file: str = "") -> Forward:
        """Return a follower with this certificate."""
        return Forward(
            leader_url=lambda: url,
            cert_file=str(self.certificate),
            key_file=str(self.key),
            client_ca_file=client_ca_file,
        )


def files(folder: Path, issued: Issued) -> Files:
    """Write a certificate."""
    folder.mkdir()
    written = Files(folder / "tls.crt", folder / "tls.key")
    issued.write(written.certificate, written.key)
    return written


@asynccontextmanager
async def serving(own: Files, client_ca_file: str = "") -> AsyncIterator[str]:
    """Serve over TLS on a free loopback port, as the extender does; yield the URL."""

    async def greet(_request: web.Request) -> web.Response:
        return web.Response(body=BOUND)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", greet)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    context = Certificate(str(own.certificate), str(own.key), client_ca_file).context()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("alone", [False, True])
async def test_with_tls_the_leader_shows_the_certificate_that_all_replicas_share(tmp_path: Path, alone: bool) -> None:
    """It is made for the Service's name, not for a pod's address; the file need not contain the authority."""
    issued = Authority().issue("k8s-neuron-scheduler.kube-system.svc")
    leaf = "".join(issued.chain.decode().partition("-----END CERTIFICATE-----\n")[:2]).encode()
    shared = files(tmp_path / "shared", attrs.evolve(issued, chain=leaf if alone else issued.chain))
    async with serving(shared) as url:
        forward = shared.forward(url)
        assert await forward.send("bind", BODY) == (200, BOUND)
        forward.close()


async def test_another_certificate_is_not_trusted(tmp_path: Path) -> None:
    """Nothing is sent to a server that has only taken the leader's address."""
    ours = files(tmp_path / "ours", Authority().issue("k8s-neuron-scheduler"))
    theirs = files(tmp_path / "theirs", Authority().issue("k8s-neuron-scheduler"))
    async with serving(theirs) as url:
        assert "its certificate is not trusted by" in await sentence_of(ours.forward(url))
        assert "has no certificate to compare" in await sentence_of(Forward(leader_url=lambda: url))


async def test_a_leader_with_a_renewed_certificate_is_trusted_by_its_authority(tmp_path: Path) -> None:
    """A new Secret reaches the replicas one after the other; the authority of the clients' certificates is the same."""
    authority, ca_file = Authority(), tmp_path / "ca.crt"
    ca_file.write_bytes(authority.pem)
    issued = [authority.issue("k8s-neuron-scheduler", for_clients=True) for _ in range(2)]
    leaves = [attrs.evolve(each, chain=each.chain[: each.chain.index(b"-----BEGIN", 1)]) for each in issued]
    old, new = (files(tmp_path / name, leaf) for name, leaf in zip(("old", "new"), leaves, strict=True))
    async with serving(new, str(ca_file)) as url:
        forward = old.forward(url, str(ca_file))
        assert await forward.send("bind", BODY) == (200, BOUND)
        forward.close()
        assert "its certificate is not trusted by" in await sentence_of(old.forward(url))


async def test_a_leader_that_asks_for_certificates_gets_the_one_that_all_replicas_share(tmp_path: Path) -> None:
    """It must be valid for clients; otherwise the sentence says so."""
    authority, ca_file = Authority(), tmp_path / "ca.crt"
    ca_file.write_bytes(authority.pem)
    shared = files(tmp_path / "shared", authority.issue("k8s-neuron-scheduler", for_clients=True))
    async with serving(shared, str(ca_file)) as url:
        forward = shared.forward(url)
        assert await forward.send("bind", BODY) == (200, BOUND)
        forward.close()
    of_a_server = files(tmp_path / "server", authority.issue("k8s-neuron-scheduler"))
    async with serving(of_a_server, str(ca_file)) as url:
        assert "tls.crt must be valid for clients, too" in await sentence_of(of_a_server.forward(url))


def test_our_own_url() -> None:
    """A specific address is that of the flag, else the pod's."""
    assert own_url("10.0.0.7", 12345, pod_ip="", tls=False) == "http://10.0.0.7:12345"
    assert own_url("10.0.0.7", 12345, pod_ip="10.9.9.9", tls=False) == "http://10.0.0.7:12345"
    assert own_url("", 12345, pod_ip="10.9.9.9", tls=True) == "https://10.9.9.9:12345"
    assert own_url("0.0.0.0", 1, pod_ip="fd00::7", tls=False) == "http://[fd00::7]:1"
    assert own_url("::", 1, pod_ip="", tls=False) == ""
