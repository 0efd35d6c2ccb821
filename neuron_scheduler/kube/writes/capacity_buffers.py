"""
CapacityBuffers: ask an autoscaler for a machine with an object of its own, where the API server serves that kind.

A machine is a PodTemplate, whose spec is that of a placeholder, and a CapacityBuffer for one pod of it; both have the
request's name. Nothing watches them: a leader reads those of the last one when it begins. Refuses to wait between two
tries: that is for the caller.
"""

from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.errors import ApiError, FencedError, UnreachableError
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.pods import PODS
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
    metadata_of,
)
from neuron_scheduler.kube.writes.placeholder_pod import spec_of
from neuron_scheduler.kube.writes.pod_condition import UNSCHEDULABLE
from neuron_scheduler.model.pod import Pod

GROUP: Final = "autoscaling.x-k8s.io"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
TEMPLATES: Final = f"/api/v1/namespaces/{NAMESPACE}/podtemplates"
NOT_SERVED: Final = (
    f"the API server does not serve CapacityBuffers ({GROUP}); install their CustomResourceDefinition, or write"
    " capacityRequests.as: Placeholders"
)


class _Version(wire.Wire):
    version: str


class _Group(wire.Wire):
    name: str
    versions: tuple[_Version, ...] = ()


class _Groups(wire.Wire):
    kind: str = ""
    groups: tuple[_Group, ...] = ()


class _Head(wire.Wire):
    metadata: wire.ObjectMeta


class _Template(wire.Wire):
    spec: msgspec.Raw


class _PodTemplate(wire.Wire):
    metadata: wire.ObjectMeta
    template: _Template


class _PodTemplates(wire.Wire):
    items: list[_PodTemplate]


SEEN_CONDITION: Final = {"type": "PodScheduled", "status": "False", "reason": UNSCHEDULABLE}
"""Of the pod that stands for a template: an autoscaler may have seen what asks."""

_GROUPS: Final = msgspec.json.Decoder(_Groups)
_HEAD: Final = msgspec.json.Decoder(_Head)
_LIST: Final = msgspec.json.Decoder(_PodTemplates)


@attrs.define(eq=False, kw_only=True)
class CapacityBuffers:
    """Writes PodTemplates and CapacityBuffers."""

    requests: LeaderRequests

    async def ask(self, order: MachineOrder) -> Asked | Declined | Unsettled:
        """Create the template and the buffer, or find those that an earlier try has created."""
        try:
            path, version = await self._served()
            if not version:
                return Declined(NOT_SERVED)
            metadata = metadata_of(order)
            template = {"metadata": {"labels": metadata["labels"]}, "spec": spec_of(order)}
            await self._created(
                TEMPLATES, "PodTemplate", {"apiVersion": "v1", "metadata": metadata, "template": template}
            )
            spec = {"podTemplateRef": {"name": order.name}, "replicas": 1}
            buffer = {"apiVersion": f"{GROUP}/{version}", "metadata": metadata, "spec": spec}
            stored = await self._created(path, "CapacityBuffer", buffer)
            if (stored.labels or {}).get(MARKER) != "true" or stored.deletion_timestamp:
                return Unsettled(f"another CapacityBuffer has the name {order.name}")
        except ApiError as error:
            return answered(error)
        except (FencedError, UnreachableError) as error:
            return Unsettled(str(error))
        except ValueError as error:
            return Declined(str(error))
        return Asked(stored.uid)

    async def withdraw(self, name: str, uid: str) -> Withdrawn | Declined | Unsettled:
        """Delete the buffer, and then the template; `uid` is that of the buffer, if it is known."""
        try:
            path, version = await self._served()
            if version:
                await self._deleted(path, "capacitybuffers", "CapacityBuffer", name, uid)
            await self._deleted(TEMPLATES, "podtemplates", "PodTemplate", name, "")
        except ApiError as error:
            return answered(error)
        except (FencedError, UnreachableError) as error:
            return Unsettled(str(error))
        return Withdrawn()

    async def found(self) -> list[Pod]:
        """
        Return what earlier leaders have asked for: each template as the pod that it describes, with the template's uid.

        It has the condition of a placeholder if there is a buffer for it. A leader may have ended between the two.

        Raises:
            ApiError, UnreachableError: they cannot be read.
        """
        listed = await self.requests.read(TEMPLATES, _LIST, labelSelector=f"{MARKER}=true")
        path, version = await self._served() if listed.items else ("", "")
        pods: list[Pod | None] = []
        for template in listed.items:
            buffer = await self._buffer(f"{path}/{template.metadata.name}") if version else None
            pods.append(_as_pod(template, buffer))
        return list(filter(None, pods))

    async def _buffer(self, path: str) -> wire.ObjectMeta | None:
        """Return a buffer's metadata; None if it is not there."""
        try:
            return (await self.requests.read(path, _HEAD)).metadata
        except ApiError as error:
            if error.refused and error.status == 404:
                return None
            raise

    async def _served(self) -> tuple[str, str]:
        """
        Return the path of the buffers and the version that is served; empty if none is.

        All groups are listed: for one that it does not serve, the API server has a 404 that a proxy may have, too.
        """
        listed = await self.requests.read("/apis", _GROUPS)
        if listed.kind != "APIGroupList":
            raise UnreachableError("the answer to GET /apis is not from an API server")
        served = {version.version for group in listed.groups if group.name == GROUP for version in group.versions}
        version = next((version for version in VERSIONS if version in served), "")
        return f"/apis/{GROUP}/{version}/namespaces/{NAMESPACE}/capacitybuffers", version

    async def _created(self, path: str, kind: str, body: dict[str, Any]) -> wire.ObjectMeta:
        try:
            stored = decoded(await self.requests.write("POST", path, {"kind": kind, **body}, kind=kind), _HEAD)
        except ApiError as error:
            if not exists(error):
                raise
            stored = await self.requests.read(f"{path}/{body['metadata']['name']}", _HEAD)
        return stored.metadata

    async def _deleted(self, path: str, plural: str, kind: str, name: str, uid: str) -> None:
        try:
            uid = uid or (await self.requests.read(f"{path}/{name}", _HEAD)).metadata.uid
            await self.requests.write("DELETE", f"{path}/{name}", deletion(uid), kind=kind)
        except ApiError as error:
            if not is_gone(error, plural, name):
                raise


def _as_pod(template: _PodTemplate, buffer: wire.ObjectMeta | None) -> Pod | None:
    """Return a template as a pod, which autoscalers see if there is a buffer for it; None if it cannot be read."""
    metadata = {"name": template.metadata.name, "namespace": NAMESPACE, "uid": template.metadata.uid}
    times = {
        "creationTimestamp": template.metadata.creation_timestamp,
        "deletionTimestamp": None if buffer is None else buffer.deletion_timestamp,
    }
    written = {name: time for name, time in times.items() if time is not None}
    described = {**metadata, **written, "labels": template.metadata.labels or {}}
    status = {} if buffer is None else {"conditions": [SEEN_CONDITION]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": described, "spec": template.template.spec, "status": status}
    value = PODS.decode(msgspec.json.encode(pod)).value
    return value if isinstance(value, Pod) else None
