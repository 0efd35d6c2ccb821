"""
The extender's requests over HTTP/1.1: which verb each is for, limits on bodies and time, and what is counted.

Without `nodeCacheCapable` kube-scheduler sends whole nodes: tens of megabytes. The health endpoints answer here too,
for probes of the Service's port. A request that cannot be served gets a status and a sentence, and a log line; a client
that repeats it cannot flood the log. Does not depend on what a verb does.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import attrs
from aiohttp import web

from neuron_scheduler.endpoints.certificate import Certificate
from neuron_scheduler.endpoints.exchange import PLAIN_TEXT, Reply, Request
from neuron_scheduler.endpoints.server import open_listening
from neuron_scheduler.extender.connections import Connections, Reactions
from neuron_scheduler.extender.protocol import FORWARDED
from neuron_scheduler.extender.verbs import VERBS, Answer, Verbs, sentence
from neuron_scheduler.kube.http.rate_limit import TokenBucket
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

MOST_BODY: Final = 96 << 20
"""Bytes of a request: 8,000 whole nodes. For more, kube-scheduler must send names only."""
MOST_HELD: Final = 160 << 20
"""Bytes of all requests that are read or answered at one time; in memory they take twice as much, of 1 GiB."""
BODY_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 20.0
HEALTH: Final = ("/healthz", "/livez", "/readyz")
CLIENT_GONE: Final = 499
"""The code in the metric for a client that has hung up, such as kube-scheduler after its `httpTimeout`."""
LINES_AT_ONCE: Final = 10
LINES_PER_SECOND: Final = 0.1

_CHUNK: Final = 256 << 10
_NO_VERB: Final = "none"
_SERVER: Final = {"Server": "neuron-scheduler"}  # instead of the versions of Python and aiohttp
_JSON: Final = "application/json"
_LONGEST: Final = 300  # characters of a sentence in the log

log = logs.logger(__name__)


@attrs.frozen(kw_only=True)
class Port:
    """Where to listen; the files are empty without TLS, or if clients need no certificate."""

    address: str
    port: int
    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""


@asynccontextmanager
async def serving(
    port: Port,
    *,
    verbs: Verbs,
    health: Callable[[Request], Awaitable[Reply]],
    metrics: Metrics,
    stopping: Callable[[], bool],
) -> AsyncIterator[None]:
    """
    Answer requests while the context is open; the arguments are those of `ExtenderServer`.

    Raises:
        ConfigurationError: the address is taken or not ours, or the certificate cannot be used.
    """
    certificate = None
    if port.cert_file:
        certificate = Certificate(port.cert_file, port.key_file, port.client_ca_file, flags="--extender-tls")
    server = ExtenderServer(verbs=verbs, health=health, metrics=metrics, stopping=stopping)
    connections = server.listen(open_listening(port.address, port.port, "--extender-bind-address"), certificate)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await connections.close()


@attrs.define(eq=False, kw_only=True)
class ExtenderServer:
    """
    Answers the requests to one port, until `close`.

    Attributes:
        health: answers the health endpoints.
        stopping: whether clients should look for another replica.
        clock: seconds that never jump.
    """

    verbs: Verbs
    health: Callable[[Request], Awaitable[Reply]]
    metrics: Metrics
    stopping: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    _held: int = attrs.field(default=0, init=False)
    _lines: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = TokenBucket(self.clock, LINES_PER_SECOND, LINES_AT_ONCE)

    def listen(self, listening: socket.socket, certificate: Certificate | None = None) -> Connections:
        """Answer on a socket until the connections are closed; without a certificate there is no TLS."""
        reactions = Reactions(answer=self._answer, unreadable=self._unreadable, refused=self._refused)
        return Connections(listening=listening, reactions=reactions, certificate=certificate)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in HEALTH:
            return await self._answer_health(request)
        started, path = self.clock(), request.path.removeprefix("/")
        verb = path if path in VERBS else _NO_VERB
        code = CLIENT_GONE
        try:
            answer = _misdirected(request, verb)
            if answer is not None:
                response = await self._send(request, verb, answer)
            else:
                async with self._body(request) as body:
                    response = await self._send(request, verb, await self._answered(request, verb, body))
            code = response.status
        except ConnectionError:  # the client has gone while the answer was written
            raise
        except Exception:
            code = 500
            raise
        else:
            return response
        finally:
            self.metrics.extender_requested(verb, str(code))
            self.metrics.extender_seconds(verb).observe(self.clock() - started)

    async def _answered(self, request: web.BaseRequest, verb: str, body: bytes | Answer) -> Answer:
        if isinstance(body, Answer):
            return body
        return await self.verbs.answer(verb, body, forwarded=FORWARDED in request.headers)

    @asynccontextmanager
    async def _body(self, request: web.BaseRequest) -> AsyncIterator[bytes | Answer]:
        """Read the body, and count its bytes inside the block; yields the answer to one that is not accepted."""
        size, chunks, refusal = 0, list[bytes](), None
        if (request.content_length or 0) > MOST_BODY:
            yield _too_large()
            return
        try:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    await _invite(request)
                    async for chunk in request.content.iter_any():
                        size, self._held = size + len(chunk), self._held + len(chunk)
                        chunks.append(chunk)
                        if size > MOST_BODY:
                            refusal = _too_large()
                        elif self._held > MOST_HELD:
                            refusal = sentence(503, "too many large requests at once; try again later")
                        if refusal is not None:
                            break
            except TimeoutError:
                refusal = sentence(408, f"the body did not arrive within {BODY_SECONDS:g} s")
            except web.RequestPayloadError as error:
                refusal = sentence(400, f"the body cannot be read: {error}")
            body = b"" if refusal is not None else b"".join(chunks)
            chunks.clear()
            yield body if refusal is None else refusal
        finally:
            self._held -= size

    async def _send(self, request: web.BaseRequest, verb: str, answer: Answer) -> web.StreamResponse:
        """Send an answer in chunks, so that large ones do not block the event loop; log it if it is a refusal."""
        if answer.status != 200:
            self._log(verb, answer, request)
        content_type = _JSON if answer.status == 200 else PLAIN_TEXT
        headers = {"Content-Type": content_type, **_SERVER, **answer.fields}
        response = web.StreamResponse(status=answer.status, headers=headers)
        if self.stopping():
            response.force_close()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await response.prepare(request)
                for chunk in _chunks(answer.pieces):
                    await response.write(chunk)
                await response.write_eof()
        except TimeoutError:
            self.metrics.connection_dropped("slow")
            request.protocol.force_close()
        return response

    async def _answer_health(self, request: web.BaseRequest) -> web.StreamResponse:
        reply = await self.health(Request(request.method, request.path, request.query_string))
        headers = {"Content-Type": reply.content_type, **_SERVER, **reply.fields}
        return web.Response(status=reply.status, body=reply.body, headers=headers)

    def _log(self, verb: str, answer: Answer, request: web.BaseRequest) -> None:
        if self._lines.take_now():
            log.warning(
                "Cannot serve a request to the extender",
                verb=verb,
                client=request.remote or "",
                code=answer.status,
                err=b"".join(answer.pieces).decode(errors="replace").strip()[:_LONGEST],
            )

    def _unreadable(self, error: BaseException | None, message: str) -> web.StreamResponse:
        """Answer what is not HTTP/1.1; an exception of our own is a defect."""
        ours = isinstance(error, Exception) and not message
        status, text = (500, "internal error; see the log") if ours else (400, "not a request of HTTP/1.1")
        if not ours:
            self.metrics.extender_requested(_NO_VERB, str(status))
        if isinstance(error, ConnectionError):
            pass  # the client has gone
        elif ours and self._lines.take_now():
            log.error("Cannot answer a request to the extender", exc=error, traceback=True)
        elif self._lines.take_now():
            log.warning("Cannot serve a request to the extender", code=status, err=f"{text}: {message}"[:_LONGEST])
        return web.Response(status=status, text=f"{text}\n", headers=_SERVER)

    def _refused(self, reason: str, peer: str) -> None:
        self.metrics.connection_dropped("refused")
        if self._lines.take_now():
            log.warning("Refused a connection to the extender", client=peer, err=reason[:_LONGEST])


def _misdirected(request: web.BaseRequest, verb: str) -> Answer | None:
    """Return the answer to a request that is for no verb, or not as the verb needs it."""
    if verb == _NO_VERB:
        return sentence(404, f"no such path; there are {', '.join(f'/{verb}' for verb in VERBS)}, {', '.join(HEALTH)}")
    if request.method != "POST":
        return sentence(405, f"/{verb} takes POST only", {"Allow": "POST"})
    return None


def _too_large() -> Answer:
    return sentence(
        413, f"the body is larger than {MOST_BODY >> 20} MiB; set nodeCacheCapable: true, so that only names are sent"
    )


async def _invite(request: web.BaseRequest) -> None:
    """Ask for the body if the client waits for that, as curl does."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _chunks(pieces: Iterable[bytes]) -> Iterable[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        yield from (view[start : start + _CHUNK] for start in range(0, len(view), _CHUNK))
