"""
Keep the PodScheduled condition of waiting pods true, with as few writes as possible.

Karpenter and Cluster Autoscaler read it; a thousand pending pods that write it at every attempt would drown etcd. So
nothing is written when nothing changed, a message that differs only in numbers at most every 30 s, and of several
messages for one pod only the newest. Refuses to write about a pod that is on its way to a node (`withdraw`).
"""

import heapq
import random as randomness
import re
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import anyio
import attrs
import msgspec

from neuron_scheduler import logs
from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.backoff import Backoff
from neuron_scheduler.kube.client import LONGEST_PAUSE, STRATEGIC_MERGE_PATCH, Response
from neuron_scheduler.model.pod import Pod

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
NUMBERS_PAUSE: Final = 30.0  # seconds between messages that differ in numbers only
WRITERS: Final = 4

_COUNTS: Final = re.compile(r"\d+|(?<=[a-z])s\b")
_NAMES: Final = " Unknown ids: "  # the pods named behind it come and go (`scheduling.shortage`)
_ENDS: Final = re.compile(r"[,.:;]\s*")

log = logs.logger(__name__)


class Api(Protocol):
    """What the writer asks of the client."""

    async def request(self, method: str, path: str, *, body: bytes | None = ..., content_type: str = ...) -> Response:
        """Send one request."""


def shape(message: str) -> tuple[str, ...]:
    """
    Return what messages have in common that differ in their numbers, or in the pods that they name, only.

    A number takes the plural with it ("1 node", "2 nodes"), and reasons are sorted as strings, count first, so that
    another count may put them in another order.
    """
    return tuple(sorted(_ENDS.split(_COUNTS.sub("", message.partition(_NAMES)[0]))))


@attrs.frozen
class Wanted:
    """
    What a pod's status is to say.

    Attributes:
        nominated: `status.nominatedNodeName`; None leaves it alone.
    """

    reason: str
    message: str
    nominated: str | None = None

    @property
    def shape(self) -> tuple[str, tuple[str, ...], str | None]:
        """What two of these have in common that differ only in numbers."""
        return self.reason, shape(self.message), self.nominated


@attrs.define(eq=False)
class _Entry:
    """One pod: what is to be said, and what was said last and when."""

    pod: Pod
    wanted: Wanted | None = None
    said: Wanted | None = None
    said_at: float = 0.0
    due: float | None = None
    idle: anyio.Event | None = None


@attrs.define(eq=False, kw_only=True)
class ConditionWriter:
    """
    Writes conditions; `run` does the writing.

    Attributes:
        wall_clock: Unix time in seconds, for lastTransitionTime.
        written: counter of patches that succeeded.
    """

    client: Api
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = randomness.random
    writers: int = WRITERS
    written: int = attrs.field(default=0, init=False)
    _entries: dict[str, _Entry] = attrs.field(factory=dict, init=False)
    _due: list[tuple[float, int, str]] = attrs.field(factory=list, init=False)
    _sequence: int = attrs.field(default=0, init=False)
    _wake: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __len__(self) -> int:
        """Pods about which something waits to be written."""
        return sum(entry.wanted is not None for entry in self._entries.values())

    def set(self, pod: Pod, *, reason: str, message: str, nominated: str | None = None) -> None:
        """
        Let the pod's condition say so, now or when it is due; never waits.

        `nominated` None leaves `status.nominatedNodeName` as it is, or as it was last wanted.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = _Entry(pod, said=_told(pod, nominated))
        last = entry.wanted or entry.said
        wanted = Wanted(reason, message, last.nominated if nominated is None and last is not None else nominated)
        entry.pod = pod
        if wanted == entry.said:
            entry.wanted = None
            return
        entry.wanted = wanted
        only_numbers = entry.said is not None and entry.said.shape == wanted.shape
        self._schedule(entry, entry.said_at + NUMBERS_PAUSE if only_numbers and entry.said_at else 0.0)

    def denominate(self, pod: Pod) -> None:
        """Let the pod's status name no node, and leave its condition as it is, or as it was last wanted."""
        entry = self._entries.get(pod.uid)
        last = (entry.wanted or entry.said) if entry is not None else _told(pod, None)
        if last is not None:
            self.set(pod, reason=last.reason, message=last.message, nominated="")

    def forget(self, uid: str) -> None:
        """Write nothing more about a pod that is gone."""
        self._entries.pop(uid, None)

    async def withdraw(self, uid: str) -> None:
        """Write nothing more about a pod, and return when nothing is on its way: it is about to be bound."""
        entry = self._entries.pop(uid, None)
        if entry is not None and entry.idle is not None:
            await entry.idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        async with anyio.create_task_group() as writers:
            for _ in range(self.writers):
                writers.start_soon(self._write_all)

    def _schedule(self, entry: _Entry, due: float) -> None:
        if entry.idle is not None or (entry.due is not None and entry.due <= due):
            return  # the one that writes looks again when it is done, or an earlier turn is queued
        entry.due = due
        self._sequence += 1
        heapq.heappush(self._due, (due, self._sequence, entry.pod.uid))
        self._wake.set()

    async def _write_all(self) -> None:
        while True:
            entry = await self._next()
            wanted, pod = entry.wanted, entry.pod
            if wanted is None:
                continue
            entry.idle = anyio.Event()
            try:
                if await self._write(entry, wanted):
                    entry.said, entry.said_at = wanted, self.clock()
                    self.written += 1
            finally:
                entry.idle.set()
                entry.idle = None
            if entry.wanted is wanted:
                entry.wanted = None
            elif entry.wanted is not None and self._entries.get(pod.uid) is entry:
                self.set(entry.pod, reason=entry.wanted.reason, message=entry.wanted.message,
                         nominated=entry.wanted.nominated)  # fmt: skip

    async def _next(self) -> _Entry:
        while True:
            while self._due and self._due[0][0] <= self.clock():
                due, _, uid = heapq.heappop(self._due)
                entry = self._entries.get(uid)
                if entry is not None and entry.due == due:
                    entry.due = None
                    return entry
            if self._wake.is_set():
                self._wake = anyio.Event()
            wait = self._due[0][0] - self.clock() if self._due else NUMBERS_PAUSE
            with anyio.move_on_after(max(wait, 0.0)):
                await self._wake.wait()

    async def _write(self, entry: _Entry, wanted: Wanted) -> bool:
        """Patch the status, again while the server is out of reach and nothing newer is wanted."""
        pod = entry.pod
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        body = encode_patch(pod, wanted, now=self.wall_clock(), first=entry.said is None)
        backoff = Backoff(self.random)
        while entry.wanted is wanted and self._entries.get(pod.uid) is entry:
            try:
                await self.client.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH)
            except ApiError as error:
                if error.status not in (401, 429) and error.status < 500:
                    if error.status not in (404, 409):  # gone, or recreated under the same name
                        log.warning("PodScheduled condition was refused", pod=pod.key, exc=error)
                    return False
                await anyio.sleep(backoff.next(at_least=min(error.retry_after or 0.0, LONGEST_PAUSE)))
            except UnreachableError:
                await anyio.sleep(backoff.next())
            else:
                return True
        return False


def _told(pod: Pod, nominated: str | None) -> Wanted | None:
    """Return what the pod's status says already, None if its condition is absent or not False."""
    if pod.scheduled is None or pod.scheduled.status != "False":
        return None
    known = None if nominated is None else pod.nominated_node_name
    return Wanted(pod.scheduled.reason, pod.scheduled.message, known)


def encode_patch(pod: Pod, wanted: Wanted, *, now: float, first: bool) -> bytes:
    """
    Return the strategic merge patch of `pods/status`; the uid in it is a precondition.

    `lastTransitionTime` changes only with the status, so it is left out when the condition was False before (`first` is
    False): the merge then keeps the old one.
    """
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if pod.observed_generation:
        condition["observedGeneration"] = pod.observed_generation
    if first:
        condition["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    status: dict[str, Any] = {"conditions": [condition]}
    if wanted.nominated is not None:
        status["nominatedNodeName"] = wanted.nominated or None
    return msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": status})
