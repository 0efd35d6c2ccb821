"""
Evict a pod for another one of higher priority: write the reason to its status, then delete it.

Upstream: `framework/preemption/executor.go`, `pkg/scheduler/util/utils.go`. It is a DELETE and not the eviction
subresource, because budgets are best effort here; the pod has its own grace period. The uid is a precondition of both
requests: a pod that was recreated under the same name is another pod. The number of concurrent requests is limited, not
that of victims: a pause between two tries of one victim delays no other. Refuses to choose the pod, and to wait for its
end.
"""

import random as randomness
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import anyio
import attrs
import msgspec

from neuron_scheduler.errors import ApiError, FencedError, UnreachableError
from neuron_scheduler.kube.http.client import STRATEGIC_MERGE_PATCH, Response
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.http.request import JSON
from neuron_scheduler.kube.http.status import confirms
from neuron_scheduler.kube.objects.pods import PREEMPTION_BY_SCHEDULER
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs

TRIES: Final = 4
FIRST_PAUSE: Final = 0.01
FACTOR: Final = 5
JITTER: Final = 0.1
REQUESTS_AT_ONCE: Final = 16

log = logs.logger(__name__)


class Api(Protocol):
    """The requests of the client that are used."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = ...,
        content_type: str = ...,
        timeout: float = ...,  # noqa: ASYNC109 - as in the client
        pool: Pool = ...,
        permit: Callable[[], bool] | None = ...,
    ) -> Response:
        """Send one request."""


def _ignore(_write: str) -> None:
    """Do nothing."""


@attrs.define(eq=False, kw_only=True)
class Evictor:
    """
    Deletes pods.

    Attributes:
        may_send: whether this replica may write now; called right before the first byte of a request.
        timeout: seconds for one try; with the renew deadline it must stay below the lease duration.
        wall_clock: Unix time in seconds, for lastTransitionTime.
        on_retry: called with `eviction` for every request that is sent again.
    """

    client: Api
    may_send: Callable[[], bool]
    timeout: float
    random: Callable[[], float] = randomness.random
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    on_retry: Callable[[str], None] = _ignore
    _limit: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(REQUESTS_AT_ONCE), init=False)

    async def evict(self, victim: Pod, *, scheduler_name: str) -> bool:
        """Return True once the pod is terminating or gone; False if it could not be deleted."""
        path = f"/api/v1/namespaces/{victim.namespace}/pods/{victim.name}"
        body = disruption_patch(victim, scheduler_name=scheduler_name, now=self.wall_clock())
        exists = await self._send("PATCH", f"{path}/status", body=body, content_type=STRATEGIC_MERGE_PATCH)
        if exists is not True:
            return exists is None
        options = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": victim.uid}}
        )
        return await self._send("DELETE", path, body=options, content_type=JSON) is not False

    async def _send(self, method: str, path: str, *, body: bytes, content_type: str) -> bool | None:
        """Return whether the request succeeded, after a few tries; None if the pod is gone."""
        pause = FIRST_PAUSE
        for attempt in range(1, TRIES + 1):
            try:
                await self._request(method, path, body, content_type)
            except FencedError:
                return False
            except (ApiError, UnreachableError) as error:
                if isinstance(error, ApiError) and _is_gone(error, path.removesuffix("/status")):
                    return None
                if isinstance(error, ApiError) and error.too_large:
                    log.warning(
                        "Pod is too large for the condition DisruptionTarget; deleting it without the condition",
                        path=path,
                    )
                    return True
                if attempt == TRIES or (isinstance(error, ApiError) and error.refused and error.status != 409):
                    log.error("Pod could not be preempted", exc=error, method=method, path=path)
                    return False
                retry_after = error.retry_after if isinstance(error, ApiError) else None
            else:
                return True
            self.on_retry("eviction")
            await self.sleep(max(retry_after or 0.0, pause * (1 + JITTER * self.random())))
            pause *= FACTOR
        return False

    async def _request(self, method: str, path: str, body: bytes, content_type: str) -> None:
        async with self._limit:
            answer = await self.client.request(
                method,
                path,
                body=body,
                content_type=content_type,
                timeout=self.timeout,
                pool=Pool.BIND,
                permit=self.may_send,
            )
        if not confirms(answer.body, "Pod"):
            raise UnreachableError(f"{answer.status}, and not from an API server")


def _is_gone(error: ApiError, path: str) -> bool:
    """Return whether the pod is gone, or another one has its name: the uid is a precondition."""
    if error.gone("pods", path.rpartition("/")[2]):
        return True
    message = error.message.lower()
    return error.refused and (
        (error.status == 409 and "uid in " in message) or (error.status == 422 and "metadata.uid" in message)
    )


def disruption_patch(victim: Pod, *, scheduler_name: str, now: float) -> bytes:
    """Return the strategic merge patch of `pods/status` with the reason why the pod is deleted."""
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
