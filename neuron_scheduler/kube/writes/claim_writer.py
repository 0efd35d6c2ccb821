"""
The writes to a claim: its finalizer, its devices with a reservation, and giving both back.

Each names uid and version, because a write without a version is unconditional. A merge patch of the status leaves the
bytes of opaque parameters alone; the finalizer's patch does not pass where a client wrote them with blanks, and then
the object is put as it was read (Kubernetes compares these bytes). Upstream: `bindClaim` in
`plugins/dynamicresources/dynamicresources.go`.
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
from neuron_scheduler.model.devices import PROTECTION, ResourceClaim
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError

WRITES_AT_ONCE: Final = 16
_ANSWER: Final = msgspec.json.Decoder(wire.Versioned)
_CONFLICT: Final = 409
_INVALID: Final = 422
_ERROR: Final = 500


@attrs.frozen
class ClaimWritten:
    """The claim is as decided, in this version."""

    resource_version: str


@attrs.frozen
class ClaimFailed:
    """
    The claim is not as decided, or may not be.

    Attributes:
        is_stale: somebody else has changed it since.
        is_open: the write may have been carried out, or may be carried out later.
    """

    message: str
    is_stale: bool = False
    is_open: bool = False


@attrs.define(eq=False, kw_only=True)
class ClaimWriter:
    """Writes claims; `timeout` is in seconds, of one request."""

    client: Client
    timeout: float
    wall_clock: Callable[[], float] = time.time
    _limit: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(WRITES_AT_ONCE), init=False)

    async def protect(self, claim: ResourceClaim) -> ClaimWritten | ClaimFailed:
        """Add the finalizer."""
        metadata = {**_precondition(claim), "finalizers": [*claim.finalizers, PROTECTION]}
        try:
            return await self._send("PATCH", _path(claim), {"metadata": metadata})
        except ApiError as error:
            if error.status != _INVALID:
                return _failure_of(error)
        except (UnreachableError, ValueError, RecursionError) as error:
            return _failure_of(error)
        return await self._put_protected(claim)

    async def _put_protected(self, claim: ResourceClaim) -> ClaimWritten | ClaimFailed:
        """Put the whole object as Python's client writes it: with blanks, by which the parameters are stored."""
        try:
            answer = await self.client.request("GET", _path(claim), timeout=self.timeout)
            stored = json.loads(answer.body)
            if stored["metadata"]["uid"] != claim.uid:
                return ClaimFailed("it is another claim of the same name by now", is_stale=True)
            stored["metadata"]["finalizers"] = [*stored["metadata"].get("finalizers", ()), PROTECTION]
            return await self._send("PUT", _path(claim), json.dumps(stored).encode(), JSON)
        except (ApiError, UnreachableError, ValueError, RecursionError, KeyError) as error:
            return _failure_of(error)

    async def allocate(
        self, claim: ResourceClaim, allocation: Mapping[str, Any] | None, pod: Pod
    ) -> ClaimWritten | ClaimFailed:
        """Give a claim devices, unless that is None, and reserve it for a pod."""
        users = [{"resource": "pods", "name": pod.name, "uid": pod.uid}]
        if claim.reserved_for:
            return await self._reserve(claim, users)
        status: dict[str, Any] = {"reservedFor": users}
        if allocation is not None:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.wall_clock()))
            status["allocation"] = {**allocation, "allocationTimestamp": now}
        return await self._patch_status(claim, status)

    async def _reserve(self, claim: ResourceClaim, users: Sequence[Mapping[str, str]]) -> ClaimWritten | ClaimFailed:
        """Add a reservation to those that are there, whose names only the stored object has."""
        try:
            answer = await self.client.request("GET", _path(claim), timeout=self.timeout)
            stored = json.loads(answer.body)
        except (ApiError, UnreachableError, ValueError, RecursionError) as error:
            return _failure_of(error)
        if stored["metadata"]["uid"] != claim.uid or "allocation" not in stored.get("status", {}):
            return ClaimFailed("it has no devices any more", is_stale=True)
        reserved = stored["status"].get("reservedFor", [])
        current = attrs.evolve(claim, resource_version=stored["metadata"]["resourceVersion"])
        return await self._patch_status(current, {"reservedFor": [*reserved, *users]})

    async def take_back(self, claim: ResourceClaim) -> ClaimWritten | ClaimFailed:
        """Take a claim's devices and reservations back."""
        return await self._patch_status(claim, {"allocation": None, "reservedFor": None})

    async def _patch_status(self, claim: ResourceClaim, status: Mapping[str, Any]) -> ClaimWritten | ClaimFailed:
        body = {"metadata": _precondition(claim), "status": status}
        try:
            return await self._send("PATCH", f"{_path(claim)}/status", body)
        except (ApiError, UnreachableError, ValueError, RecursionError) as error:
            return _failure_of(error)

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any] | bytes, content_type: str = MERGE_PATCH
    ) -> ClaimWritten:
        async with self._limit:
            answer = await self.client.request(
                method,
                path,
                body=body if isinstance(body, bytes) else msgspec.json.encode(body),
                content_type=content_type,
                timeout=self.timeout,
                pool=Pool.BIND,
            )
        return ClaimWritten((await decode_in_steps(answer.body, _ANSWER)).metadata.resource_version)


def _path(claim: ResourceClaim) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{claim.namespace}/resourceclaims/{claim.name}"


def _precondition(claim: ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.uid, "resourceVersion": claim.resource_version}


def _failure_of(error: Exception) -> ClaimFailed:
    if not isinstance(error, ApiError):
        return ClaimFailed(str(error), is_open=True)
    is_open = not error.is_status or error.status >= _ERROR
    is_stale = error.is_status and error.status == _CONFLICT
    return ClaimFailed(error.message or str(error), is_stale=is_stale, is_open=is_open)
