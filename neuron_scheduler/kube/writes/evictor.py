"""
Evict a pod for another one of higher priority: write the reason to its status, then delete it.

Upstream: `framework/preemption/executor.go`, `pkg/scheduler/util/utils.go`. It is a DELETE, not the eviction
subresource, because budgets are best effort here. The uid is a precondition of both requests: a recreated pod of the
same name is another pod. The condition of a victim that stays after all is set to False by the disruption controller
after two minutes.
"""

import random as randomness
import time
from collections.abc import Callable
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.kube.http.client import JSON, STRATEGIC_MERGE_PATCH, Client
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects.pods import PREEMPTION_BY_SCHEDULER
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, FencedError, UnreachableError

TRIES: Final = 4
FIRST_PAUSE: Final = 0.01
FACTOR: Final = 5
JITTER: Final = 0.1

log = logs.logger(__name__)


@attrs.define(eq=False)
class Eviction:
    """
    A victim on its way out.

    Attributes:
        is_needed: whether the victim has to leave; asked right before the first byte of each request.
        explained: its status has the reason, or cannot take it.
        evicted: whether it is terminating or gone; None until that is known.
        refused: a policy or a webhook does not let this pod go, or its object is invalid; a right is not missing.
        needless: it was spared, because it does not have to leave any more.
        in_doubt: a DELETE was sent that may have succeeded.
        gone: it was gone, or another pod had its name, before a DELETE of ours can have ended it.
        tries: of the next request.
    """

    victim: Pod
    scheduler_name: str
    is_needed: Callable[[], bool]
    explained: bool = attrs.field(default=False, init=False)
    evicted: bool | None = attrs.field(default=None, init=False)
    refused: bool = attrs.field(default=False, init=False)
    needless: bool = attrs.field(default=False, init=False)
    in_doubt: bool = attrs.field(default=False, init=False)
    gone: bool = attrs.field(default=False, init=False)
    tries: int = attrs.field(default=0, init=False)

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.victim.namespace}/pods/{self.victim.name}"

    def is_still_needed(self) -> bool:
        self.needless = not self.is_needed()
        return not self.needless

    def note_success(self) -> None:
        self.evicted = True if self.explained else None
        self.explained, self.tries = True, 0

    @property
    def pause(self) -> float | None:
        """Seconds before the next try, without jitter; None if there is none."""
        return FIRST_PAUSE * FACTOR ** (self.tries - 1) if self.tries < TRIES else None


@attrs.define(eq=False, kw_only=True)
class Evictor:
    """
    Deletes pods.

    Attributes:
        may_bind: whether this replica may write now; called right before the first byte of a request.
        timeout: seconds for one try; with the renew deadline it must stay below the lease duration.
        wall_clock: Unix time in seconds, for lastTransitionTime.
        on_retry: called with `eviction` for every request that is sent again.
    """

    client: Client
    may_bind: Callable[[], bool]
    timeout: float
    on_retry: Callable[[str], None]
    random: Callable[[], float] = randomness.random
    wall_clock: Callable[[], float] = time.time

    async def proceed(self, eviction: Eviction) -> float:
        """Send what is to be sent now; return the seconds after which to call it again, if the outcome is not known."""
        pause = 0.0
        while eviction.evicted is None and not pause:
            eviction.tries += 1
            try:
                await self._send(eviction)
            except FencedError:
                eviction.evicted = False
            except (ApiError, UnreachableError) as error:
                pause = self._handle_failure(eviction, error)
            else:
                eviction.note_success()
        return pause

    async def _send(self, eviction: Eviction) -> None:
        victim, path = eviction.victim, eviction.path
        if eviction.explained:
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": victim.uid}}
            method, body, content_type = "DELETE", msgspec.json.encode(options), JSON
        else:
            body = disruption_patch(victim, scheduler_name=eviction.scheduler_name, now=self.wall_clock())
            method, path, content_type = "PATCH", f"{path}/status", STRATEGIC_MERGE_PATCH
        await self.client.request(
            method,
            path,
            body=body,
            content_type=content_type,
            timeout=self.timeout,
            pool=Pool.BIND,
            permit=lambda: eviction.is_still_needed() and self.may_bind(),
        )

    def _handle_failure(self, eviction: Eviction, error: ApiError | UnreachableError) -> float:
        """Return the seconds before the next try; 0 if the request needs none."""
        answered = error if isinstance(error, ApiError) else None
        if answered is not None and _is_gone(answered, eviction.victim.name):
            eviction.evicted, eviction.gone = True, not eviction.in_doubt
            return 0.0
        eviction.in_doubt |= eviction.explained
        if answered is not None and answered.is_too_large and not eviction.explained:
            log.warning(
                "Pod is too large for the condition DisruptionTarget; deleting it without the condition",
                path=eviction.path,
            )
            eviction.note_success()
            return 0.0
        pause = eviction.pause
        if pause is None or (answered is not None and answered.is_refusal and answered.status != 409):
            method = "DELETE" if eviction.explained else "PATCH"
            log.error("Pod could not be preempted", exc=error, method=method, path=eviction.path)
            eviction.evicted, eviction.refused = False, answered is not None and _is_denied(answered)
            return 0.0
        self.on_retry("eviction")
        retry_after = answered.retry_after if answered is not None else None
        return max(retry_after or 0.0, pause * (1 + JITTER * self.random()))


def _is_gone(error: ApiError, name: str) -> bool:
    """Return whether the pod is gone, or another one has its name: the uid is a precondition."""
    if error.is_gone("pods", name):
        return True
    message = error.message.lower()
    return error.is_refusal and (
        (error.status == 409 and "uid in " in message) or (error.status == 422 and "metadata.uid" in message)
    )


def _is_denied(error: ApiError) -> bool:
    """Return whether the API server has refused this object, not its client; a webhook may use any code."""
    return error.is_refusal and (error.status == 422 or " denied " in error.message)


def disruption_patch(victim: Pod, *, scheduler_name: str, now: float) -> bytes:
    condition: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": f"{scheduler_name}: preempting to accommodate a higher priority pod",
        "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
    }
    if victim.observed_generation:
        condition["observedGeneration"] = victim.observed_generation
    return msgspec.json.encode({"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}})
