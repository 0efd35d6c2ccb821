"""
The port of a scheduler with the real page and the real listener, and answers that a test makes up.

The answers are values of `explain/answers` in their real JSON form, with an ETag. Names are in them only for a request
with `TOKEN`, as in `questions`.
"""

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AsyncExitStack

import attrs
import msgspec
from aiohttp import web

from neuron_scheduler.explain.answers import Explanation, Fleet, PodSummary, RecentDecisions, Waiting, to_json
from neuron_scheduler.serving.pages import WebPage, page_files, text
from neuron_scheduler.serving.server import Endpoints, serve_endpoints
from neuron_scheduler.telemetry.metrics import Metrics

TOKEN = "the-right-token"
NO_NAMES = "Names are left out."


@attrs.define(eq=False)
class FakeScheduler:
    """
    A port and its answers, which a test may change at any time.

    Attributes:
        explanations: by `namespace/name`.
        asked: paths with their queries, in order, and the status that each got.
        broken: status and body of all answers instead.
        held: the path whose answers wait until `answering` is set.
    """

    port: int
    fleet: Fleet = attrs.field(factory=lambda: Fleet((), ()))
    waiting: Waiting = attrs.field(factory=lambda: Waiting(()))
    decisions: RecentDecisions = attrs.field(factory=lambda: RecentDecisions(()))
    explanations: dict[str, Explanation] = attrs.field(factory=dict)
    asked: list[tuple[str, int]] = attrs.field(factory=list)
    broken: tuple[int, bytes] | None = None
    held: str = ""
    answering: asyncio.Event = attrs.field(factory=asyncio.Event)
    _open: AsyncExitStack = attrs.field(factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/page"

    async def start(self) -> None:
        """Listen until `stop`."""
        served = {
            "/v1/fleet": self._page(lambda named: _fleet(self.fleet, named=named)),
            "/v1/waiting": self._page(lambda named: _waiting(self.waiting, named=named)),
            "/v1/decisions": self._page(lambda named: _decisions(self.decisions, named=named)),
            "/v1/why": WebPage(self._why),
        }
        endpoints = Endpoints(address="127.0.0.1", port=self.port)
        port = serve_endpoints(endpoints, live={}, ready={}, metrics=Metrics(), pages=page_files() | served)
        await self._open.enter_async_context(port)

    async def stop(self) -> None:
        """Close the port; a further `start` opens it again."""
        await self._open.aclose()

    def _page(self, answer: Callable[[bool], attrs.AttrsInstance]) -> WebPage:
        async def shown(request: web.BaseRequest) -> web.Response:
            if request.path == self.held:
                await self.answering.wait()
            if self.broken is not None:
                status, body = self.broken
                return self._noted(request, web.Response(status=status, body=body))
            authorization = request.headers.get("Authorization")
            if authorization not in {None, f"Bearer {TOKEN}"}:
                return self._noted(request, text(401, "Unauthorized"))
            return self._noted(request, _json(request, answer(authorization is not None)))

        return WebPage(shown)

    async def _why(self, request: web.BaseRequest) -> web.Response:
        found = self.explanations.get("{namespace}/{pod}".format_map(request.query))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._noted(request, text(401, "Unauthorized"))
        return self._noted(request, text(404, "no such pod") if found is None else _json(request, found))

    def _noted(self, request: web.BaseRequest, reply: web.Response) -> web.Response:
        self.asked.append((f"{request.path}?{request.query_string}".rstrip("?"), reply.status))
        return reply


def _json(request: web.BaseRequest, answer: attrs.AttrsInstance) -> web.Response:
    body = msgspec.json.encode(to_json(answer))
    fields = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "Cache-Control": "no-store"}
    if request.headers.get("If-None-Match") == fields["ETag"]:
        return web.Response(status=304, headers=fields)
    return web.Response(body=body, headers={**fields, "Content-Type": "application/json"})


def _fleet(fleet: Fleet, *, named: bool) -> Fleet:
    if named:
        return fleet
    machines = (
        attrs.evolve(machine, holders=tuple(attrs.evolve(holder, namespace="", name="") for holder in machine.holders))
        for machine in fleet.machines
    )
    return attrs.evolve(fleet, machines=tuple(machines), notes=(NO_NAMES,))


def _waiting(waiting: Waiting, *, named: bool) -> Waiting:
    if named:
        return waiting
    pods = tuple(attrs.evolve(item, pod=_nameless(item.pod), message="") for item in waiting.pods)
    return attrs.evolve(waiting, pods=pods, notes=(NO_NAMES,))


def _decisions(decisions: RecentDecisions, *, named: bool) -> RecentDecisions:
    if named:
        return decisions
    items = tuple(attrs.evolve(item, pod=_nameless(item.pod), message="") for item in decisions.decisions)
    return attrs.evolve(decisions, decisions=items, notes=(NO_NAMES,))


def _nameless(pod: PodSummary) -> PodSummary:
    return attrs.evolve(pod, namespace="", name="", group="", owner="")
