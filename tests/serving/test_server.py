"""Probes get kube-scheduler's answers, over HTTP and HTTPS."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import aiohttp
import attrs
import pytest
import trustme
from aiohttp import web

from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.serving import server
from neuron_scheduler.serving.access import Access
from neuron_scheduler.serving.pages import WebPage, text
from neuron_scheduler.serving.server import Check, Endpoints, metrics_page, serve_endpoints
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.state_metrics import State
from tests.support.reviews import FakeReviews
from tests.support.web_requests import answer, body_of, request


@attrs.define(eq=False)
class Health:
    """Two checks that a test switches, and the endpoints in front of them."""

    port: int
    problem: str | None = None
    unready: str | None = None

    @asynccontextmanager
    async def served(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Serve, and yield a client."""
        live: dict[str, Check] = {"leaderElection": lambda: self.problem}
        ready: dict[str, Check] = {"informer-sync": lambda: self.unready}
        endpoints = Endpoints(address="127.0.0.1", port=self.port)
        async with (
            serve_endpoints(endpoints, live=live, ready=ready, metrics=Metrics()),
            aiohttp.ClientSession(f"http://127.0.0.1:{self.port}", trust_env=False) as client,
        ):
            yield client


@pytest.fixture
def health(free_tcp_port: int) -> Health:
    """Checks on a free port."""
    return Health(free_tcp_port)


async def get(client: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with client.get(path) as response:
        return response.status, await response.text()


async def test_verbose_lists_the_checks(health: Health) -> None:
    """The list looks like kube-scheduler's; without it a probe reads `ok`."""
    async with health.served() as client:
        assert {await get(client, path) for path in ("/healthz", "/livez", "/readyz")} == {(200, "ok")}
        assert await get(client, "/readyz?verbose") == (
            200,
            "[+]ping ok\n[+]informer-sync ok\nreadyz check passed\n",
        )


async def test_a_failing_check_names_itself(health: Health) -> None:
    """Liveness and readiness fail on their own, with the reason, and recover."""
    async with health.served() as client:
        health.unready = "nodes are not listed yet"
        assert await get(client, "/readyz") == (
            500,
            "[+]ping ok\n[-]informer-sync failed: nodes are not listed yet\nreadyz check failed\n",
        )
        assert await get(client, "/livez") == (200, "ok")
        health.unready, health.problem = None, "the Lease was last renewed 40 s ago"
        assert (await get(client, "/readyz"))[0] == 200
        assert [(await get(client, path))[0] for path in ("/livez", "/healthz")] == [500, 500]


async def test_metrics_are_prepared_in_steps(free_tcp_port: int) -> None:
    """Slow preparations come before the state is read, and let other tasks run."""
    steps: list[str] = []

    def prepared() -> Iterator[None]:
        for step in ("one", "two"):
            steps.append(step)
            asyncio.get_running_loop().call_soon(steps.append, "another")
            yield

    def state() -> State:
        steps.append("read")
        return State()

    metrics = Metrics()
    metrics.ask(state, prepared)
    endpoints = Endpoints(address="127.0.0.1", port=free_tcp_port)
    async with (
        serve_endpoints(endpoints, live={}, ready={}, metrics=metrics),
        aiohttp.ClientSession(f"http://127.0.0.1:{free_tcp_port}", trust_env=False) as client,
    ):
        assert (await get(client, "/metrics"))[0] == 200
    assert steps == ["one", "another", "two", "another", "read"]


async def test_a_text_is_kept_for_a_second() -> None:
    """Scrapers that come meanwhile, or while it is written, get the same text; each format is written once."""
    metrics, now, prepared = Metrics(), 0.0, 0

    def steps() -> Iterator[None]:
        nonlocal prepared
        prepared += 1
        yield

    metrics.ask(State, steps)
    page = metrics_page(metrics, clock=lambda: now)

    async def text(accept: str = "") -> bytes:
        return await body_of(await answer(page, request("/metrics", {"Accept": accept})))

    plain = {await text()} | {*await asyncio.gather(*(text("text/html;q=0.1, */*") for _ in range(300)))}
    assert (len(plain), prepared) == (1, 1)
    opened = [await text(f"application/openmetrics-text; version={version}") for version in ("1.0.0", "1.0.1", "x")]
    assert opened[0].endswith(b"# EOF\n")
    assert len({*opened}) == 1
    metrics.count_attempt("scheduled", "p", 0.1)
    assert ({await text()}, prepared) == (plain, 2)
    now += server.AGE
    assert await text() not in plain
    assert prepared == 3


async def test_a_scrape_that_is_given_up_holds_nobody_up() -> None:
    """The next one prepares again."""
    metrics = Metrics()
    page = metrics_page(metrics)
    metrics.ask(State, lambda: iter([None] * 100))
    first = asyncio.create_task(answer(page, request("/metrics")))
    await asyncio.sleep(0)
    first.cancel()
    assert b"scheduler_pending_pods" in await body_of(await answer(page, request("/metrics")))


async def test_metrics_and_nothing_else(health: Health) -> None:
    """/metrics is Prometheus text; other paths do not exist, other methods are refused."""
    async with health.served() as client:
        async with client.get("/metrics") as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            assert "scheduler_pending_pods" in await response.text()
        assert (await get(client, "/debug/pprof"))[0] == 404
        async with client.post("/healthz") as response:
            assert response.status == 405
        async with client.head("/healthz") as response:
            assert response.status == 200


async def test_pages_of_other_rooms(free_tcp_port: int) -> None:
    """A page is served by its path, with the methods that it has; it cannot take the place of a health check."""

    async def shown(request: web.BaseRequest) -> web.Response:
        return text(200, f"{request.method} {request.path}?{request.query_string}")

    pages = {"/v1/one": WebPage(shown), "/v1/two": WebPage(shown, ("POST",)), "/livez": WebPage(shown)}
    endpoints = Endpoints(address="127.0.0.1", port=free_tcp_port)
    async with (
        serve_endpoints(endpoints, live={}, ready={}, metrics=Metrics(), pages=pages),
        aiohttp.ClientSession(f"http://127.0.0.1:{free_tcp_port}", trust_env=False) as client,
    ):
        assert await get(client, "/v1/one?a=b") == (200, "GET /v1/one?a=b")
        assert [(await get(client, path))[0] for path in ("/v1/two", "/v1/three", "/v1")] == [405, 404, 404]
        async with client.post("/v1/two") as response:
            assert (response.status, await response.text()) == (200, "POST /v1/two?")
        assert await get(client, "/livez") == (200, "ok")


async def test_a_taken_port_is_a_sentence(health: Health) -> None:
    """Two processes on one port: the second says which flag to change."""
    async with health.served():
        complaint = (
            rf"cannot listen on 127.0.0.1 at port {health.port} \(Address already in use\); choose another --port"
        )
        with pytest.raises(ConfigurationError, match=complaint):
            async with health.served():
                pass


@attrs.frozen
class Secured:
    """A folder with a certificate for 127.0.0.1, and its issuer."""

    folder: Path
    authority: trustme.CA = attrs.field(factory=trustme.CA)

    def issue(self) -> None:
        """Write a new certificate and its key over the old ones."""
        issued = self.authority.issue_cert("127.0.0.1")
        (self.folder / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        (self.folder / "tls.key").write_bytes(issued.private_key_pem.bytes())

    def endpoints(self, secure_port: int, port: int = 0) -> Endpoints:
        """Return endpoints that use it."""
        cert, key = self.folder / "tls.crt", self.folder / "tls.key"
        return Endpoints(
            address="127.0.0.1", port=port, secure_port=secure_port, cert_file=str(cert), key_file=str(key)
        )

    async def get(self, url: str, **headers: str) -> tuple[int, str]:
        """Return status and text."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        async with (
            aiohttp.ClientSession(trust_env=False) as client,
            client.get(url, ssl=context, headers=headers) as response,
        ):
            return response.status, await response.text()


@pytest.fixture
def secured(tmp_path: Path) -> Secured:
    """A certificate in a folder."""
    secured = Secured(tmp_path)
    secured.issue()
    return secured


async def test_https(secured: Secured, free_tcp_port: int) -> None:
    """With a certificate the same endpoints are served over TLS, also after its renewal."""
    url = f"https://127.0.0.1:{free_tcp_port}"
    async with serve_endpoints(secured.endpoints(free_tcp_port), live={}, ready={}, metrics=Metrics()):
        assert await secured.get(f"{url}/livez") == (200, "ok")
        renewed = Secured(secured.folder)
        renewed.issue()
        assert await renewed.get(f"{url}/livez") == (200, "ok")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await secured.get(f"{url}/livez")
        assert "scheduler_pending_pods" in (await renewed.get(f"{url}/metrics"))[1]


async def test_metrics_for_those_who_may(secured: Secured, free_tcp_port_factory: Callable[[], int]) -> None:
    """With access control, metrics are served over HTTPS to accepted clients only, and health to all."""
    secure_port, port = free_tcp_port_factory(), free_tcp_port_factory()
    secure, plain = f"https://127.0.0.1:{secure_port}", f"http://127.0.0.1:{port}"
    access = Access(reviews=cast(UserReviews, FakeReviews()), clock=lambda: 0.0)
    async with serve_endpoints(
        secured.endpoints(secure_port, port), live={}, ready={}, metrics=Metrics(), access=access
    ):
        assert (await secured.get(f"{secure}/metrics"))[0] == 401
        assert (await secured.get(f"{secure}/metrics", Authorization="Bearer joe"))[0] == 403
        assert "scheduler_pending_pods" in (await secured.get(f"{secure}/metrics", Authorization="Bearer jane"))[1]
        status, body = await secured.get(f"{plain}/metrics", Authorization="Bearer jane")
        assert (status, body[:44]) == (403, "metrics are served on --secure-port only, to")
        for path in ("/livez", "/readyz", "/healthz"):
            for url in (secure, plain):
                assert await secured.get(f"{url}{path}") == (200, "ok")
