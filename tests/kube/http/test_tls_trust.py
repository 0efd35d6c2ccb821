"""
EKS's certificates are trusted over both ways to the API server, and nothing that Go would not trust.

Every Python has the defaults of 3.13 here, the image's, so that the tests can fail on each.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yarl
from aiohttp import web

from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.tls import Tls
from neuron_scheduler.telemetry.errors import UnreachableError
from tests.support.certificates import Authority, Issued, strict
from tests.support.patience import PATIENCE

WAYS = pytest.mark.parametrize("streamed", [True, False], ids=["aiohttp", "our own connections"])
HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def defaults_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make default contexts as strict as those of Python 3.13."""
    monkeypatch.setattr(ssl, "create_default_context", strict(ssl.create_default_context))


@asynccontextmanager
async def serving(issued: Issued, folder: Path) -> AsyncIterator[str]:
    """Serve over TLS on a free loopback port; yield the URL."""

    async def greet(_request: web.Request) -> web.Response:
        return web.Response(text="hi")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", greet)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0, ssl_context=issued.serving(folder)).start()
        yield f"https://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def asked(streamed: bool, issued: Issued, folder: Path, trusted: bytes | None, server_name: str | None) -> bytes:
    """Send one request to a server that has this certificate, and return the answer's body."""
    ca_file = folder / "ca.crt"
    if trusted is not None:
        ca_file.write_bytes(trusted)
    tls = Tls(clock=lambda: 0.0, ca_file=None if trusted is None else str(ca_file), server_name=server_name)
    async with (
        serving(issued, folder) as url,
        Client(connection=Connection(url, "a test", tls=tls)) as client,
    ):
        if not streamed:
            return (await client.request("GET", "/x")).body
        async with client.stream("/x", params={}, read_timeout=PATIENCE) as stream:
            return await stream.next()


@WAYS
@pytest.mark.parametrize("server_name", [None, "api.test"])
async def test_an_authority_as_eks_has_it(streamed: bool, server_name: str | None, tmp_path: Path) -> None:
    """Neither it nor the server's certificate has a key identifier."""
    authority = Authority()
    issued = authority.issue(server_name or HOST)

    assert await asked(streamed, issued, tmp_path, authority.pem, server_name) == b"hi"


@WAYS
async def test_an_intermediate_authority_is_enough(streamed: bool, tmp_path: Path) -> None:
    """A CA in the file is trusted without its root, as with Go."""
    between = Authority().below()

    assert await asked(streamed, between.issue(HOST), tmp_path, between.pem, None) == b"hi"


REFUSED: dict[str, Callable[[Authority], tuple[Issued, bytes | None, str | None]]] = {
    "for another host": lambda ours: (ours.issue("127.0.0.2", "api.test"), ours.pem, None),
    "for another name": lambda ours: (ours.issue(HOST), ours.pem, "api.test"),
    "of another authority": lambda ours: (Authority().issue(HOST), ours.pem, None),
    "of an authority that only the server knows": lambda ours: (ours.issue(HOST), None, None),
    "expired": lambda ours: (ours.issue(HOST, expired=True), ours.pem, None),
}


@WAYS
@pytest.mark.parametrize("sentence", REFUSED)
async def test_what_is_not_trusted(streamed: bool, sentence: str, tmp_path: Path) -> None:
    """Host name, chain and dates are checked, and the error names the certificate."""
    issued, trusted, server_name = REFUSED[sentence](Authority())

    with pytest.raises(UnreachableError, match="certificate of the API server is not trusted") as raised:
        await asked(streamed, issued, tmp_path, trusted, server_name)
    assert "check certificate-authority" in str(raised.value)
    assert "Cannot connect" not in str(raised.value)


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_proxy_with_tls(trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS of the API server, a proxy's certificate is verified by the same rules, with the system's CAs."""
    authority, ca_file = Authority(), tmp_path / "ca.crt"
    ca_file.write_bytes((authority if trusted else Authority()).pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(ca_file))
    async with serving(authority.issue(HOST), tmp_path) as url:
        connection = Connection("http://api.test", "a test", proxy=yarl.URL(url))
        async with Client(connection=connection) as client:
            if trusted:
                assert (await client.request("GET", "/x")).body == b"hi"
            else:
                with pytest.raises(UnreachableError, match="not trusted"):
                    await client.request("GET", "/x")
