"""
How a question is answered: who asks, the computing in steps, what the reader may see, and the JSON.

The event loop that answers also schedules, and every pod of the cluster can connect. So one question is computed at a
time, in short turns with rests between them. Its answer is kept for a second, for all who ask the same and see the
same. The ETag says which answer it is: a client that has it already, as the page mostly has, gets 304 without a body.
"""

import hashlib
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import anyio
import attrs
import msgspec
from aiohttp import web

from neuron_scheduler.explain.answers import to_json
from neuron_scheduler.model.wording import camel
from neuron_scheduler.serving.access import Access
from neuron_scheduler.serving.names import AnyAnswer, Names, answer_as_seen, as_seen
from neuron_scheduler.serving.pages import RefusedError, parameters
from neuron_scheduler.serving.sources import AnswerSources
from neuron_scheduler.serving.timed_cache import TimedCache
from neuron_scheduler.steps import LONGEST_TURN, run_in_turns

AGE: Final = 1.0
"""Seconds for which an answer is given although something has changed."""
MOST_KEPT: Final = 8
"""Answers that are kept: megabytes each in a large fleet."""
SECONDS: Final = 8.0
"""For one question, its wait for the others included; a connection ends after 10 s."""
REST: Final = 4 * LONGEST_TURN
"""Seconds after each turn, if other tasks work: questions get a fifth of a busy event loop."""
LOOK: Final = LONGEST_TURN / 2
"""Seconds in which the other tasks show whether they work; if not, questions go on."""


@attrs.frozen
class Question:
    """
    What is asked.

    Attributes:
        query: the parameters.
        names: whose pods' names the reader may see; with a `namespace` in the query, also those there.
        body: of a POST; None for a GET.
    """

    query: Mapping[str, str]
    names: Names
    body: bytes | None = None

    def require_known(self, *parameters: str) -> None:
        """Refuse a query with other parameters than these and `namespace`: what is misspelt is not ignored."""
        known = sorted({*parameters, "namespace"})
        for name in self.query:
            if name not in known:
                raise RefusedError(400, f"there is no parameter {name!r}; the parameters are: {', '.join(known)}")


Steps = Generator[None, None, AnyAnswer]
Compute = Callable[[AnswerSources, Question], Steps]
"""Computes an answer; yields whenever other tasks may run, and raises RefusedError if there is none."""


@attrs.define(eq=False)
class Answering:
    """Answers the questions of all paths."""

    sources: AnswerSources
    access: Access
    _kept: TimedCache[object, bytes] = attrs.field(init=False)
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._kept = TimedCache(clock=self.sources.clock, seconds=AGE, most=MOST_KEPT)

    async def answer(self, request: web.BaseRequest, compute: Compute) -> web.Response:
        reader = await self.access.reader(request)
        missing = self.sources.sync_problem()
        if missing is not None:
            raise RefusedError(503, f"this process has just started: {missing}")
        query = parameters(request.query_string)
        names = await self.access.names(reader, query.get("namespace", ""))
        body = await _body(request) if request.method == "POST" else None  # before the turn: a slow client keeps none
        steps = self._encode(compute, Question(query, names, body))
        text = await self._compute((request.path, *sorted(query.items()), names, body), steps)
        etag = f'W/"{hashlib.blake2b(text, digest_size=12).hexdigest()}"'
        fields = {"ETag": etag, "Cache-Control": "no-store"}
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=fields)
        return web.Response(body=text, headers={**fields, "Content-Type": "application/json"})

    async def _compute(self, key: object, steps: Generator[None, None, bytes]) -> bytes:
        try:
            with anyio.fail_after(SECONDS):
                async with self._turn:
                    kept = self._kept.get(key)
                    if kept is None:
                        kept = self._kept.put(key, await run_in_turns(steps, time.monotonic, _rest))
                        await _rest()
                    return kept
        except TimeoutError as error:
            sentence = f"the answer takes longer than {SECONDS:g} s; ask for less, or try again"
            raise RefusedError(503, sentence) from error

    def _encode(self, compute: Compute, question: Question) -> Generator[None, None, bytes]:
        """Return the JSON of an answer as its reader may see it; an item of a tuple is one step."""
        answer = answer_as_seen((yield from compute(self.sources, question)), question.names)
        answer = attrs.evolve(answer, notes=(*self.sources.notes(), *answer.notes))
        fields = []
        for name, value in attrs.asdict(answer, recurse=False).items():
            if isinstance(value, tuple):
                items = []
                for item in value:
                    items.append(_json(item, question.names))
                    yield
                text = b"[" + b",".join(items) + b"]"
            else:
                text = _json(value, question.names)
            fields.append(msgspec.json.encode(camel(name)) + b":" + text)
        return b"{" + b",".join(fields) + b"}"


async def _rest() -> None:
    """Leave the event loop to the other tasks until they have nothing to do, or for the whole rest."""
    ends = anyio.current_time() + REST
    while anyio.current_time() < ends:
        before = time.thread_time()
        await anyio.sleep(LOOK)
        if time.thread_time() - before < LOOK / 4:
            return


def _json(value: Any, names: Names) -> bytes:
    return msgspec.json.encode(to_json(as_seen(value, names)))


async def _body(request: web.BaseRequest) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise RefusedError(413, f"the body is larger than {request.client_max_size} bytes") from error
    except web.RequestPayloadError as error:
        raise RefusedError(400, f"the body cannot be read: {error}") from error
