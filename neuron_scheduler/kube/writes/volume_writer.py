"""
The two writes that volumes need before a pod can be bound: keep a volume for a claim, and select a node for a claim.

Each patches the object that the watch shows, if the decision still holds there. The version is a precondition, so no
change of another writer is lost: the pod is then decided again, as after a lost answer. Few are sent at once, since
they share the connections of Bindings.
"""

from collections.abc import Callable
from typing import Any, Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import MERGE_PATCH, Client
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import decode_in_steps
from neuron_scheduler.kube.writes.binder import Fenced, Refused
from neuron_scheduler.model.annotations import BOUND_BY_CONTROLLER, SELECTED_NODE
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.telemetry.errors import ApiError, FencedError, UnreachableError

WRITES_AT_ONCE: Final = 8

_ANSWER: Final = msgspec.json.Decoder(wire.Versioned)


@attrs.define(eq=False, kw_only=True)
class VolumeWriter:
    """
    Writes volumes and claims.

    A write returns the version in which, or before which, the object is as decided. `Refused` says that it is not, or
    may not be, and `Fenced` that nothing was sent: the pod needs another decision.

    Attributes:
        volume_by_name, claim_by_key: return an object as the watch shows it, by its name or key; None for none.
        may_bind: whether this replica may write now; called right before the first byte of a write.
        timeout: seconds for one write; with the renew deadline it must stay below the lease duration.
    """

    client: Client
    volume_by_name: Callable[[str], PersistentVolume | None]
    claim_by_key: Callable[[str], PersistentVolumeClaim | None]
    may_bind: Callable[[], bool]
    timeout: float
    _limit: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(WRITES_AT_ONCE), init=False)

    async def keep(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> int | Refused | Fenced:
        """Keep a volume for a claim; the volume controller then binds the two."""
        stored = self.volume_by_name(volume.name)
        if stored is None or stored.uid != volume.uid or not stored.may_serve(claim):
            return Refused(0, f"persistentvolume {volume.name!r} no longer serves claim {claim.key!r}")
        if stored.claim is not None and stored.claim.uid:
            return int(stored.resource_version)
        annotations = {BOUND_BY_CONTROLLER: "yes"} if stored.claim is None else {}
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
            "resourceVersion": claim.resource_version,
        }
        path = f"/api/v1/persistentvolumes/{volume.name}"
        return await self._patch(path, stored, annotations, spec={"claimRef": reference})

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> int | Refused | Fenced:
        stored = self.claim_by_key(claim.key)
        if (
            stored is None
            or stored.uid != claim.uid
            or stored.selected_node not in (None, node_name)
            or (stored.volume_name and stored.selected_node is None)
        ):
            return Refused(0, f"persistentvolumeclaim {claim.key!r} has changed since its node was selected")
        if stored.selected_node == node_name:
            return int(stored.resource_version)
        path = f"/api/v1/namespaces/{claim.namespace}/persistentvolumeclaims/{claim.name}"
        return await self._patch(path, stored, {SELECTED_NODE: node_name})

    async def _patch(
        self,
        path: str,
        stored: PersistentVolume | PersistentVolumeClaim,
        annotations: dict[str, str],
        **fields: dict[str, Any],
    ) -> int | Refused | Fenced:
        metadata = {"uid": stored.uid, "resourceVersion": stored.resource_version, "annotations": annotations}
        try:
            async with self._limit:
                answer = await self.client.request(
                    "PATCH",
                    path,
                    body=msgspec.json.encode({"metadata": metadata, **fields}),
                    content_type=MERGE_PATCH,
                    timeout=self.timeout,
                    pool=Pool.BIND,
                    permit=self.may_bind,
                )
            return int((await decode_in_steps(answer.body, _ANSWER)).metadata.resource_version)
        except FencedError:
            return Fenced()
        except ApiError as error:
            return Refused(0, error.message or str(error))
        except (UnreachableError, ValueError, RecursionError) as error:
            return Refused(0, str(error))
