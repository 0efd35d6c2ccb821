"""
Owners and what they own: controller references, pods from a template, the events about both.
"""

import contextlib
import copy
from collections.abc import Mapping
from typing import Any

import attrs

from sandbox.apiserver import metadata
from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import EVENTS, PODS, Resource
from sandbox.apiserver.status import StatusError
from sandbox.apiserver.store import Object


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

    def objects(self, resource: Resource, owner: Object) -> list[Object]:
        """Return the objects whose controller is the owner."""
        namespace, uid = owner["metadata"]["namespace"], owner["metadata"]["uid"]
        return [
            obj
            for obj in self.registry.store.objects(resource.storage, namespace)
            for reference in obj["metadata"].get("ownerReferences") or []
            if reference.get("controller") and reference["uid"] == uid
        ]

    def create_pod(self, owner: Object, template: Mapping[str, Any]) -> Object | None:
        """Create a pod from a template, with an event; None if the API server refuses it."""
        meta = copy.deepcopy(dict(template.get("metadata") or {}))
        wanted = {
            "metadata": {
                "labels": meta.get("labels") or {},
                "annotations": meta.get("annotations") or {},
                "generateName": f"{owner['metadata']['name']}-",
                "ownerReferences": [reference_to(self.resource, owner)],
            },
            "spec": copy.deepcopy(template["spec"]),
        }
        try:
            pod = self.registry.create(PODS, owner["metadata"]["namespace"], wanted)
        except StatusError:
            return None
        self.record(owner, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}")
        return pod

    def delete_pod(self, owner: Object, pod: Object) -> None:
        """Delete a pod, with an event."""
        meta = pod["metadata"]
        self.registry.delete(PODS, meta["namespace"], meta["name"], {"preconditions": {"uid": meta["uid"]}})
        self.record(owner, "SuccessfulDelete", f"Deleted pod: {meta['name']}")

    def record(self, about: Object, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an event about an owner; one whose namespace has gone is dropped."""
        meta, now = about["metadata"], metadata.timestamp(self.registry.clock())
        event = {
            "metadata": {"generateName": f"{meta['name']}."},
            "involvedObject": {
                "apiVersion": self.resource.api_version,
                "kind": self.resource.kind,
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        with contextlib.suppress(StatusError):
            self.registry.create(EVENTS, meta["namespace"], event)

    def set_status(self, owner: Object, status: Mapping[str, Any]) -> None:
        """Store the status of an owner if it differs."""
        meta = owner["metadata"]
        current = self.registry.store.get(self.resource.storage, meta["namespace"], meta["name"])
        if current is not None and current["metadata"]["uid"] == meta["uid"] and current.get("status") != status:
            self.registry.store.put(self.resource.storage, current | {"status": dict(status)})
