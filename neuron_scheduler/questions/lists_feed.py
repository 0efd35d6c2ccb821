"""
`/v1/waiting` and `/v1/decisions`: a line for each pod that waits, and for each of the last decisions.

A pod that a reader may not see has no name and no message, because a message can name what belongs to the pod. What it
asks for, how long it waits and why stays.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs

from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.explain.answers.lists import RecentDecision, RecentDecisions, Waiting, WaitingPod
from neuron_scheduler.explain.summary import summary_of
from neuron_scheduler.questions.decision_ring import DecisionRing
from neuron_scheduler.questions.encoding import replied
from neuron_scheduler.questions.fleet_feed import name_notes
from neuron_scheduler.questions.lane import Turn
from neuron_scheduler.questions.parameters import parameters
from neuron_scheduler.questions.readers import Names, Reader
from neuron_scheduler.questions.redaction import namespaces_in, redacted
from neuron_scheduler.questions.refusals import bad
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue

MOST_WAITING: Final = 1000
"""Pods that one answer lists: those that wait longest."""
_PODS_A_STEP: Final = 500
_LINES_A_STEP: Final = 64
_NOT_LISTED: Final = f"Only the {MOST_WAITING} pods that were created first are listed."

T = TypeVar("T", WaitingPod, RecentDecision)


@attrs.define(eq=False, kw_only=True)
class ListsFeed:
    """
    Answers `/v1/waiting` and `/v1/decisions`.

    Attributes:
        notes: what a reader has to know of this process: one sentence each.
    """

    queue: SchedulingQueue
    decisions: DecisionRing
    notes: Callable[[], tuple[str, ...]]

    async def waiting(self, request: Request, reader: Reader, turn: Turn) -> Reply:
        """Return the pods that wait; `namespace` is for those of one namespace, which the reader must see."""
        namespace = parameters(request.query, ("namespace",)).get("namespace", "")
        if namespace and not await reader.may_get_pod(namespace, ""):
            return bad(f"you may not get the pods of namespace {namespace}", 403)
        total, pods = await turn.last(_oldest(self.queue, namespace))
        answer = Waiting(await turn.last(_lines(pods, self.queue)), total)
        names = await reader.names(await turn.last(namespaces_in(answer)))
        more = (_NOT_LISTED,) if total > len(pods) else ()
        notes = (*self.notes(), *more, *name_notes(reader, names))
        return await replied(request, Waiting(_seen(answer.pods, names), total, notes), turn)

    async def decided(self, request: Request, reader: Reader, turn: Turn) -> Reply:
        """Return the last decisions."""
        parameters(request.query, ())
        answer = RecentDecisions(tuple(self.decisions.latest()))
        names = await reader.names(await turn.last(namespaces_in(answer)))
        notes = (*self.notes(), *name_notes(reader, names))
        return await replied(request, RecentDecisions(_seen(answer.decisions, names), notes), turn)


def _oldest(queue: SchedulingQueue, namespace: str) -> Iterator[tuple[int, list[QueuedPod]] | None]:
    """Yield None whenever other tasks may run, and at the end how many pods wait, and the oldest of them."""
    heap: list[tuple[float, int, QueuedPod]] = []
    total = 0
    for place, queued in enumerate(queue.pods()):
        if place % _PODS_A_STEP == 0:
            yield None
        if namespace not in ("", queued.pod.namespace):
            continue
        total += 1
        item = (-queued.pod.created, -place, queued)
        if len(heap) < MOST_WAITING:
            heapq.heappush(heap, item)
        elif item > heap[0]:
            heapq.heapreplace(heap, item)
    yield total, [queued for *_, queued in sorted(heap, key=lambda item: item[:2], reverse=True)]


def _lines(pods: Sequence[QueuedPod], queue: SchedulingQueue) -> Iterator[tuple[WaitingPod, ...] | None]:
    lines: list[WaitingPod] = []
    for queued in pods:
        condition = queued.pod.scheduled
        message = condition.message if condition is not None and condition.status == "False" else ""
        lines.append(WaitingPod(summary_of(queued.pod), queue.cause_of(queued).value, message))
        if len(lines) % _LINES_A_STEP == 0:
            yield None
    yield tuple(lines)


def _seen(lines: Sequence[T], names: Names) -> tuple[T, ...]:
    """Return the lines as a reader may see them, each of them when it is needed."""
    return map(partial(_redacted, names=names), lines)  # type: ignore[return-value]  # made piece by piece


def _redacted(line: T, names: Names) -> T:
    if line.pod.namespace not in names:
        line = attrs.evolve(line, message="")
    return redacted(line, names)
