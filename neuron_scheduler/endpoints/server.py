"""
The process's own endpoints: /healthz, /livez, /readyz and /metrics, over HTTP and, with a certificate, over HTTPS.

The answers are like kube-scheduler's (`apiserver/pkg/server/healthz`): `ok`, or the list of checks with `?verbose` or
if one fails. Live means that the event loop answers and a leader renews its Lease; ready means that the informers
have synced, leader or not. Does not depend on what a check does: each is a function that returns what is wrong, or
None. Nothing secret is served, so clients need no token, except for /metrics if there is an `Access`. Other rooms add
their pages by path.
"""

import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.endpoints.certificate import Certificate
from neuron_scheduler.endpoints.exchange import Answer, Page, Reply, Request, text
from neuron_scheduler.endpoints.exposition import Exposition
from neuron_scheduler.endpoints.listener import PLAIN, TLS, Listener, open_socket
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.telemetry.metrics import Metrics

Check = Callable[[], str | None]

LEASE_TOLERANCE: Final = 20.0  # seconds beyond the lease duration, as kube-scheduler's watchdog allows
CLOSING_TIME: Final = 2.0
NO_PAGES: Final[Mapping[str, Page]] = MappingProxyType({})


class Access(Protocol):
    """Who may read /metrics."""

    async def refusal(self, authorization: str) -> Reply | None:
        """Return the refusal of a client that may not read them, None for one that may."""


@attrs.frozen(kw_only=True)
class Endpoints:
    """
    Where to listen; port 0 is off.

    `secure_port` needs the two files; they are read again when they change.
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
    endpoints: Endpoints,
    *,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    metrics: Metrics,
    access: Access | None = None,
    pages: Mapping[str, Page] = NO_PAGES,
) -> AsyncIterator[None]:
    """
    Answer requests while the context is open.

    Args:
        endpoints: where to listen.
        live: what /livez and /healthz check, by name, beside `ping`.
        ready: what /readyz checks, by name, beside `ping`.
        metrics: what /metrics shows.
        access: who may read /metrics, which is served over HTTPS only then; None for everybody.
        pages: what else is served, by path, over HTTP and HTTPS; each page judges its clients itself.

    Raises:
        ConfigurationError: an address is taken or not ours, or the certificate cannot be used.
    """
    certificate = Certificate(endpoints.cert_file, endpoints.key_file) if endpoints.secure_port else None
    shown = _metrics_page(Exposition(metrics=metrics, clock=time.monotonic), access)
    async with AsyncExitStack() as listeners:
        if endpoints.port:
            plain = Listener(
                listening=open_listening(endpoints.address, endpoints.port, "--port or --bind-address"),
                answer=_answering(live, ready, shown if access is None else _elsewhere, pages),
                dropped=metrics.connection_dropped,
                limits=PLAIN,
            )
            listeners.push_async_callback(_close, plain)
        if certificate is not None:
            secure = Listener(
                listening=open_listening(endpoints.address, endpoints.secure_port, "--secure-port or --bind-address"),
                answer=_answering(live, ready, shown, pages),
                dropped=metrics.connection_dropped,
                limits=TLS,
                certificate=certificate.context,
            )
            listeners.push_async_callback(_close, secure)
        yield


async def _close(listener: Listener) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSING_TIME):
        await listener.close()


def open_listening(address: str, port: int, flags: str) -> socket.socket:
    """
    Return a socket that listens, as `open_socket`.

    Args:
        address: an IP address.
        port: its port.
        flags: names of the flags that say so.

    Raises:
        ConfigurationError: the address is taken, or not ours.
    """
    try:
        return open_socket(address, port)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ConfigurationError(
            f"cannot listen on {address} at port {port} ({reason}); choose another {flags}"
        ) from error


def health(live: Mapping[str, Check], ready: Mapping[str, Check]) -> Answer:
    """Return what answers the health endpoints on another port; the arguments are those of `serving`."""
    return _answering(live, ready, _not_here)


async def _not_here(_request: Request) -> Reply:
    return text(404, "404 page not found\n")


def _answering(
    live: Mapping[str, Check], ready: Mapping[str, Check], metrics_page: Answer, more: Mapping[str, Page] = NO_PAGES
) -> Answer:
    pages = {
        **more,
        "/healthz": Page(_checking("healthz", live)),
        "/livez": Page(_checking("livez", live)),
        "/readyz": Page(_checking("readyz", ready)),
        "/metrics": Page(metrics_page),
    }

    async def answer(request: Request) -> Reply:
        page = pages.get(request.path)
        if page is None:
            return text(404, "404 page not found\n")
        if request.method not in page.methods:
            return text(405, "405 method not allowed\n", {"Allow": ", ".join(page.methods)})
        return await page.answer(request)

    return answer


def _metrics_page(shown: Exposition, access: Access | None) -> Answer:
    async def answer(request: Request) -> Reply:
        refusal = None if access is None else await access.refusal(request.fields.get("authorization", ""))
        if refusal is not None:
            return refusal
        for _ in shown.prepared():
            await anyio.lowlevel.checkpoint()
        return Reply(200, *shown.text(request.fields.get("accept", "")))

    return answer


async def _elsewhere(_request: Request) -> Reply:
    return text(403, "metrics are served on --secure-port only, to clients that have the right to get them\n")


def _checking(endpoint: str, checks: Mapping[str, Check]) -> Answer:
    async def answer(request: Request) -> Reply:
        problems = {"ping": None} | {name: check() for name, check in checks.items()}
        failed = any(problems.values())
        if not failed and not request.asks_for("verbose"):
            return text(200, "ok")
        lines = [
            f"[+]{name} ok" if not problem else f"[-]{name} failed: {problem}" for name, problem in problems.items()
        ]
        lines.append(f"{endpoint} check {'failed' if failed else 'passed'}\n")
        return text(500 if failed else 200, "\n".join(lines))

    return answer
