"""
Owners and what they own: controller references, pods from a template, the events about both.
"""

import copy
from collections.abc import Mapping
from typing import Any

import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.resources import EVENTS, PODS
from neuron_scheduler.sandbox.apiserver.selectors import matches
from neuron_scheduler.sandbox.apiserver.status import StatusError
from neuron_scheduler.sandbox.apiserver.store import Object


def controller_of(obj: Object) -> Mapping[str, Any] | None:
    """Return the owner reference of the object's controller."""
    for reference in obj["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            return dict(reference)
    return None


def reference_to(resource: Resource, owner: Object) -> dict[str, Any]:
    """Return the owner reference of a controller."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_active(pod: Object) -> bool:
    """Return whether a pod neither has ended nor is being deleted."""
    return not is_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def is_ended(pod: Object) -> bool:
    """Return whether a pod has succeeded or failed."""
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_ready(pod: Object) -> bool:
    """Return whether a pod's condition says that it is ready."""
    conditions = pod["status"].get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@attrs.frozen
class Owned:
    """What one controller does to the objects that it owns; `component` is its name in events."""

    registry: Registry
    resource: Resource
    component: str

    def objects(self, resource: Resource, owner: Object, *, adopt: bool = True) -> list[Object]:
        """Return the owner's objects; adopt those that its selector selects and that have no controller."""
        meta, selected = owner["metadata"], []
        for obj in self.registry.store.objects(resource.storage, meta["namespace"]):
            reference = controller_of(obj)
            if reference is None and adopt and "deletionTimestamp" not in meta and self._adoptable(obj, owner):
                obj = self._adopt(resource, obj, owner)  # noqa: PLW2901 - the adopted object takes its place
                reference = controller_of(obj)
            if reference is not None and reference["uid"] == meta["uid"]:
                selected.append(obj)
        return selected

    def create_pod(self, owner: Object, template: Mapping[str, Any], *, prefix: str = "") -> Object | None:
        """Create a pod from a template, with an event; None if the API server refuses it."""
        meta = copy.deepcopy(dict(template.get("metadata") or {}))
        wanted = {
            "metadata": {
                "labels": meta.get("labels") or {},
                "annotations": meta.get("annotations") or {},
                "generateName": f"{prefix or owner['metadata']['name']}-",
                "ownerReferences": [reference_to(self.resource, owner)],
            },
            "spec": copy.deepcopy(template["spec"]),
        }
        try:
            pod = self.registry.create(PODS, owner["metadata"]["namespace"], wanted)
        except StatusError as error:
            self.record(owner, "FailedCreate", f"Error creating: {error.message}", warning=True)
            return None
        self.record(owner, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        return pod

    def delete_pod(self, owner: Object, pod: Object) -> None:
        """Delete a pod, with an event."""
        meta = pod["metadata"]
        self.registry.delete(PODS, meta["namespace"], meta["name"], {"preconditions": {"uid": meta["uid"]}})
        self.record(owner, "SuccessfulDelete", f"Deleted pod: {meta['name']}")

    def record(self, about: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an event about an object."""
        record(
            self.registry,
            self.resource,
            about,
            component=self.component,
            reason=reason,
            message=message,
            warning=warning,
        )

    def set_status(self, owner: Object, status: Mapping[str, Any]) -> None:
        """Store the status of an owner if it differs."""
        meta = owner["metadata"]
        current = self.registry.store.get(self.resource.storage, meta["namespace"], meta["name"])
        if current is not None and current["metadata"]["uid"] == meta["uid"] and current.get("status") != status:
            self.registry.store.put(self.resource.storage, current | {"status": dict(status)})

    def _adoptable(self, obj: Object, owner: Object) -> bool:
        meta = obj["metadata"]
        labels = meta.get("labels") or {}
        return bool(labels) and "deletionTimestamp" not in meta and matches(owner["spec"]["selector"], labels)

    def _adopt(self, resource: Resource, obj: Object, owner: Object) -> Object:
        references = [*(obj["metadata"].get("ownerReferences") or []), reference_to(self.resource, owner)]
        return self.registry.store.put(
            resource.storage, obj | {"metadata": obj["metadata"] | {"ownerReferences": references}}
        )


def record(
    registry: Registry,
    resource: Resource,
    about: Object,
    *,
    component: str,
    reason: str,
    message: str,
    warning: bool = False,
) -> None:
    """Write an event; one about an object that no longer has a namespace is dropped."""
    meta, now = about["metadata"], registry.clock()
    namespace = meta.get("namespace") or "default"
    event = {
        "metadata": {"generateName": f"{meta['name']}."},
        "involvedObject": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": meta["name"],
            "namespace": namespace,
            "uid": meta["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": metadata.timestamp(now),
        "lastTimestamp": metadata.timestamp(now),
        "count": 1,
    }
    try:
        registry.create(EVENTS, namespace, event)
    except StatusError as error:
        if error.code != 404:
            raise
