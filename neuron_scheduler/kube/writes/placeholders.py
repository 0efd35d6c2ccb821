"""
Placeholders: create the pod, give it the condition by which autoscalers see it, and delete it.

The name is that of the request, so a creation that is sent again never makes a second pod: the API server answers that
there is one. The process may end between the creation and the condition: autoscalers do not see such a pod, and the
next leader deletes it. A finalizer of somebody else's may keep a deleted pod, and autoscalers see it as before; such a
pod gets another condition, with which they do not. Does not wait between two tries: that is for the caller.
"""

import time
from collections.abc import Callable
from typing import Final

import attrs
import msgspec

from neuron_scheduler.errors import ApiError, FencedError, UnreachableError
from neuron_scheduler.kube.http.client import STRATEGIC_MERGE_PATCH
from neuron_scheduler.kube.objects import pod_wire, wire
from neuron_scheduler.kube.writes.leader_requests import LeaderRequests, decoded, deletion
from neuron_scheduler.kube.writes.machine_order import (
    MARKER,
    NAMESPACE,
    Asked,
    Declined,
    MachineOrder,
    Unsettled,
    Withdrawn,
    answered,
    exists,
    is_gone,
)
from neuron_scheduler.kube.writes.placeholder_pod import pod_of
from neuron_scheduler.kube.writes.pod_condition import SCHEDULER_ERROR, UNSCHEDULABLE
from neuron_scheduler.model.pod import Pod

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONDITION: Final = "This pod asks an autoscaler for a node; no scheduler places it."

KEPT: Final = "This pod is deleted, and a finalizer keeps it; it asks for no node any more."


class _Finalizers(wire.Wire):
    finalizers: list[str] | None = None


class _Deleted(wire.Wire):
    metadata: _Finalizers


_DELETED: Final = msgspec.json.Decoder(_Deleted)
_POD: Final = msgspec.json.Decoder(pod_wire.PlacedPod)


@attrs.define(eq=False, kw_only=True)
class Placeholders:
    """
    Writes placeholders.

    Attributes:
        wall_clock: Unix time in seconds, for lastTransitionTime.
    """

    requests: LeaderRequests
    wall_clock: Callable[[], float] = time.time

    async def ask(self, order: MachineOrder) -> Asked | Declined | Unsettled:
        """Create the placeholder, or find the one that an earlier try has created, and write its condition."""
        try:
            pod = await self._created(order)
            if pod.metadata.deletion_timestamp or (pod.metadata.labels or {}).get(MARKER) != "true":
                return Unsettled(f"another pod has the name {order.name}")
            await self._mark(order.name, pod.metadata.uid)
        except ApiError as error:
            return answered(error)
        except (FencedError, UnreachableError) as error:
            return Unsettled(str(error))
        except ValueError as error:
            return Declined(str(error))
        return Asked(pod.metadata.uid)

    async def withdraw(self, name: str, uid: str) -> Withdrawn | Declined | Unsettled:
        """Delete the placeholder; a pod of this name with another uid is not ours any more."""
        path = f"{PODS}/{name}"
        try:
            uid = uid or (await self.requests.read(path, _POD)).metadata.uid
            answer = await self.requests.write("DELETE", path, deletion(uid), kind="Pod")
            if decoded(answer, _DELETED).metadata.finalizers:
                await self._mark(name, uid, reason=SCHEDULER_ERROR, message=KEPT)
        except ApiError as error:
            return Withdrawn() if is_gone(error, "pods", name) else answered(error)
        except (FencedError, UnreachableError) as error:
            return Unsettled(str(error))
        return Withdrawn()

    async def found(self) -> list[Pod]:
        """Return nothing: the watch of pods shows every placeholder."""
        return []

    async def _created(self, order: MachineOrder) -> pod_wire.PlacedPod:
        try:
            return decoded(await self.requests.write("POST", PODS, pod_of(order), kind="Pod"), _POD)
        except ApiError as error:
            if not exists(error):
                raise
        return await self.requests.read(f"{PODS}/{order.name}", _POD)

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
        await self.requests.write(
            "PATCH", f"{PODS}/{name}/status", patch, kind="Pod", content_type=STRATEGIC_MERGE_PATCH
        )
