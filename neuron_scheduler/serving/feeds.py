"""
What the page shows: all machines, the pods that wait, and the last decisions, for readers that ask again and again.

The picture of the machines is made at most once a second for all readers together, and only if something has changed;
its JSON is kept for the readers that see the same names. A reader that has it already gets 304.

A pod that a reader may not get has no name and no message, because a message can name what belongs to the pod. What it
asks for, how long it waits and why stays.
"""

import heapq
import secrets
from collections.abc import Generator, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, TypeVar

import anyio
import attrs
import msgspec
from aiohttp import web

from neuron_scheduler.explain.answers import (
    Fleet,
    RecentDecision,
    RecentDecisions,
    TypeSummary,
    Waiting,
    WaitingPod,
    to_json,
)
from neuron_scheduler.explain.fleet import Sums, ranked_machines
from neuron_scheduler.explain.why import summary_of
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.serving.access import Names, Reader
from neuron_scheduler.serving.asked import Asked
from neuron_scheduler.serving.encoding import accepts_gzip, answered, has_it, packed, pieces_of, replied, tag, unchanged
from neuron_scheduler.serving.lane import Turn
from neuron_scheduler.serving.names import name_notes
from neuron_scheduler.serving.pages import RefusedError, parameters

AGE: Final = 1.0
"""Seconds for which a picture is shown although something has changed."""
MOST_KEPT: Final = 4
"""Answers that are kept: megabytes each in a large fleet, a tenth of that compressed."""
MOST_WAITING: Final = 1000
"""Pods that one answer lists: those that wait longest."""
_PODS_A_STEP: Final = 500
_LINES_A_STEP: Final = 64
_NOT_LISTED: Final = f"Only the {MOST_WAITING} pods that were created first are listed."

T = TypeVar("T", WaitingPod, RecentDecision)


@attrs.define(eq=False)
class ListsFeed:
    """Answers `/v1/waiting` and `/v1/decisions`."""

    asked: Asked

    async def waiting(self, request: web.BaseRequest, reader: Reader, turn: Turn) -> web.Response:
        """Return the pods that wait; `namespace` is for those of one namespace, which the reader must see."""
        namespace = parameters(request.query_string, ("namespace",)).get("namespace", "")
        if namespace and not await reader.may_get_pod(namespace, ""):
            raise RefusedError(403, f"you may not get the pods of namespace {namespace}")
        total, pods = await turn.run(_oldest(self.asked.queue, namespace))
        answer = Waiting(await turn.run(_lines(pods, self.asked.queue)), total)
        names = await reader.names({line.pod.namespace for line in answer.pods})
        more = (_NOT_LISTED,) if total > len(pods) else ()
        notes = (*self.asked.notes(), *more, *name_notes(reader, names))
        return await replied(request, Waiting(_lines_as_seen(answer.pods, names), total, notes), turn)

    async def decided(self, request: web.BaseRequest, reader: Reader, turn: Turn) -> web.Response:
        """Return the last decisions."""
        parameters(request.query_string, ())
        answer = RecentDecisions(tuple(self.asked.decisions.latest()))
        names = await reader.names({line.pod.namespace for line in answer.decisions})
        notes = (*self.asked.notes(), *name_notes(reader, names))
        return await replied(request, RecentDecisions(_lines_as_seen(answer.decisions, names), notes), turn)


def _oldest(queue: SchedulingQueue, namespace: str) -> Generator[None, None, tuple[int, list[QueuedPod]]]:
    """Return how many pods wait, and the oldest of them; yields whenever other tasks may run."""
    heap: list[tuple[float, int, QueuedPod]] = []
    total = 0
    for place, queued in enumerate(queue.pods()):
        if place % _PODS_A_STEP == 0:
            yield
        if namespace not in ("", queued.pod.namespace):
            continue
        total += 1
        item = (-queued.pod.created, -place, queued)
        if len(heap) < MOST_WAITING:
            heapq.heappush(heap, item)
        elif item > heap[0]:
            heapq.heapreplace(heap, item)
    return total, [queued for *_, queued in sorted(heap, key=lambda item: item[:2], reverse=True)]


def _lines(pods: Sequence[QueuedPod], queue: SchedulingQueue) -> Generator[None, None, tuple[WaitingPod, ...]]:
    lines: list[WaitingPod] = []
    for queued in pods:
        condition = queued.pod.scheduled
        message = condition.message if condition is not None and condition.status == "False" else ""
        lines.append(WaitingPod(summary_of(queued.pod), queue.cause_of(queued).value, message))
        if len(lines) % _LINES_A_STEP == 0:
            yield
    return tuple(lines)


def _lines_as_seen(lines: Sequence[T], names: Names) -> tuple[T, ...]:
    """Return the lines as a reader may see them, each of them when it is needed."""
    return map(partial(_line_as_seen, names=names), lines)  # type: ignore[return-value]  # made piece by piece


def _line_as_seen(line: T, names: Names) -> T:
    if line.pod.namespace in names:
        return line
    return attrs.evolve(line, pod=attrs.evolve(line.pod, namespace="", name=""), message="")


@attrs.frozen(eq=False)
class _Picture:
    """
    The fleet as it was.

    Machines are kept as JSON: thousands of values would take several milliseconds to be freed, in one step.

    Attributes:
        version: of the cluster.
        made: on the monotonic clock.
        machines: the worst first, with all names.
        namespaces: of all pods in them.
    """

    version: int
    made: float
    machines: tuple[bytes, ...]
    types: tuple[TypeSummary, ...]
    namespaces: frozenset[str]


@attrs.define(eq=False)
class FleetFeed:
    """Answers `/v1/fleet`."""

    asked: Asked
    _instance: str = attrs.field(factory=lambda: secrets.token_hex(8), init=False)
    """An id of this process, so that another one's ETag is not ours."""
    _picture: _Picture | None = attrs.field(default=None, init=False)
    _kept: dict[tuple[str, bool], tuple[bytes, ...]] = attrs.field(factory=dict, init=False)
    _making: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def answer(self, request: web.BaseRequest, reader: Reader, turn: Turn) -> web.Response:
        """Return the fleet as a reader may see it."""
        parameters(request.query_string, ())
        picture = await self._current(turn)
        names = await reader.names(picture.namespaces)
        notes = (*self.asked.notes(), *name_notes(reader, names))
        etag = tag(self._instance, picture.version, picture.made, _shown(names), notes)
        if has_it(request, etag):
            return unchanged(etag)
        gzip = accepts_gzip(request)
        pieces = self._kept.pop((etag, gzip), None)
        if pieces is None:
            machines = (msgspec.Raw(_machine_as_seen(machine, names)) for machine in picture.machines)
            answer = Fleet(machines, picture.types, notes)  # type: ignore[arg-type]  # made piece by piece
            pieces = await turn.run(packed(pieces_of(answer), gzip=gzip))
        self._kept[etag, gzip] = pieces
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return answered(pieces, etag=etag, gzip=gzip)

    async def _current(self, turn: Turn) -> _Picture:
        """Return a picture that is new enough."""
        async with self._making:  # a second reader waits for the picture that the first one makes
            picture, version = self._picture, self.asked.cluster.view.changes
            if picture is not None and (picture.version == version or self.asked.clock() < picture.made + AGE):
                return picture
            self._picture = await turn.run(self._drawn(version))
            return self._picture

    def _drawn(self, version: int) -> Generator[None, None, _Picture]:
        ranked: list[tuple[int, bytes]] = []
        sums, namespaces = Sums(), set[str]()
        for item in ranked_machines(self.asked.cluster):
            if item is None:
                yield
                continue
            rank, machine = item
            sums.add(machine)
            namespaces.update(holder.namespace for holder in machine.holders)
            ranked.append((rank, msgspec.json.encode(to_json(machine))))
        yield
        ranked.sort(key=itemgetter(0))
        machines = tuple(text for _, text in ranked)
        yield
        return _Picture(version, self.asked.clock(), machines, sums.types(), frozenset(namespaces))


def _machine_as_seen(machine: bytes, names: Names) -> bytes:
    """Return a machine without the names that a reader may not see."""
    if names.shown is None:
        return machine
    fields = msgspec.json.decode(machine)
    for holder in fields["holders"]:
        if holder["namespace"] not in names:
            holder["namespace"] = holder["name"] = ""
    return msgspec.json.encode(fields)


def _shown(names: Names) -> object:
    """Return what tells apart which names are shown, for an ETag."""
    return None if names.shown is None else sorted(names.shown)
