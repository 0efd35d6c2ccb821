"""
The requests that create a placeholder, write the condition by which autoscalers see it, and delete it.

Each may be sent again: a name never gets a second pod, and a deletion names the uid.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.capacity.placeholders import NAMESPACE, is_placeholder
from neuron_scheduler.kube.http.client import JSON, STRATEGIC_MERGE_PATCH, Client
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects.pods import PODS as POD
from neuron_scheduler.kube.writes.condition_writer import SCHEDULER_ERROR, UNSCHEDULABLE
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONDITION: Final = "This pod asks an autoscaler for a node; no scheduler places it."
DELETED: Final = "This pod asks for no node any more, and is deleted."


@attrs.define(eq=False, kw_only=True)
class PlaceholderWriter:
    """
    Writes once; all methods raise ApiError, FencedError and UnreachableError.

    Attributes:
        may_bind: whether this replica may write now; called right before the first byte of a write.
        timeout: seconds for one request; with the renew deadline it must stay below the lease duration.
        wall_clock: Unix time in seconds, for lastTransitionTime.
    """

    client: Client
    may_bind: Callable[[], bool]
    timeout: float
    wall_clock: Callable[[], float] = time.time

    async def create(self, name: str, manifest: Mapping[str, Any]) -> Pod:
        """Create a placeholder, or find that of an earlier try; autoscalers do not see it before it is marked."""
        try:
            body = await self._write("POST", PODS, manifest)
        except ApiError as error:
            if not (error.is_refusal and (error.status, error.reason) == (409, "AlreadyExists")):
                raise
            body = (await self.client.request("GET", f"{PODS}/{name}", timeout=self.timeout)).body
        pod = POD.decode(body).value
        if not isinstance(pod, Pod):
            raise UnreachableError("the answer cannot be read")
        if pod.terminating or not is_placeholder(pod):
            raise UnreachableError(f"another pod has the name {name}")
        return pod

    async def mark(self, name: str, uid: str, *, reason: str = UNSCHEDULABLE, message: str = CONDITION) -> None:
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

    async def delete(self, name: str, uid: str) -> None:
        """
        Delete a placeholder at once; a pod of this name with another uid is not ours any more.

        First it gets a condition that autoscalers do not look for, because a finalizer may keep the pod.
        """
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            await self.mark(name, uid, reason=SCHEDULER_ERROR, message=DELETED)
        except ApiError as error:
            if not error.is_refusal:  # after a refusal, such as a webhook's, the deletion may succeed
                raise
        try:
            await self._write("DELETE", f"{PODS}/{name}", options)
        except ApiError as error:
            another = error.is_refusal and error.status == 409 and "uid in " in error.message.lower()
            if not (another or error.is_gone("pods", name)):
                raise

    async def _write(self, method: str, path: str, body: Mapping[str, Any], *, content_type: str = JSON) -> bytes:
        answer = await self.client.request(
            method,
            path,
            body=msgspec.json.encode(body),
            content_type=content_type,
            timeout=self.timeout,
            pool=Pool.BIND,
            permit=self.may_bind,
        )
        return answer.body
