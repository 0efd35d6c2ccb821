"""
The process's own endpoints: /healthz, /livez, /readyz and /metrics, over HTTP and, with a certificate, over HTTPS.

Answers look like kube-scheduler's (`apiserver/pkg/server/healthz`): `ok`, or the list of checks with `?verbose` and
whenever one fails. Live means that the event loop answers and a leader renews its Lease; ready means that the informers
have synced, leader or not. Refuses to know what a check looks at: each is a function that returns what is wrong, if
anything. Nothing secret is served, so nobody is asked who they are.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

import anyio
import attrs
from aiohttp import web

from neuron_scheduler.errors import ConfigurationError

Check = Callable[[], str | None]

LEASE_TOLERANCE: Final = 20.0  # seconds beyond the lease duration, as kube-scheduler's watchdog allows
CLOSING_TIME: Final = 2.0

_NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}


class Exposition(Protocol):
    """What /metrics shows."""

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in a format that `accept` allows, and its content type."""
        ...


@attrs.frozen(kw_only=True)
class Endpoints:
    """
    Where to listen; port 0 is off.

    `secure_port` needs the two files, which are read once: a renewed certificate needs a restart.
    """

    address: str
    port: int
    secure_port: int = 0
    cert_file: str = ""
    key_file: str = ""


def lease_watchdog(
    *, renewed_at: Callable[[], float | None], clock: Callable[[], float], lease_duration: float
) -> Check:
    """
    Return the check that fails on a leader whose last renewal is overdue by more than the tolerance.

    Args:
        renewed_at: when the Lease was last renewed, on the same clock; None while this process is not the leader.
        clock: seconds, monotonic.
        lease_duration: seconds.
    """

    def check() -> str | None:
        renewed = renewed_at()
        if renewed is None or clock() - renewed <= lease_duration + LEASE_TOLERANCE:
            return None
        return f"the Lease was last renewed {clock() - renewed:.0f} s ago; it lasts {lease_duration:g} s"

    return check


@asynccontextmanager
async def serving(
    endpoints: Endpoints, *, live: Mapping[str, Check], ready: Mapping[str, Check], metrics: Exposition
) -> AsyncIterator[None]:
    """
    Answer requests for as long as the context is open.

    Args:
        endpoints: where to listen.
        live: what /livez and /healthz check, by name, beside `ping`.
        ready: what /readyz checks, by name, beside `ping`.
        metrics: what /metrics shows.

    Raises:
        ConfigurationError: an address is taken or not ours, or the certificate cannot be used.
    """
    certificate = _certificate(endpoints) if endpoints.secure_port else None
    runner = web.AppRunner(_application(live, ready, metrics), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        if endpoints.port:
            await _listen(runner, endpoints.address, endpoints.port, None)
        if certificate is not None:
            await _listen(runner, endpoints.address, endpoints.secure_port, certificate)
        yield
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSING_TIME):
            await runner.cleanup()


async def _listen(runner: web.AppRunner, address: str, port: int, certificate: ssl.SSLContext | None) -> None:
    try:
        await web.TCPSite(runner, address, port, ssl_context=certificate).start()
    except OSError as error:
        name = "--port" if certificate is None else "--secure-port"
        raise ConfigurationError(
            f"cannot listen on {address}:{port} ({error.strerror or error}); choose another {name} or --bind-address"
        ) from error


def _certificate(endpoints: Endpoints) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # An empty password rather than OpenSSL's question on the terminal, should the key be encrypted.
        context.load_cert_chain(endpoints.cert_file, endpoints.key_file, password=lambda: "")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"cannot use --tls-cert-file {endpoints.cert_file} with --tls-private-key-file {endpoints.key_file}:"
            f" {error}"
        ) from error
    return context


def _application(live: Mapping[str, Check], ready: Mapping[str, Check], metrics: Exposition) -> web.Application:
    async def show_metrics(request: web.Request) -> web.Response:
        body, content_type = metrics.exposition(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    application = web.Application()
    application.router.add_get("/healthz", _checking("healthz", live))
    application.router.add_get("/livez", _checking("livez", live))
    application.router.add_get("/readyz", _checking("readyz", ready))
    application.router.add_get("/metrics", show_metrics)
    return application


def _checking(endpoint: str, checks: Mapping[str, Check]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(request: web.Request) -> web.Response:
        problems = {"ping": None} | {name: check() for name, check in checks.items()}
        failed = any(problems.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok", headers=_NOSNIFF)
        lines = [
            f"[+]{name} ok" if not problem else f"[-]{name} failed: {problem}" for name, problem in problems.items()
        ]
        lines.append(f"{endpoint} check {'failed' if failed else 'passed'}\n")
        return web.Response(text="\n".join(lines), status=500 if failed else 200, headers=_NOSNIFF)

    return answer
