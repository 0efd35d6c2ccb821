"""
Report to the owners of pods what happened, through `events.k8s.io/v1`.

Upstream: `client-go/tools/events`. Events are best effort: recording never waits and never fails, and a lost event is
counted. A failed write is tried again later and occupies no writer. There are no series: `controllers.pod_reporter`
decides how often an Event is repeated.
"""

import socket
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

NOTE_BYTES: Final = 1024
_LONGEST_NAME: Final = 236  # of a pod, in the name of its Event, which has 17 characters more, and 253 at most

CAPACITY: Final = 50_000
WRITERS: Final = 8
SHARE: Final = 4  # of the writers, for the events of one namespace
TRIES: Final = 12
PAUSE: Final = 10.0
TIMEOUT: Final = 10.0

log = logs.logger(__name__)


def reference(pod: Pod) -> dict[str, str]:
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


@attrs.define(eq=False)
class _Unwritten:
    event: dict[str, Any]
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
    """

    client: Client
    on_dropped: Callable[[], None]
    on_retry: Callable[[str], None]
    controllers: Sequence[str] = ("my-scheduler",)
    hostname: str = attrs.field(factory=socket.gethostname)
    wall_clock: Callable[[], int] = time.time_ns
    clock: Callable[[], float] = time.monotonic
    errors: UnexpectedErrors
    capacity: int = CAPACITY
    writers: int = WRITERS
    pause: float = PAUSE
    _queue: DelayingQueue[_Unwritten] = attrs.field(init=False)
    _instances: dict[str, str] = attrs.field(init=False)
    _last_name: int = attrs.field(default=0, init=False)
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _ended: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._queue = DelayingQueue(clock=self.clock, share=SHARE)
        self._instances = {name: f"{name}-{self.hostname}"[:128] for name in self.controllers}

    def __len__(self) -> int:
        return len(self._queue)

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
        event = self._event(pod, related, type=type, reason=reason, action=action, note=cut(note))
        self._put(_Unwritten(event), self.clock())

    async def run(self) -> None:
        try:
            with self._scope:
                async with anyio.create_task_group() as writers:
                    for _ in range(self.writers):
                        writers.start_soon(self._queue.serve, self._write)
        finally:
            self._ended.set()

    async def drain(self, seconds: float) -> None:
        self._queue.close()
        with anyio.move_on_after(seconds):
            await self._ended.wait()
        self._scope.cancel()

    def _event(self, pod: Pod, related: Pod | None, **fields: str) -> dict[str, Any]:
        now = self.wall_clock()
        self._last_name = max(now, self._last_name + 1)
        name = pod.name[:_LONGEST_NAME].rstrip("-.")
        controller = pod.scheduler_name if pod.scheduler_name in self._instances else self.controllers[0]
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": pod.namespace, "name": f"{name}.{self._last_name:x}"},
            "eventTime": micro_time(now),
            "reportingController": controller,
            "reportingInstance": self._instances[controller],
            "regarding": reference(pod),
            **fields,
        }
        if related is not None:
            event["related"] = reference(related)
        return event

    def _put(self, unwritten: _Unwritten, due: float) -> None:
        if len(self._queue) < self.capacity:
            self._queue.add(unwritten, unwritten.event["metadata"]["namespace"], due)
        else:
            self.on_dropped()

    async def _write(self, unwritten: _Unwritten) -> None:
        """Write an Event; what fails is queued again, and what is refused, or has failed too often, is dropped."""
        metadata, pause = unwritten.event["metadata"], self.pause
        path = f"/apis/events.k8s.io/v1/namespaces/{metadata['namespace']}/events"
        try:
            await self.client.request("POST", path, body=msgspec.json.encode(unwritten.event), timeout=TIMEOUT)
        except ApiError as error:
            if error.is_refusal and error.status != 401:
                if error.reason != "AlreadyExists":  # else an earlier try has succeeded without an answer
                    log.v(2).info("Event was refused", event=metadata["name"], err=str(error))
                    self.on_dropped()
                return
            pause = max(pause, error.retry_after or 0.0)
        except UnreachableError:
            pass
        except Exception as error:  # noqa: BLE001 - it is one event's error
            regarding = unwritten.event["regarding"]
            self.errors.report(error, task="event", pod=f"{regarding['namespace']}/{regarding['name']}")
        else:
            return
        unwritten.tries += 1
        if unwritten.tries == TRIES:
            self.on_dropped()
            return
        self.on_retry("event")
        self._put(unwritten, self.clock() + pause)
