"""
The two writes that volumes need before a pod can be bound: keep a volume for a claim, and select a node for a claim.

Each of them reads the object, checks that the decision still holds, and replaces the object under the version just
read, so that no change of another writer is lost. Users choose how deep `managedFields` are nested: the object is
written without them, and the API server keeps those that it has. A repeated write finds that the work is done. Few are
sent at once, since they share the connections of Bindings. The controllers bind the volume later.
"""

from collections.abc import Callable
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import decoded, readable
from neuron_scheduler.kube.objects.storage import CLAIMS, VOLUMES
from neuron_scheduler.model.annotations import BOUND_BY_CONTROLLER, SELECTED_NODE
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.telemetry.errors import ApiError, FencedError, UnreachableError

READ_TIMEOUT: Final = 10.0
WRITES_AT_ONCE: Final = 8

_ANSWER: Final = msgspec.json.Decoder(wire.Versioned)


@attrs.frozen
class Written:
    """The object is as decided, in this version or an earlier one."""

    resource_version: str


@attrs.frozen
class Failed:
    """The object is not as decided, or may not be; the pod needs another decision."""

    message: str


@attrs.frozen
class HeldBack:
    """Nothing was sent: this replica may not write."""


WriteOutcome = Written | Failed | HeldBack


@attrs.define(eq=False, kw_only=True)
class VolumeWriter:
    """
    Writes volumes and claims.

    Attributes:
        may_send: whether this replica may write now; called right before the first byte of a write.
        timeout: seconds for one write; with the renew deadline it must stay below the lease duration.
    """

    client: Client
    may_send: Callable[[], bool]
    timeout: float
    _limit: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(WRITES_AT_ONCE), init=False)

    async def keep(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> WriteOutcome:
        """Keep a volume for a claim; the volume controller then binds the two."""

        def change(body: bytes) -> dict[str, Any] | Written | Failed:
            stored = VOLUMES.decode(body).value
            if not isinstance(stored, PersistentVolume) or stored.uid != volume.uid or not stored.may_serve(claim):
                return Failed(f"persistentvolume {volume.name!r} no longer serves claim {claim.key!r}")
            if stored.claim is not None and stored.claim.uid:
                return Written(stored.resource_version)
            item: dict[str, Any] = msgspec.json.decode(body)
            if stored.claim is None:
                annotations = item["metadata"].get("annotations") or {}
                item["metadata"]["annotations"] = {**annotations, BOUND_BY_CONTROLLER: "yes"}
            item["spec"]["claimRef"] = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace,
                "name": claim.name,
                "uid": claim.uid,
                "resourceVersion": claim.resource_version,
            }
            return item

        return await self._replace(f"/api/v1/persistentvolumes/{volume.name}", change)

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> WriteOutcome:
        """Ask the claim's provisioner for a volume on a node."""

        def change(body: bytes) -> dict[str, Any] | Written | Failed:
            stored = CLAIMS.decode(body).value
            if (
                not isinstance(stored, PersistentVolumeClaim)
                or stored.uid != claim.uid
                or stored.selected_node not in (None, node_name)
                or (stored.volume_name and stored.selected_node is None)
            ):
                return Failed(f"persistentvolumeclaim {claim.key!r} has changed since its node was selected")
            if stored.selected_node == node_name:
                return Written(stored.resource_version)
            item: dict[str, Any] = msgspec.json.decode(body)
            annotations = item["metadata"].get("annotations") or {}
            item["metadata"]["annotations"] = {**annotations, SELECTED_NODE: node_name}
            return item

        path = f"/api/v1/namespaces/{claim.namespace}/persistentvolumeclaims/{claim.name}"
        return await self._replace(path, change)

    async def _replace(self, path: str, change: Callable[[bytes], dict[str, Any] | Written | Failed]) -> WriteOutcome:
        """Read an object and write it back changed, under the version that was read."""
        try:
            answer = await self.client.request("GET", path, timeout=READ_TIMEOUT)
            changed = change(await readable(answer.body))
            if isinstance(changed, Written | Failed):
                return changed
            changed["metadata"].pop("managedFields", None)  # without them the API server keeps those it has
            async with self._limit:
                answer = await self.client.request(
                    "PUT",
                    path,
                    body=msgspec.json.encode(changed),
                    timeout=self.timeout,
                    pool=Pool.BIND,
                    permit=self.may_send,
                )
            return await _written(answer.body)
        except FencedError:
            return HeldBack()
        except ApiError as error:
            return Failed(error.message or str(error))
        except (UnreachableError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            return Failed(str(error))


async def _written(body: bytes) -> Written:
    """Return the version in the API server's answer."""
    return Written((await decoded(body, _ANSWER)).metadata.resource_version)
