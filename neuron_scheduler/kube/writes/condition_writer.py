"""
Keep the PodScheduled condition of waiting pods up to date, with as few writes as possible.

Karpenter and Cluster Autoscaler read it. If a thousand pending pods wrote it at every attempt, etcd would be
overloaded. So nothing is written if nothing changed; a message that differs only in numbers is written at most every 30
s, and of several messages for one pod only the newest. A condition that cannot be written is tried again later, and
occupies no writer meanwhile. What is refused, because a right was taken away or a webhook does not want it, is tried
less and less often, at last every two minutes.

The caller forgets a pod that is about to be bound before it sends the Binding, and need not wait. A patch that was
already sent does no harm: the pod's version is a precondition of it, and the Binding changes the version. So the patch
takes effect before the Binding, which sets the condition to True, or not at all. That also holds for a patch that a
proxy or a stopped API server delivers late, for which no waiting time would be long enough.
"""

import random as randomness
import re
import time
from collections.abc import Callable
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import STRATEGIC_MERGE_PATCH, Client
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.pods import stored_pod
from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from neuron_scheduler.model.nomination import CLEAR, KEEP, Clear, Keep, Nominate, NominationChange, change_to
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"

_COUNTS: Final = re.compile(r"\d+|(?<=[a-z])s\b")
_NAMES: Final = " Unknown ids: "  # the pods that are named after it change often (`scheduling.cycle.neuron_shortage`)
_ENDS: Final = re.compile(r"[,.:;]\s*")

NUMBERS_PAUSE: Final = 30.0  # seconds between messages that differ in numbers only
WRITERS: Final = 8
SHARE: Final = 4  # of the writers, for the pods of one namespace
TIMEOUT: Final = 10.0
PASSING: Final = frozenset({401, 403, 404})  # the token, the rights or a webhook may change meanwhile
LOGGED_FROM: Final = 4  # tries before a log line; the next ones after 8, 16, ...
PAUSE: Final = 30.0  # the longest one between two tries: a pod that waits says why 30 s after the last fault
REFUSED_PAUSE: Final = 120.0  # the same after a refusal: 10,000 refused pods cost 83 requests a second

log = logs.logger(__name__)


def shape(message: str) -> tuple[str, ...]:
    """
    Return a key that is equal for messages that differ only in their numbers or in the pods that they name.

    The plural goes with the number ("1 node", "2 nodes"). The order of the reasons does not count: they are sorted as
    strings that begin with their count.
    """
    return tuple(sorted(_ENDS.split(_COUNTS.sub("", message.partition(_NAMES)[0]))))


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
    """
    Return what the pod's status says already; None if its condition is absent or not False.

    If `nomination` is KEEP, the node that the status names is left out, so that the two compare equal.
    """
    if pod.scheduled is None or pod.scheduled.status != "False":
        return None
    named = KEEP if nomination == KEEP else change_to(pod.nominated_node_name)
    return WaitingStatus(pod.scheduled.reason, pod.scheduled.message, named)


def encode_patch(pod: Pod, wanted: WaitingStatus, *, now: float, first: bool, version: str = "") -> bytes:
    """
    Return the strategic merge patch of `pods/status`; uid and version in it are preconditions.

    The version is that of `pod`, or `version` if the pod has been read since.

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
    match wanted.nomination:
        case Nominate(node_name=node_name):
            status["nominatedNodeName"] = node_name
        case Clear():
            status["nominatedNodeName"] = None
        case Keep():
            pass
    metadata = {"uid": pod.uid}
    if version or pod.resource_version:
        metadata["resourceVersion"] = version or pod.resource_version
    return msgspec.json.encode({"metadata": metadata, "status": status})


@attrs.define(eq=False)
class _Entry:
    """
    One pod: the status that is to be written, and the one that was written last and when.

    Attributes:
        due: the time for which it is queued, None for none; what is queued with another time is stale.
        version: the pod's version, if it was read back after `pod`; else empty.
        outdated: the pod has changed since the version that we know.
        given_up: until the watch shows that the pod has changed: it is bound already, or etcd cannot store it with a
            condition.
        backoff: the pauses between failed tries.
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
    version: str = ""
    outdated: bool = False
    given_up: bool = False


@attrs.define(eq=False, kw_only=True)
class ConditionWriter:
    """
    Writes conditions; `run` does the writing.

    Attributes:
        wall_clock: Unix time in seconds, for lastTransitionTime.
        on_retry: called with `condition` for every patch that is sent again.
        errors: reports unexpected exceptions.
        written: counter of patches that succeeded.
    """

    client: Client
    on_retry: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = randomness.random
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    writers: int = WRITERS
    written: int = attrs.field(default=0, init=False)
    _entries: dict[str, _Entry] = attrs.field(factory=dict, init=False)
    _queue: DelayingQueue[tuple[_Entry, float]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._queue = DelayingQueue(clock=self.clock, share=SHARE)

    def __len__(self) -> int:
        """Pods about which something waits to be written."""
        return sum(entry.wanted is not None for entry in self._entries.values())

    def set(self, pod: Pod, *, reason: str, message: str, nomination: NominationChange = KEEP) -> None:
        """
        Write the pod's condition, now or when it is due; never waits.

        KEEP leaves `status.nominatedNodeName` as it is, or as it was last wanted.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            entry = self._entries[pod.uid] = _Entry(pod, Backoff(self.random), written=status_of(pod, nomination))
        last = entry.wanted or entry.written
        if nomination == KEEP and last is not None:
            nomination = last.nomination
        wanted = WaitingStatus(reason, message, nomination)
        if pod.resource_version != entry.pod.resource_version:
            entry.version, entry.given_up = "", False
        entry.pod = pod
        if entry.given_up:
            entry.wanted = None
            return
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
        entry = self._entries.get(pod.uid)
        return (entry.wanted or entry.written) if entry is not None else status_of(pod, KEEP)

    def forget(self, uid: str) -> None:
        """Write nothing more about a pod that is gone, or about to be bound."""
        self._entries.pop(uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
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
        """Patch the status once; what cannot be written now is queued again."""
        entry, due = queued
        wanted = entry.wanted
        if entry.due != due or wanted is None or not self._is_current(entry):
            return
        entry.due, entry.sending = None, True
        try:
            retry_at = await self._send(entry, wanted)
        except Exception as error:  # noqa: BLE001 - it is one pod's error
            self.errors.report(error, task="condition", pod=entry.pod.key)
            retry_at = self._pause(entry, error)
        finally:
            entry.sending = False
        if not self._is_current(entry):
            return
        if entry.wanted is wanted and retry_at is None:
            entry.wanted = None
        elif entry.wanted is wanted and retry_at is not None:
            self._schedule(entry, retry_at)
        elif entry.wanted is not None:
            newer = entry.wanted
            self.set(entry.pod, reason=newer.reason, message=newer.message, nomination=newer.nomination)

    def _is_current(self, entry: _Entry) -> bool:
        return self._entries.get(entry.pod.uid) is entry

    async def _send(self, entry: _Entry, wanted: WaitingStatus) -> float | None:
        """Send the patch; return when it is to be tried again, None if it is written or given up."""
        pod = entry.pod
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            if entry.outdated and not await self._read_back(entry, path):
                return None
            if not self._is_current(entry):
                return None  # forgotten meanwhile
            body = encode_patch(pod, wanted, now=self.wall_clock(), first=entry.written is None, version=entry.version)
            answer = await self.client.request(
                "PATCH", f"{path}/status", body=body, content_type=STRATEGIC_MERGE_PATCH, timeout=TIMEOUT
            )
            stored = await _decoded(answer.body)
        except ApiError as error:
            return self._refused(entry, error)
        except UnreachableError as error:
            return self._pause(entry, error)
        entry.written, entry.written_at = wanted, self.clock()
        entry.tries, entry.not_before = 0, 0.0
        entry.version = stored.metadata.resource_version if stored else ""
        entry.backoff.reset()
        self.written += 1
        return None

    async def _read_back(self, entry: _Entry, path: str) -> bool:
        """
        Read the pod's present version; False if it is bound, another pod of the same name, or unreadable.

        The version of a bound pod is not kept: a patch with it would take effect after the Binding.
        """
        try:
            with anyio.fail_after(TIMEOUT):  # the client would wait longer after a 429
                stored = await _decoded((await self.client.request("GET", path, timeout=TIMEOUT)).body)
        except TimeoutError as error:
            raise UnreachableError("the pod could not be read back in time") from error
        if stored is None:
            return False
        entry.given_up = stored.metadata.uid != entry.pod.uid or bool(stored.spec.node_name)
        if not entry.given_up:
            entry.version, entry.outdated = stored.metadata.resource_version, False
        return not entry.given_up

    def _refused(self, entry: _Entry, error: ApiError) -> float | None:
        pod = entry.pod
        if error.gone("pods", pod.name):
            return None
        if error.refused and error.status == 409:
            first, entry.outdated = not entry.tries, True
            retry_at = self._pause(entry, error)
            if first:
                retry_at = entry.not_before = self.clock()
            return retry_at
        if error.too_large or (error.refused and error.status not in PASSING):
            entry.given_up = error.too_large
            log.warning("PodScheduled condition was refused", pod=pod.key, exc=error)
            return None
        return self._pause(entry, error)

    def _pause(self, entry: _Entry, error: Exception) -> float:
        """Count a failed write, and return when it is tried again."""
        entry.tries += 1
        self.on_retry("condition")
        if entry.tries >= LOGGED_FROM and not entry.tries & (entry.tries - 1):
            log.warning("PodScheduled condition cannot be written, trying again", pod=entry.pod.key,
                        tries=entry.tries, waiting=len(self), exc=error)  # fmt: skip
        refused = isinstance(error, ApiError) and error.refused and error.status in PASSING
        entry.backoff.most = REFUSED_PAUSE if refused else PAUSE
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        entry.not_before = self.clock() + entry.backoff.next(at_least=retry_after)
        return entry.not_before


async def _decoded(body: bytes) -> wire.PlacedPod | None:
    """Return the pod in the API server's answer, None if it is nested too deeply; raise UnreachableError otherwise."""
    try:
        pod = await stored_pod(body)
    except RecursionError:
        return None
    except ValueError as error:
        raise UnreachableError(f"the answer cannot be read: {error}") from error
    return pod
