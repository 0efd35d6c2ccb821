"""
The writes to a claim: its finalizer, its devices with a reservation, and giving both back.

Each names uid and version, because a write without a version is unconditional. A merge patch of the status leaves the
bytes of opaque parameters alone; the finalizer's patch does not pass where a client wrote them with blanks, and then
the object is put as it was read (Kubernetes compares these bytes). Upstream: `bindClaim` in
`plugins/dynamicresources/dynamicresources.go`; as there, parameters of classes come before those of claims.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import JSON, MERGE_PATCH, Client
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import decode_in_steps
from neuron_scheduler.model.devices import PROTECTION, ClaimWrite, DeviceKey, DeviceRequest, ResourceClaim
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError

WRITES_AT_ONCE: Final = 16
_ANSWER: Final = msgspec.json.Decoder(wire.Versioned)
_CONFLICT: Final = 409
_INVALID: Final = 422
_ERROR: Final = 500


@attrs.frozen
class ClaimFailed:
    """
    The claim is not as decided, or may not be.

    Attributes:
        status: what the API server answers; 0 without an answer of its own.
    """

    message: str
    status: int = 0

    @property
    def is_unsure(self) -> bool:
        """Whether the watch will tell: somebody has changed the claim, or the write may be carried out, even later."""
        return self.status == _CONFLICT or not 0 < self.status < _ERROR


@attrs.define(eq=False, kw_only=True)
class ClaimWriter:
    """Writes claims, and returns the version of each; `timeout` is in seconds, of one request."""

    client: Client
    timeout: float
    wall_clock: Callable[[], float] = time.time
    _limit: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(WRITES_AT_ONCE), init=False)

    async def protect(self, claim: ResourceClaim) -> int | ClaimFailed:
        """Add the finalizer."""
        metadata = {**_precondition(claim), "finalizers": [*claim.finalizers, PROTECTION]}
        patched = await self._send("PATCH", _path(claim), {"metadata": metadata})
        if not isinstance(patched, ClaimFailed) or patched.status != _INVALID:
            return patched
        try:
            stored = json.loads((await self.client.request("GET", _path(claim), timeout=self.timeout)).body)
            stored["metadata"] |= metadata
        except (ApiError, UnreachableError, ValueError, RecursionError, KeyError) as error:
            return _failure_of(error)
        # As Python's client writes it: with blanks, by which the parameters are stored.
        return await self._send("PUT", _path(claim), json.dumps(stored).encode(), JSON)

    async def allocate(self, claim: ResourceClaim, write: ClaimWrite, pod: Pod) -> int | ClaimFailed:
        """Give a claim its devices, unless it has them, and reserve it for a pod."""
        users = {**claim.reserved_for, pod.uid: pod.name}
        reservations = [{"resource": "pods", "name": name, "uid": uid} for uid, name in users.items()]
        status: dict[str, Any] = {"reservedFor": reservations}
        if claim.allocation is None:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall_clock()))
            status["allocation"] = {**_allocation(write), "allocationTimestamp": now}
        return await self._patch_status(claim, status)

    async def take_back(self, claim: ResourceClaim) -> int | ClaimFailed:
        """Take a claim's devices and reservations back."""
        return await self._patch_status(claim, {"allocation": None, "reservedFor": None})

    async def _patch_status(self, claim: ResourceClaim, status: Mapping[str, Any]) -> int | ClaimFailed:
        return await self._send("PATCH", f"{_path(claim)}/status", {"metadata": _precondition(claim), "status": status})

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | bytes, content_type: str = MERGE_PATCH
    ) -> int | ClaimFailed:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        try:
            async with self._limit:
                answer = await self.client.request(
                    method, path, body=content, content_type=content_type, timeout=self.timeout, pool=Pool.BIND
                )
            return int((await decode_in_steps(answer.body, _ANSWER)).metadata.resource_version)
        except (ApiError, UnreachableError, ValueError, RecursionError) as error:
            return _failure_of(error)


def _path(claim: ResourceClaim) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"


def _precondition(claim: ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.uid, "resourceVersion": claim.resource_version}


def _failure_of(error: Exception) -> ClaimFailed:
    if not isinstance(error, ApiError):
        return ClaimFailed(str(error))
    return ClaimFailed(error.message or str(error), error.status if error.is_status else 0)


def _allocation(write: ClaimWrite) -> Mapping[str, Any]:
    """Return a claim's `status.allocation`, without the time."""
    requests = dict.fromkeys(request for request, _ in write.results)
    config = [
        *(_config("FromClass", (request.name,), opaque) for request in requests for opaque in request.class_config),
        *(_config("FromClaim", each.requests, each.opaque) for each in write.claim.config),
    ]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [write.node_name]}]}
    return {
        "devices": {"results": [_result(*each) for each in write.results], "config": config},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }


def _config(source: str, requests: Sequence[str], opaque: bytes) -> Mapping[str, Any]:
    return {"source": source, "requests": requests, "opaque": msgspec.Raw(opaque)}


def _result(request: DeviceRequest, key: DeviceKey) -> Mapping[str, Any]:
    tolerations = msgspec.Raw(request.tolerations_json or b"[]")
    named = {"request": request.name, "driver": key.driver, "pool": key.pool, "device": key.name}
    return named | {"tolerations": tolerations}
