"""
Report to the owners of pods what happened, through `events.k8s.io/v1`.

Upstream: `client-go/tools/events`. Events are best effort, so recording never waits and never fails: an event that
cannot be queued or written is dropped and counted. Equal events within six minutes become a series of one object. An
event that cannot be written now is tried again later, and occupies no writer meanwhile. What an Event says is
decided by `controllers.pod_reporter`.
"""

import math
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import MERGE_PATCH, Client
from neuron_scheduler.kube.writes.work_queue import DelayingQueue, WorkQueue
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

NOTE_BYTES: Final = 1024


def reference(pod: Pod) -> dict[str, str]:
    """Return an ObjectReference to a pod."""
    named = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name}
    exact = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    return {**named, **{field: value for field, value in exact.items() if value}}


def cut(note: str) -> str:
    """Return the note in at most 1024 bytes, with ` ...` at its end if it was cut."""
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    suffix = " ..."
    return encoded[: NOTE_BYTES - len(suffix)].decode(errors="ignore") + suffix


def micro_time(nanoseconds: int) -> str:
    """Return Unix nanoseconds as a MicroTime: RFC 3339 in UTC, always with six digits of fraction."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


CAPACITY: Final = 50_000
WRITERS: Final = 4
SERIES_SECONDS: Final = 360.0
MOST_SERIES: Final = 20_000
TRIES: Final = 12
PAUSE: Final = 10.0
TIMEOUT: Final = 10.0
SHARE: Final = 2  # of the workers for retries, for the events of one namespace

log = logs.logger(__name__)

Key = tuple[str, ...]


@attrs.define(eq=False)
class _Series:
    """One Event object as it is written: how often it happened, and how many of these are written."""

    event: dict[str, Any]
    count: int = 1
    seen: float = 0.0
    queued: bool = False
    written: int = 0
    tries: int = 0


@attrs.define(eq=False, kw_only=True)
class EventRecorder:
    """
    Records events; `run` writes them.

    Attributes:
        controllers: the scheduler names that are served; an Event's `reportingController` is the pod's own, or the
            first if the pod has another scheduler.
        wall_clock: Unix time in nanoseconds.
        clock: seconds that never jump.
        on_dropped: called for every event that is lost.
        on_retry: called with `event` for every write that is sent again.
        errors: reports unexpected exceptions.
    """

    client: Client
    on_dropped: Callable[[], None]
    on_retry: Callable[[str], None]
    controllers: Sequence[str] = ("my-scheduler",)
    hostname: str = attrs.field(factory=socket.gethostname)
    wall_clock: Callable[[], int] = time.time_ns
    clock: Callable[[], float] = time.monotonic
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    capacity: int = CAPACITY
    writers: int = WRITERS
    pause: float = PAUSE
    _work_queue: WorkQueue[_Series] = attrs.field(init=False)
    _retries: DelayingQueue[_Series] = attrs.field(init=False)
    _instances: dict[str, str] = attrs.field(init=False)
    _series: OrderedDict[Key, _Series] = attrs.field(factory=OrderedDict, init=False)
    _last_name: int = attrs.field(default=0, init=False)
    _scope: anyio.CancelScope | None = attrs.field(default=None, init=False)
    _ended: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._work_queue = WorkQueue(self.capacity)
        self._retries = DelayingQueue(clock=self.clock, share=SHARE)
        self._instances = {name: f"{name}-{self.hostname}"[:128] for name in self.controllers}

    def __len__(self) -> int:
        """Events that wait to be written."""
        return len(self._work_queue) + len(self._retries)

    def record(
        self,
        pod: Pod,
        *,
        type: str,  # noqa: A002 - the field's name in the API
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
    ) -> None:
        """Queue an event about a pod, or count it in its series; never waits."""
        now = self.wall_clock()
        key = (pod.uid, pod.resource_version, related.uid if related else "", reason, action, type)
        series = self._series.pop(key, None)
        if series is not None and now / 1e9 - series.seen < SERIES_SECONDS:
            series.count += 1
        else:
            event = self._event(pod, related, now, type=type, reason=reason, action=action, note=cut(note))
            series = _Series(event)
        series.seen = now / 1e9
        self._series[key] = series
        self._forget_old(now / 1e9)
        if not series.queued:
            series.queued = self._work_queue.put(series)
            if not series.queued:
                self.on_dropped()

    async def run(self) -> None:
        """Write until drained or cancelled."""
        try:
            with anyio.CancelScope() as self._scope:
                async with anyio.create_task_group() as retries:
                    for _ in range(self.writers):
                        retries.start_soon(self._retries.serve, self._write)
                    async with anyio.create_task_group() as writers:
                        for _ in range(self.writers):
                            writers.start_soon(self._write_all)
                    self._retries.close()
        finally:
            self._ended.set()

    async def drain(self, seconds: float) -> None:
        """Accept no more events, wait so many seconds until the queued ones are written, then end `run`."""
        self._work_queue.close()
        with anyio.move_on_after(seconds):
            await self._ended.wait()
        if self._scope is not None:
            self._scope.cancel()

    def _event(self, pod: Pod, related: Pod | None, now: int, **fields: str) -> dict[str, Any]:
        self._last_name = max(now, self._last_name + 1)
        controller = pod.scheduler_name if pod.scheduler_name in self._instances else self.controllers[0]
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": pod.namespace, "name": f"{pod.name}.{self._last_name:x}"},
            "eventTime": micro_time(now),
            "reportingController": controller,
            "reportingInstance": self._instances[controller],
            "regarding": reference(pod),
            **fields,
        }
        if related is not None:
            event["related"] = reference(related)
        return event

    def _forget_old(self, now: float) -> None:
        while self._series:
            oldest = next(iter(self._series.values()))
            if now - oldest.seen < SERIES_SECONDS and len(self._series) <= MOST_SERIES:
                return
            self._series.popitem(last=False)

    async def _write_all(self) -> None:
        while (series := await self._work_queue.next()) is not None:
            await self._write(series)

    async def _write(self, series: _Series) -> None:
        """Write what is new in a series; after a failure it is queued again, and dropped after some tries."""
        while series.written < series.count:  # more may be counted during a request
            pause = await self._try(series)
            if pause is None:
                series.tries = 0
                continue
            series.tries += 1
            if pause < math.inf and series.tries < TRIES and len(self._retries) < self.capacity:
                self.on_retry("event")
                self._retries.add(series, series.event["metadata"]["namespace"], self.clock() + pause)
                return
            series.tries = 0
            self.on_dropped()
            break
        series.queued = False

    async def _try(self, series: _Series) -> float | None:
        """Write once; return None if it is written, else the seconds to wait, infinity if it was refused."""
        try:
            await self._send(series)
        except ApiError as error:
            if error.refused and error.status != 401:
                log.v(2).info("Event was refused", event=series.event["metadata"]["name"], err=str(error))
                return math.inf
            return max(self.pause, error.retry_after or 0.0)
        except UnreachableError:
            return self.pause
        except Exception as error:  # noqa: BLE001 - it is one event's error
            regarding = series.event["regarding"]
            self.errors.report(error, task="event", pod=f"{regarding['namespace']}/{regarding['name']}")
            return self.pause
        return None

    async def _send(self, series: _Series) -> None:
        event, count, name = series.event, series.count, series.event["metadata"]["name"]
        path = f"/apis/events.k8s.io/v1/namespaces/{event['metadata']['namespace']}/events"
        repeated = {}
        if count > 1:
            repeated = {"series": {"count": count, "lastObservedTime": micro_time(int(series.seen * 1e9))}}
        if series.written:
            body = msgspec.json.encode(repeated)
            try:
                await self.client.request(
                    "PATCH", f"{path}/{name}", body=body, content_type=MERGE_PATCH, timeout=TIMEOUT
                )
            except ApiError as error:
                if not error.gone("events", name):
                    raise
                series.written = 0  # the Event has expired: write it again
        if not series.written:
            try:
                await self.client.request(
                    "POST", path, body=msgspec.json.encode({**event, **repeated}), timeout=TIMEOUT
                )
            except ApiError as error:
                if not (error.refused and error.reason == "AlreadyExists"):
                    raise
                count = 1  # an earlier try succeeded without an answer; what was counted since is not written yet
        series.written = count
