"""
The process's own endpoints: /healthz, /livez, /readyz and /metrics, over HTTP and, with a certificate, over HTTPS.

The answers are like kube-scheduler's (`apiserver/pkg/server/healthz`): `ok`, or the list of checks with `?verbose` or
if one fails. Live means that the event loop answers and a leader renews its Lease; ready means that the informers
have synced, leader or not. A check returns what is wrong, or None. Nothing secret is served, so clients need no token,
except for /metrics if there is an `Access`.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Final

import anyio
import anyio.lowlevel
import attrs
from aiohttp import web

from neuron_scheduler.serving.access import Access
from neuron_scheduler.serving.certificate import Certificate
from neuron_scheduler.serving.connections import SERVER, Connections, Limits, Reactions, open_listening
from neuron_scheduler.serving.pages import PLAIN_TEXT, Answer, RefusedError, WebPage, fixed_page, text
from neuron_scheduler.serving.timed_cache import TimedCache
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics, format_of

Check = Callable[[], str | None]

PLAIN: Final = Limits(at_once=64, waiting=512, rate=200.0, burst=20, seconds=10.0)
"""Even if every connection that waits has another peer, all of them get their turn before a probe's time is over."""
TLS: Final = Limits(at_once=64, waiting=128, rate=50.0, burst=20, seconds=10.0)
"""A handshake takes about five times as long as an answer."""
AGE: Final = 1.0
"""Seconds for which the text of /metrics is kept, since writing it takes milliseconds in which nothing is scheduled."""
NO_PAGES: Final[Mapping[str, WebPage]] = MappingProxyType({})
_PLAIN: Final = {"Content-Type": PLAIN_TEXT}
_NONE_HERE: Final = fixed_page(404, b"404 page not found\n", _PLAIN)
_ELSEWHERE: Final = fixed_page(
    403, b"metrics are served on --secure-port only, to clients that have the right to get them\n", _PLAIN
)

log = logs.logger(__name__)


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


@asynccontextmanager
async def serve_endpoints(
    endpoints: Endpoints,
    *,
    live: Mapping[str, Check],
    ready: Mapping[str, Check],
    metrics: Metrics,
    access: Access | None = None,
    pages: Mapping[str, WebPage] = NO_PAGES,
) -> AsyncIterator[None]:
    """
    Answer requests while the context is open.

    Args:
        endpoints: where to listen.
        live: what /livez and /healthz check, by name, beside `ping`.
        ready: what /readyz checks, likewise.
        metrics: what /metrics shows.
        access: who may read /metrics, which is served over HTTPS only then; None for everybody.
        pages: what else is served, by path, over HTTP and HTTPS; each page judges its clients itself.

    Raises:
        ConfigurationError: an address is taken or not ours, or the certificate cannot be used.
    """
    certificate = Certificate(endpoints.cert_file, endpoints.key_file) if endpoints.secure_port else None
    common = {**pages, **health(live, ready)}
    shown = metrics_page(metrics, access)
    async with AsyncExitStack() as ports:
        if endpoints.port:
            opened = open_listening(endpoints.address, endpoints.port, "--port or --bind-address")
            here = common | {"/metrics": shown if access is None else _ELSEWHERE}
            plain = Connections(listening=opened, reactions=_reactions(here, metrics), limits=PLAIN)
            ports.push_async_callback(plain.close)
        if certificate is not None:
            opened = open_listening(endpoints.address, endpoints.secure_port, "--secure-port or --bind-address")
            reactions = _reactions(common | {"/metrics": shown}, metrics)
            secure = Connections(listening=opened, reactions=reactions, limits=TLS, certificate=certificate)
            ports.push_async_callback(secure.close)
        yield


def _reactions(pages: Mapping[str, WebPage], metrics: Metrics) -> Reactions:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        try:
            response = await pages.get(request.path, _NONE_HERE).answer_to(request)
        except RefusedError as error:
            response = error.response()
        response.headers.update(SERVER | {"X-Content-Type-Options": "nosniff"})
        response.force_close()  # a connection has one request: no client gets more than its turns
        return response

    return Reactions(
        answer=answer, unreadable=_unreadable, on_drop=lambda how, _why, _peer: metrics.count_dropped_connection(how)
    )


def _unreadable(error: BaseException | None, message: str) -> web.StreamResponse:
    if isinstance(error, Exception) and not message:
        if not isinstance(error, ConnectionError):  # else the client has gone
            log.error("Cannot answer a request", exc=error)
        return text(500, "internal error; see the log")
    return text(400, "not a request of HTTP/1.1")


def health(live: Mapping[str, Check], ready: Mapping[str, Check]) -> dict[str, WebPage]:
    """Return the health endpoints by path; the arguments are those of `serve_endpoints`."""
    checks = {"healthz": live, "livez": live, "readyz": ready}
    return {f"/{endpoint}": WebPage(_check_answer(endpoint, of)) for endpoint, of in checks.items()}


def _check_answer(endpoint: str, checks: Mapping[str, Check]) -> Answer:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        problems = {"ping": None} | {name: check() for name, check in checks.items()}
        failed = any(problems.values())
        if not failed and "verbose" not in request.query:
            return text(200, "ok")
        lines = [
            f"[+]{name} ok" if not problem else f"[-]{name} failed: {problem}" for name, problem in problems.items()
        ]
        lines.append(f"{endpoint} check {'failed' if failed else 'passed'}\n")
        return text(500 if failed else 200, "\n".join(lines))

    return answer


def metrics_page(
    metrics: Metrics, access: Access | None = None, *, clock: Callable[[], float] = time.monotonic
) -> WebPage:
    """
    Return the page of the metrics, in the format that the header `Accept` asks for; without `access`, for everybody.

    Its text is kept for `AGE`, so that many scrapers cost the event loop no more than one.
    """
    texts: TimedCache[str, bytes] = TimedCache(clock=clock, seconds=AGE, most=2)
    writing = anyio.Lock()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if access is not None:
            await access.reader(request)
        accept = request.headers.get("Accept", "")
        content_type = format_of(accept)
        async with writing:  # who comes while a text is written waits for it
            text = texts.get(content_type)
            if text is None:
                for _ in metrics.prepare():
                    await anyio.lowlevel.checkpoint()
                text = texts.put(content_type, metrics.exposition(accept)[0])
        return web.Response(body=text, headers={"Content-Type": content_type})

    return WebPage(answer)
