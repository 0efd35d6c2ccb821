"""A proxy is used as client-go uses it, or refused with a sentence; its password is never shown."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trustme
import yarl
from aiohttp import web

from neuron_scheduler.kube.http.auth import Connection, proxy_for, read_proxy
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.credentials import Fixed
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import ConfigurationError, UnreachableError
from tests.support.scripted_server import answer, scripted

USERINFO = "us%40er:p%C3%A4ss%2Fword"
HEADER = f"Basic {base64.b64encode('us@er:päss/word'.encode()).decode()}"


PROXY = {"HTTPS_PROXY": "http://proxy:3128"}
PROXIES: dict[str, tuple[str, dict[str, str], str | None]] = {
    "none set": ("https://api:6443", {}, None),
    "set": ("https://api:6443", PROXY, "http://proxy:3128"),
    "in lower case": ("https://api", {"https_proxy": "http://proxy"}, "http://proxy"),
    "without a scheme": ("https://api", {"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
    "for another scheme": ("http://api", PROXY, None),
    "loopback": ("https://127.0.0.1:6443", PROXY, None),
    "localhost": ("https://localhost:6443", PROXY, None),
    "an excepted address": ("https://10.100.0.1", {**PROXY, "no_proxy": "10.100.0.1"}, None),
    "an excepted domain": ("https://a.eks.amazonaws.com", {**PROXY, "NO_PROXY": ".amazonaws.com"}, None),
}


@pytest.mark.parametrize("sentence", PROXIES)
def test_proxies(sentence: str) -> None:
    """The environment decides, once."""
    url, environment, want = PROXIES[sentence]

    assert proxy_for(url, environment) == (yarl.URL(want) if want else None)


def test_a_password_is_not_shown() -> None:
    """The representation of a connection has no secret."""
    proxy = proxy_for("https://api", {"HTTPS_PROXY": f"{USERINFO}@proxy:3128"})

    assert proxy == read_proxy(f"http://{USERINFO}@proxy:3128", "a test")
    assert "ss%2Fword" not in repr(Connection("https://api", "a test", proxy=proxy))


UNUSABLE = (
    "socks5://me:secret@h:1080",
    "proxy:3128",
    "http://",
    "http://me:secret@h:0",
    "http://me:secret\n@h",
)


@pytest.mark.parametrize("url", UNUSABLE)
def test_proxies_that_cannot_be_used(url: str) -> None:
    """One sentence says what is wrong, where, and what to write, without the password."""
    with pytest.raises(ConfigurationError, match="write http://HOST:PORT") as caught:
        read_proxy(url, "kubeconfig x: proxy-url")

    assert str(caught.value).startswith("kubeconfig x: proxy-url is not")
    assert "secret" not in str(caught.value)
    if "://" in url:
        with pytest.raises(ConfigurationError, match="HTTPS_PROXY"):
            proxy_for("https://api", {"HTTPS_PROXY": url})


@attrs.define(eq=False)
class Tunnel:
    """A proxy that supports CONNECT, and stores the heads of its requests."""

    status: bytes = b"200 OK"
    heads: list[str] = attrs.field(factory=list)
    connections: list[asyncio.StreamWriter] = attrs.field(factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Open a tunnel, or refuse it."""
        self.connections.append(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        writer.write(b"HTTP/1.1 " + self.status + b"\r\n\r\n")
        if self.status.startswith(b"200"):
            host, _, port = head.split(" ")[1].rpartition(":")
            back, forth = await asyncio.open_connection(host, int(port))
            self.connections.append(forth)
            await asyncio.wait({asyncio.create_task(pipe(reader, forth)), asyncio.create_task(pipe(back, writer))})
        writer.close()


async def pipe(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    """Copy until the end."""
    try:
        while data := await source.read(1 << 16):
            to.write(data)
    except ConnectionError:
        pass
    to.close()


@asynccontextmanager
async def tunnelled(tunnel: Tunnel, scheme: str) -> AsyncIterator[Client]:
    """Yield a client for an API server with TLS behind a proxy that requires a password."""
    authority = trustme.CA()
    server, at_proxy = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.issue_cert("127.0.0.1").configure_cert(at_proxy)

    async def respond(request: web.Request) -> web.Response:
        return web.json_response(dict(request.headers))

    app = web.Application()
    app.router.add_route("*", "/x", respond)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
    proxy = await asyncio.start_server(tunnel.serve, "127.0.0.1", 0, ssl=at_proxy if scheme == "https" else None)
    port = proxy.sockets[0].getsockname()[1]
    try:
        with authority.cert_pem.tempfile() as ca_file:
            connection = Connection(
                f"https://127.0.0.1:{runner.addresses[0][1]}",
                "a test",
                Fixed("Bearer for-the-server"),
                Tls(clock=lambda: 0.0, ca_file=ca_file),
                read_proxy(f"{scheme}://{USERINFO}@127.0.0.1:{port}", "a test"),
                (("Impersonate-User", "me"),),
            )
            async with Client(connection=connection) as client:
                yield client
    finally:
        proxy.close()
        for writer in tunnel.connections:
            writer.transport.abort()
        await runner.cleanup()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_with_a_password(scheme: str) -> None:
    """The proxy gets its password but not our token, and the server our token but not the proxy's password."""
    tunnel = Tunnel()
    async with tunnelled(tunnel, scheme) as client:
        seen = [(await client.request(method, "/x", body=body)).body.decode() for method, body in WAYS]

    (head,) = tunnel.heads  # the tunnel is kept for the second request
    assert f"Proxy-Authorization: {HEADER}" in head
    assert "for-the-server" not in head
    assert "Impersonate" not in head
    for headers in seen:
        assert "Bearer for-the-server" in headers
        assert "Impersonate-User" in headers
        assert "Proxy-Authorization" not in headers


WAYS: list[tuple[str, bytes | None]] = [("GET", None), ("POST", b"{}")]


async def test_a_proxy_that_refuses() -> None:
    """The error names the proxy and not its password."""
    async with tunnelled(Tunnel(b"407 Proxy Authentication Required"), "http") as client:
        with pytest.raises(UnreachableError, match="407") as caught:
            await client.request("GET", "/x")

    assert HEADER.removeprefix("Basic ") not in str(caught.value)
    assert "ss%2Fword" not in str(caught.value)


async def test_a_proxy_in_front_of_a_plain_server() -> None:
    """Without TLS the request itself goes to the proxy, and its password with it."""
    async with scripted(answer()) as (server, _):
        proxy = yarl.URL(server.url.replace("http://", f"http://{USERINFO}@"))
        async with Client(connection=Connection("http://api", "a test", proxy=proxy)) as client:
            await client.request("GET", "/x")

    (seen,) = server.seen
    assert seen.headers["Proxy-Authorization"] == HEADER
    assert seen.headers["Host"] == "api"
