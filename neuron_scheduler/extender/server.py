"""
The extender's requests over HTTP/1.1: which verb each is for, limits on bodies and time, and what is counted.

The health endpoints answer here too, for probes of the Service's port.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

import attrs
from aiohttp import web

from neuron_scheduler.extender.protocol import FORWARDED, NAMES_ONLY, VerbAnswer, sentence
from neuron_scheduler.extender.verbs import VERBS, Verbs
from neuron_scheduler.kube.http.client import JSON
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.serving.certificate import Certificate
from neuron_scheduler.serving.connections import SERVER, Connections, Limits, Reactions
from neuron_scheduler.serving.pages import PLAIN_TEXT, WebPage
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

MOST_BODY: Final = 16 << 20
"""Bytes of a request: the victims that kube-scheduler proposes on 1,500 nodes with 200 pods each, by their uids."""
LIMITS: Final = Limits(at_once=2048, of_a_peer=1024, body=MOST_BODY)
"""kube-scheduler is one peer, and opens a connection for each pod whose Binding waits (`allocate_fence`)."""
BODY_SECONDS: Final = 20.0
ANSWER_SECONDS: Final = 20.0
CLIENT_GONE: Final = 499
"""The code in the metric for a client that has hung up, such as kube-scheduler after its `httpTimeout`."""
LINES_AT_ONCE: Final = 10
LINES_PER_SECOND: Final = 0.1

_NO_VERB: Final = "none"
_LONGEST: Final = 300  # characters of a sentence in the log

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class ExtenderServer:
    """
    Answers the requests to one port.

    Attributes:
        health: the health endpoints, by path.
        is_stopping: whether clients should look for another replica.
    """

    verbs: Verbs
    health: Mapping[str, WebPage]
    metrics: Metrics
    is_stopping: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    _lines: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = TokenBucket(self.clock, LINES_PER_SECOND, LINES_AT_ONCE)

    def listen(self, listening: socket.socket, certificate: Certificate | None = None) -> Connections:
        """Answer on a socket until the connections are closed; without a certificate there is no TLS."""
        reactions = Reactions(answer=self._answer, unreadable=self._on_unreadable, on_drop=self._on_drop)
        return Connections(listening=listening, reactions=reactions, limits=LIMITS, certificate=certificate)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path in self.health:
            response = await self.health[request.path].answer_to(request)
            response.headers.update(SERVER)
            return response
        started, path = self.clock(), request.path.removeprefix("/")
        verb = path if path in VERBS else _NO_VERB
        code = CLIENT_GONE
        try:
            answer = self._refuse_misdirected(request, verb) or await self._read_and_answer(request, verb)
            response = await self._send(request, verb, answer)
            code = response.status
        except ConnectionError:  # the client has gone while the answer was written
            raise
        except Exception:
            code = 500
            raise
        else:
            return response
        finally:
            self.metrics.count_extender_request(verb, str(code))
            self.metrics.extender_seconds(verb).observe(self.clock() - started)

    async def _read_and_answer(self, request: web.BaseRequest, verb: str) -> VerbAnswer:
        """Read the body, and return the answer: a refusal if it is too large or does not arrive."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await request.read()
        except TimeoutError:
            return sentence(408, f"the body did not arrive within {BODY_SECONDS:g} s")
        except web.HTTPRequestEntityTooLarge:
            return sentence(413, f"the body is larger than {MOST_BODY >> 20} MiB; {NAMES_ONLY}")
        except web.RequestPayloadError as error:
            return sentence(400, f"the body cannot be read: {error}")
        return await self.verbs.answer(verb, body, forwarded=FORWARDED in request.headers)

    async def _send(self, request: web.BaseRequest, verb: str, answer: VerbAnswer) -> web.StreamResponse:
        if answer.status != 200:
            self._log(verb, answer, request)
        content_type = JSON if answer.status == 200 else PLAIN_TEXT
        headers = {"Content-Type": content_type, **SERVER}
        response = web.Response(status=answer.status, body=answer.body, headers=headers)
        if self.is_stopping():
            response.force_close()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            self.metrics.count_dropped_connection("slow")
            request.protocol.force_close()
        return response

    def _refuse_misdirected(self, request: web.BaseRequest, verb: str) -> VerbAnswer | None:
        if verb == _NO_VERB:
            paths = ", ".join([*(f"/{verb}" for verb in VERBS), *self.health])
            return sentence(404, f"no such path; there are {paths}")
        if request.method != "POST":
            return sentence(405, f"/{verb} takes POST only")
        return None

    def _log(self, verb: str, answer: VerbAnswer, request: web.BaseRequest) -> None:
        if self._lines.take_now():
            log.warning(
                "Cannot serve a request to the extender",
                verb=verb,
                client=request.remote or "",
                code=answer.status,
                err=answer.body.decode(errors="replace").strip()[:_LONGEST],
            )

    def _on_unreadable(self, error: BaseException | None, message: str) -> web.StreamResponse:
        """Answer what is not HTTP/1.1; an exception of our own is a defect."""
        ours = isinstance(error, Exception) and not message
        status, text = (500, "internal error; see the log") if ours else (400, "not a request of HTTP/1.1")
        if not ours:
            self.metrics.count_extender_request(_NO_VERB, str(status))
        if isinstance(error, ConnectionError):
            pass  # the client has gone
        elif ours and self._lines.take_now():
            log.error("Cannot answer a request to the extender", exc=error, traceback=True)
        elif self._lines.take_now():
            log.warning("Cannot serve a request to the extender", code=status, err=f"{text}: {message}"[:_LONGEST])
        return web.Response(status=status, text=f"{text}\n")

    def _on_drop(self, how: str, why: str, peer: str) -> None:
        self.metrics.count_dropped_connection(how)
        if self._lines.take_now():
            log.warning("Refused a connection to the extender", client=peer, err=why[:_LONGEST])
