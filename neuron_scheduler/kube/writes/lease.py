"""Read and write the Lease by which replicas exclude each other; `leader_elector` decides who may hold it."""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final, Self, TypeVar

import attrs
import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.http.status import status_error
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import decode_in_steps
from neuron_scheduler.model.annotations import EXTENDER_ADDRESS
from neuron_scheduler.model.selectors import NO_LABELS
from neuron_scheduler.telemetry.errors import UnreachableError

_OF_OTHERS: Final = ("labels", "finalizers", "ownerReferences")
"""What others may write into `metadata`. With the `uid` in it, a Lease that was deleted could not be written again."""
T = TypeVar("T")


class _Spec(wire.Wire):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: dt.datetime | None = None
    renew_time: dt.datetime | None = None
    lease_transitions: int | None = None


class _Lease(wire.Wire):
    metadata: dict[str, Any]
    spec: _Spec | None = None


_LEASE: Final = msgspec.json.Decoder(_Lease)
_EVENT: Final = msgspec.json.Decoder(wire.Event)
_STATUS: Final = msgspec.json.Decoder(wire.Status)


@attrs.frozen
class Record:
    """
    A Lease as it was read, or as it is to be.

    Attributes:
        holder: empty if nobody holds it.
        duration: for how many seconds after its last change it is held.
        acquired, renewed: for people; no decision depends on them.
        resource_version: of the object read; a write of this record fails if the object has changed since.
        annotations, metadata: what others have written there; a write keeps it.
    """

    holder: str
    duration: int
    acquired: dt.datetime | None = None
    renewed: dt.datetime | None = None
    transitions: int = 0
    resource_version: str = ""
    annotations: Mapping[str, str] = NO_LABELS
    metadata: Mapping[str, Any] = attrs.field(factory=dict, eq=False)

    @property
    def extender_address(self) -> str:
        """The URL of the holder's extender; empty if it serves none, or if nobody holds the Lease."""
        return self.annotations.get(EXTENDER_ADDRESS, "") if self.holder else ""

    def with_extender_address(self, url: str) -> Self:
        """Return the record with the URL of the holder's extender; without any if it is empty."""
        others = {key: value for key, value in self.annotations.items() if key != EXTENDER_ADDRESS}
        return attrs.evolve(self, annotations={**others, EXTENDER_ADDRESS: url} if url else others)


@attrs.define(eq=False, kw_only=True)
class LeaseClient:
    """
    One Lease of one namespace, over connections of its own.

    Every call raises ApiError or UnreachableError; `within` is its limit in seconds.
    """

    client: Client
    namespace: str = "kube-system"
    name: str = "my-scheduler"

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def _collection(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def get(self, *, within: float) -> Record:
        answer = await self.client.request("GET", f"{self._collection}/{self.name}", timeout=within, pool=Pool.LEASE)
        return _as_record(await _read(answer.body, _LEASE))

    async def create(self, record: Record, *, within: float) -> Record:
        return await self._write("POST", self._collection, record, within)

    async def update(self, record: Record, *, within: float) -> Record:
        """Replace the Lease; 409 if it has changed since the record's version was read."""
        return await self._write("PUT", f"{self._collection}/{self.name}", record, within)

    async def watch(self, resource_version: str, on_change: Callable[[Record | None], bool], *, seconds: int) -> None:
        """Call `on_change` with every state (None: deleted) until it returns True, or for so many seconds."""
        params = {
            "watch": "1",
            "fieldSelector": f"metadata.name={self.name}",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
        }
        stream = self.client.stream(self._collection, params=params, read_timeout=seconds + 5.0, pool=Pool.LEASE)
        async with stream as lines:
            while line := await lines.next():
                event = await _read(line, _EVENT)
                if event.type == "ERROR":
                    raise status_error(await _read(event.object, _STATUS))
                if on_change(None if event.type == "DELETED" else _as_record(await _read(event.object, _LEASE))):
                    return

    async def _write(self, method: str, path: str, record: Record, within: float) -> Record:
        body = encode(record, namespace=self.namespace, name=self.name)
        answer = await self.client.request(method, path, body=body, timeout=within, pool=Pool.LEASE)
        return _as_record(await _read(answer.body, _LEASE))


def encode(record: Record, *, namespace: str, name: str) -> bytes:
    """Return the Lease on the wire; as by client-go, `strategy` and `preferredHolder` are left out."""
    metadata: dict[str, object] = {**record.metadata, "namespace": namespace, "name": name}
    if record.resource_version:
        metadata["resourceVersion"] = record.resource_version
    if record.annotations:
        metadata["annotations"] = record.annotations
    spec: dict[str, object] = {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration,
        "leaseTransitions": record.transitions,
    }
    if record.acquired is not None:
        spec["acquireTime"] = format_micro_time(record.acquired)
    if record.renewed is not None:
        spec["renewTime"] = format_micro_time(record.renewed)
    return msgspec.json.encode(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    )


def _as_record(lease: _Lease) -> Record:
    """Return the record; UnreachableError without a version: a write would replace the Lease of any holder."""
    metadata, spec = lease.metadata, lease.spec or _Spec()
    version = metadata.get("resourceVersion", "")
    if not version:
        raise UnreachableError("the Lease cannot be read: it has no resourceVersion")
    return Record(
        holder=spec.holder_identity or "",
        duration=spec.lease_duration_seconds or 0,
        acquired=spec.acquire_time,
        renewed=spec.renew_time,
        transitions=spec.lease_transitions or 0,
        resource_version=version,
        annotations=metadata.get("annotations") or NO_LABELS,
        metadata={key: metadata[key] for key in _OF_OTHERS if key in metadata},
    )


async def _read(text: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return what an answer, or a line of a watch, says; raise UnreachableError if it is something else."""
    try:
        return await decode_in_steps(text, decoder)
    except (ValueError, RecursionError) as error:
        raise UnreachableError(f"the Lease cannot be read: {error}") from error


def format_micro_time(moment: dt.datetime) -> str:
    """Return a MicroTime: UTC, with six digits of fraction."""
    return f"{moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
