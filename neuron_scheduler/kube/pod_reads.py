"""
Read how a pod has failed.

The watch leaves ended pods out: a failed pod arrives as deleted, in the state *before* its failure. So the API server
is asked for the pod at the version of that event. A pod that was really deleted does not exist then.
"""

from typing import Final

import attrs
import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.json_scanner import decode_in_steps
from neuron_scheduler.kube.objects.wire import Identity, Wire
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.errors import UnreachableError

TIMEOUT: Final = 10.0


@attrs.frozen
class Failure:
    """`status.reason` and `status.message` of a pod in phase Failed."""

    reason: str
    message: str


class _Status(Wire):
    phase: str | None = None
    reason: str | None = None
    message: str | None = None


class _Pod(Wire):
    metadata: Identity
    status: _Status = msgspec.field(default_factory=_Status)


class _Pods(Wire):
    items: list[_Pod] | None


_PODS: Final = msgspec.json.Decoder(_Pods)


async def failure_of(client: Client, pod: Pod, version: str) -> Failure | None:
    """
    Return how the pod had failed at a version of the watch; None if it had not failed or did not exist.

    Raises:
        ApiError, UnreachableError: as the client; the version may be compacted after some minutes (410).
    """
    params = {
        "fieldSelector": f"metadata.name={pod.name}",
        "resourceVersion": version,
        "resourceVersionMatch": "Exact",
    }
    answer = await client.request("GET", f"/api/v1/namespaces/{pod.namespace}/pods", params=params, timeout=TIMEOUT)
    try:
        pods = await decode_in_steps(answer.body, _PODS)
    except (ValueError, RecursionError) as error:
        raise UnreachableError(f"the answer cannot be read: {error}") from error
    for item in pods.items or ():
        if item.metadata.uid == pod.uid and item.status.phase == "Failed":
            return Failure(item.status.reason or "", item.status.message or "")
    return None
