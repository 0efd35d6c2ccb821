"""
Keeps the placeholders as they are wanted, however often the API server has to be asked.

A placeholder is created, gets the condition by which autoscalers see it, and is deleted. Its name is that of the
request, so a creation that is sent again never makes a second pod. The process may end between creation and condition:
autoscalers do not see such a pod, and the next leader deletes it. What is wanted may change while a request is under
way: the answer is then followed by the next request.
"""

import random as randomness
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import anyio
import attrs
import msgspec

from neuron_scheduler.capacity.placeholders import MARKER, NAMESPACE
from neuron_scheduler.kube.http.client import JSON, STRATEGIC_MERGE_PATCH, Client
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.writes.condition_writer import SCHEDULER_ERROR, UNSCHEDULABLE
from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, FencedError, UnreachableError
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONDITION: Final = "This pod asks an autoscaler for a node; no scheduler places it."
KEPT: Final = "This pod is deleted, and a finalizer keeps it; it asks for no node any more."
WRITERS: Final = 4
MOST_DELETED: Final = 256
"""So many uids of deleted placeholders are remembered, because the watch may show these pods later."""
_REPORTED_FROM: Final = 4  # tries before a log line; the next ones after 8, 16, ...

log = logs.logger(__name__)
T = TypeVar("T")


class _Finalizers(wire.Wire):
    finalizers: list[str] | None = None


class _Deleted(wire.Wire):
    metadata: _Finalizers


_DELETED: Final = msgspec.json.Decoder(_Deleted)
_POD: Final = msgspec.json.Decoder(wire.PlacedPod)


def _decoded(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return the object in an answer; raise UnreachableError if it cannot be read."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreachableError(f"the answer cannot be read: {error}") from error


def deletion(uid: str) -> dict[str, Any]:
    """Return the options that delete at once, and only the object of this uid."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }


@attrs.define(eq=False, kw_only=True)
class _Placeholder:
    """
    One name.

    Attributes:
        manifest: None if an earlier leader has created it.
        uid: empty until it is known.
        wanted: whether it is to exist.
        busy: a request about it is under way.
    """

    backoff: Backoff
    manifest: Mapping[str, Any] | None
    uid: str = ""
    wanted: bool = True
    busy: bool = False
    tries: int = 0


@attrs.define(eq=False, kw_only=True)
class PlaceholderWriter:
    """
    Writes while it runs.

    Attributes:
        may_send: whether this replica may write now; called right before the first byte of a write.
        timeout: seconds for one request; with the renew deadline it must stay below the lease duration.
        clock: seconds that never jump.
        declined: called with a name and a sentence: the API server refuses the placeholder, which is then withdrawn.
        gone: called with a name whose placeholder is gone.
        errors: reports unexpected exceptions.
        wall_clock: Unix time in seconds, for lastTransitionTime.
    """

    client: Client
    may_send: Callable[[], bool]
    timeout: float
    clock: Callable[[], float]
    declined: Callable[[str, str], None]
    gone: Callable[[str], None]
    errors: UnexpectedErrors
    wall_clock: Callable[[], float] = time.time
    random: Callable[[], float] = randomness.random
    _known: dict[str, _Placeholder] = attrs.field(factory=dict, init=False)
    _deleted: deque[str] = attrs.field(factory=lambda: deque(maxlen=MOST_DELETED), init=False)  # uids
    _turns: DelayingQueue[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = DelayingQueue(clock=self.clock, share=WRITERS)

    @property
    def names(self) -> Mapping[str, object]:
        """The names of all placeholders that are there, or may be."""
        return self._known

    def ask(self, name: str, manifest: Mapping[str, Any]) -> None:
        """Create a placeholder; never waits."""
        self._known[name] = self._new(manifest)
        self._turns.add(name, "", self.clock())

    def adopt(self, name: str, uid: str) -> None:
        """Take over a placeholder of an earlier leader, which is there."""
        self._known[name] = self._new(None, uid)

    def withdraw(self, name: str) -> None:
        """Remove a placeholder; never waits."""
        known = self._known.get(name)
        if known is not None and known.wanted:
            known.wanted, known.tries = False, 0
            known.backoff.reset()
            self._turns.add(name, "", self.clock())

    def seen(self, name: str, uid: str) -> None:
        """Note the uid that the watch shows under a name."""
        self._known[name].uid = uid

    def has_deleted(self, uid: str) -> bool:
        """Return whether the API server has lately answered that the placeholder of this uid is gone."""
        return uid in self._deleted

    def vanished(self, name: str, uid: str) -> bool:
        """Forget a placeholder that is gone, as the watch shows; return whether it was wanted."""
        known = self._known.get(name)
        if known is None or known.uid not in ("", uid) or uid in self._deleted:
            return False  # it was another one of the name
        self._gone(name)
        return known.wanted

    async def run(self) -> None:
        """Write until cancelled."""
        async with anyio.create_task_group() as writers:
            for _ in range(WRITERS):
                writers.start_soon(self._turns.serve, self._settle)

    def _new(self, manifest: Mapping[str, Any] | None, uid: str = "") -> _Placeholder:
        return _Placeholder(manifest=manifest, uid=uid, backoff=Backoff(self.random, first=0.2, most=30.0))

    async def _settle(self, name: str) -> None:
        """Send one request about a name, and another one later if it is not as wanted yet."""
        known = self._known.get(name)
        if known is None or known.busy:
            return
        wanted, known.busy = known.wanted, True
        refusal: Exception | None = None
        try:
            if not wanted:
                await self._delete(name, known.uid)
            elif known.manifest is not None:
                known.uid = await self._create(name, known.manifest)
        except (ApiError, FencedError, UnreachableError) as error:
            refusal = error
        except Exception as error:  # noqa: BLE001 - it is one request's error
            refusal = UnreachableError(self.errors.report(error, task="capacity request", pod=name))
        finally:
            known.busy = False
        if self._known.get(name) is not known:
            return  # the watch has shown meanwhile that it is gone
        try:
            pause = self._answered(name, known, refusal, wanted=wanted)
        except Exception as error:  # noqa: BLE001 - a listener's error must not end the writers
            self.errors.report(error, task="capacity request", pod=name)
            pause = known.backoff.next() if name in self._known else None
        if pause is not None:
            self._turns.add(name, "", self.clock() + pause)

    def _answered(self, name: str, known: _Placeholder, refusal: Exception | None, *, wanted: bool) -> float | None:
        """Apply the answer to a request that was sent for `wanted`; return after how many seconds to ask again."""
        if refusal is None and wanted:
            return None if known.wanted else 0.0
        declined = isinstance(refusal, ApiError) and refusal.refused and refusal.status not in (401, 409)
        if declined and wanted:
            if known.wanted:
                known.wanted = False
                self.declined(name, getattr(refusal, "message", "") or str(refusal))
            return 0.0  # it may have been created, and its condition refused
        if refusal is None or (declined and not known.uid):  # nobody has seen such a pod, and we may not even look
            self._gone(name)
            return None
        known.tries += 1
        if (declined and known.tries == 1) or (known.tries >= _REPORTED_FROM and not known.tries & (known.tries - 1)):
            log.warning(
                "Request for a machine cannot be written, trying again",
                name=name,
                wanted=known.wanted,
                tries=known.tries,
                err=str(refusal),
            )
        return known.backoff.next(at_least=refusal.retry_after if isinstance(refusal, ApiError) else None)

    def _gone(self, name: str) -> None:
        known = self._known.pop(name)
        if known.uid:
            self._deleted.append(known.uid)
        self.gone(name)

    async def _create(self, name: str, manifest: Mapping[str, Any]) -> str:
        """Create a placeholder, or find that of an earlier try; write its condition, and return its uid."""
        try:
            pod = _decoded(await self._write("POST", PODS, manifest), _POD)
        except ApiError as error:
            if not (error.refused and (error.status, error.reason) == (409, "AlreadyExists")):
                raise
            pod = await self._read(name)
        if pod.metadata.deletion_timestamp or (pod.metadata.labels or {}).get(MARKER) != "true":
            raise UnreachableError(f"another pod has the name {name}")
        await self._mark(name, pod.metadata.uid)
        return pod.metadata.uid

    async def _delete(self, name: str, uid: str) -> None:
        """
        Delete a placeholder; a pod of this name with another uid is not ours any more.

        A finalizer of somebody else's may keep the pod, and autoscalers see it as before: with another condition they
        do not.
        """
        try:
            uid = uid or (await self._read(name)).metadata.uid
            answer = await self._write("DELETE", f"{PODS}/{name}", deletion(uid))
            if _decoded(answer, _DELETED).metadata.finalizers:
                await self._mark(name, uid, reason=SCHEDULER_ERROR, message=KEPT)
        except ApiError as error:
            another = error.refused and error.status == 409 and "uid in " in error.message.lower()
            if not (another or error.gone("pods", name)):
                raise

    async def _mark(self, name: str, uid: str, *, reason: str = UNSCHEDULABLE, message: str = CONDITION) -> None:
        """Patch the condition; the uid is a precondition, and a repeat changes nothing but the time."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall_clock())),
        }
        patch = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        await self._write("PATCH", f"{PODS}/{name}/status", patch, content_type=STRATEGIC_MERGE_PATCH)

    async def _write(self, method: str, path: str, body: Mapping[str, Any], *, content_type: str = JSON) -> bytes:
        """Send a write once, and return the body of the answer; FencedError, ApiError, UnreachableError."""
        answer = await self.client.request(
            method,
            path,
            body=msgspec.json.encode(body),
            content_type=content_type,
            timeout=self.timeout,
            pool=Pool.BIND,
            permit=self.may_send,
        )
        return answer.body

    async def _read(self, name: str) -> wire.PlacedPod:
        """Return the pod of a name; ApiError, UnreachableError."""
        answer = await self.client.request("GET", f"{PODS}/{name}", timeout=self.timeout)
        return _decoded(answer.body, _POD)
