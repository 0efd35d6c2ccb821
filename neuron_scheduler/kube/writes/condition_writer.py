"""
Keep the PodScheduled condition of waiting pods up to date, with as few writes as possible.

Karpenter and Cluster Autoscaler read it. A thousand pending pods that write it at every attempt would overload etcd. So
only changes are written, a message that differs only in numbers at most every 30 s, and of several messages only the
newest. A failed write is tried again later with the pod's newest version, a refused one at last every two minutes.

The caller forgets a pod before it sends the Binding, and need not wait. The pod's version is a precondition of a patch,
and the Binding changes it. Even a patch that a proxy delivers late takes effect before the Binding, or not at all.
"""

import random as randomness
import time
from collections.abc import Callable
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import STRATEGIC_MERGE_PATCH, Client
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from neuron_scheduler.model.nomination import CLEAR, KEEP, Clear, Keep, Nominate, NominationChange, change_to
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import shape
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"

NUMBERS_PAUSE: Final = 30.0  # seconds between messages that differ in numbers only
WRITERS: Final = 8
SHARE: Final = 4  # of the writers, for the pods of one namespace
TIMEOUT: Final = 10.0
LOGGED_FROM: Final = 4  # tries before a log line; the next ones after 8, 16, ...
PAUSE: Final = 30.0  # the longest one between two tries: a pod that waits says why 30 s after the last fault
REFUSED_PAUSE: Final = 120.0  # the same after a refusal: 10,000 refused pods cost 83 requests a second

log = logs.logger(__name__)


@attrs.frozen
class WaitingStatus:
    """What the status of a waiting pod says, or is to say: its PodScheduled condition and its nominated node."""

    reason: str
    message: str
    nomination: NominationChange = KEEP

    @property
    def shape(self) -> tuple[str, tuple[str, ...], NominationChange]:
        """A key that is equal for statuses that differ only in numbers."""
        return self.reason, shape(self.message), self.nomination


def status_of(pod: Pod, nomination: NominationChange) -> WaitingStatus | None:
    """Return what the pod's status says already, the node only if it is to change; None if no condition is False."""
    if pod.scheduled is None or pod.scheduled.status != "False":
        return None
    named = KEEP if nomination == KEEP else change_to(pod.nominated_node_name)
    return WaitingStatus(pod.scheduled.reason, pod.scheduled.message, named)


def encode_patch(pod: Pod, wanted: WaitingStatus, *, now: float) -> bytes:
    """Return the strategic merge patch of `pods/status`; uid and version in it are preconditions."""
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if pod.observed_generation:
        condition["observedGeneration"] = pod.observed_generation
    if status_of(pod, KEEP) is None:  # else the merge keeps the old time: it changes with the status only
        condition["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    status: dict[str, Any] = {"conditions": [condition]}
    match wanted.nomination:
        case Nominate(node_name=node_name):
            status["nominatedNodeName"] = node_name
        case Clear():
            status["nominatedNodeName"] = None
        case Keep():
            pass
    metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version}
    return msgspec.json.encode({"metadata": metadata, "status": status})


@attrs.define(eq=False)
class _Entry:
    """
    One pod: the status to be written, and the one that was written last and when.

    Attributes:
        due: the time for which it is queued, None for none; what is queued with another time is stale.
        tries: how many have failed since the last success; `backoff` has the pauses between them.
    """

    pod: Pod
    backoff: Backoff
    wanted: WaitingStatus | None = None
    written: WaitingStatus | None = None
    written_at: float = 0.0
    due: float | None = None
    sending: bool = False
    tries: int = 0
    not_before: float = 0.0


@attrs.define(eq=False, kw_only=True)
class ConditionWriter:
    """
    Writes conditions; `run` does the writing.

    Attributes:
        pod_by_key: returns the newest state of a pod that the watch has shown, by its key; None for none.
        wall_clock: Unix time in seconds, for lastTransitionTime.
        on_retry: called with `condition` for every patch that is sent again.
        errors: reports unexpected exceptions.
        written: counter of patches that succeeded.
        entries: what is wanted and what was written, by the uids of the pods.
    """

    client: Client
    pod_by_key: Callable[[str], Pod | None]
    on_retry: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = randomness.random
    errors: UnexpectedErrors
    writers: int = WRITERS
    written: int = attrs.field(default=0, init=False)
    entries: dict[str, _Entry] = attrs.field(factory=dict, init=False)
    _queue: DelayingQueue[tuple[_Entry, float]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._queue = DelayingQueue(clock=self.clock, share=SHARE)

    def __len__(self) -> int:
        return sum(entry.wanted is not None for entry in self.entries.values())

    def set(self, pod: Pod, *, reason: str, message: str, nomination: NominationChange = KEEP) -> None:
        """Write the pod's condition, now or when it is due; KEEP leaves the nominated node as it was last wanted."""
        entry = self.entries.get(pod.uid)
        if entry is None:
            entry = self.entries[pod.uid] = _Entry(pod, Backoff(self.random), written=status_of(pod, nomination))
        last = entry.wanted or entry.written
        if nomination == KEEP and last is not None:
            nomination = last.nomination
        wanted = WaitingStatus(reason, message, nomination)
        entry.pod = pod
        if wanted == entry.written and not entry.sending:  # what is under way may say something else
            entry.wanted = None
            return
        entry.wanted = wanted
        only_numbers = entry.written is not None and entry.written.shape == wanted.shape
        self._schedule(entry, entry.written_at + NUMBERS_PAUSE if only_numbers and entry.written_at else 0.0)

    def clear_nomination(self, pod: Pod) -> None:
        """Remove the nominated node from the pod's status; its condition stays as it is, or as it was last wanted."""
        last = self.last(pod)
        if last is not None:
            self.set(pod, reason=last.reason, message=last.message, nomination=CLEAR)

    def last(self, pod: Pod) -> WaitingStatus | None:
        """Return what the pod's status is to say, or says already; None if its condition is absent or not False."""
        entry = self.entries.get(pod.uid)
        return (entry.wanted or entry.written) if entry is not None else status_of(pod, KEEP)

    def forget(self, uid: str) -> None:
        self.entries.pop(uid, None)

    async def run(self) -> None:
        async with anyio.create_task_group() as writers:
            for _ in range(self.writers):
                writers.start_soon(self._queue.serve, self._write)

    def _schedule(self, entry: _Entry, due: float) -> None:
        due = max(due, entry.not_before)
        if entry.sending or (entry.due is not None and entry.due <= due):
            return  # the writer looks again when it is done, or it is queued for an earlier time
        entry.due = due
        self._queue.add((entry, due), entry.pod.namespace, due)

    async def _write(self, queued: tuple[_Entry, float]) -> None:
        """Patch the status once; what is not written then, or is newer, is queued again."""
        entry, due = queued
        wanted = entry.wanted
        if entry.due != due or not self._is_current(entry):
            return
        entry.due, entry.sending = None, wanted is not None
        if wanted is None:
            return
        try:
            await self._send(entry, wanted)
        except Exception as error:  # noqa: BLE001 - it is one pod's error
            self.errors.report(error, task="condition", pod=entry.pod.key)
            self._handle_failure(entry, error)
        finally:
            entry.sending = False
        left = entry.wanted
        if left is not None and self._is_current(entry):
            self.set(entry.pod, reason=left.reason, message=left.message, nomination=left.nomination)

    def _is_current(self, entry: _Entry) -> bool:
        return self.entries.get(entry.pod.uid) is entry

    async def _send(self, entry: _Entry, wanted: WaitingStatus) -> None:
        """Send the patch for the pod as the watch shows it; a pod that waits no more is forgotten."""
        pod = self.pod_by_key(entry.pod.key) or entry.pod
        if pod.uid != entry.pod.uid or pod.node_name:
            self.forget(entry.pod.uid)
            return
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        body = encode_patch(pod, wanted, now=self.wall_clock())
        try:
            await self.client.request("PATCH", path, body=body, content_type=STRATEGIC_MERGE_PATCH, timeout=TIMEOUT)
        except (ApiError, UnreachableError) as error:
            if isinstance(error, ApiError) and error.is_gone("pods", pod.name):
                self.forget(pod.uid)
            else:
                self._handle_failure(entry, error)
            return
        entry.written, entry.written_at = wanted, self.clock()
        entry.tries, entry.not_before = 0, 0.0
        entry.backoff.reset()
        self.written += 1
        if entry.wanted is wanted:
            entry.wanted = None

    def _handle_failure(self, entry: _Entry, error: Exception) -> None:
        entry.tries += 1
        self.on_retry("condition")
        if entry.tries >= LOGGED_FROM and not entry.tries & (entry.tries - 1):
            log.warning("PodScheduled condition cannot be written, trying again", pod=entry.pod.key,
                        tries=entry.tries, waiting=len(self), exc=error)  # fmt: skip
        answered = error if isinstance(error, ApiError) else None
        if answered is None or not answered.is_refusal:
            entry.written = None  # it may have been: what the status says is not known
        refused = answered is not None and (answered.is_too_large or (answered.is_refusal and answered.status != 409))
        entry.backoff.most = REFUSED_PAUSE if refused else PAUSE
        retry_after = answered.retry_after if answered is not None else None
        entry.not_before = self.clock() + entry.backoff.next(at_least=retry_after)
