"""
Deletes what has lost its owners, and ends deletions in the foreground and deletions that orphan.

After `pkg/controller/garbagecollector`. The API server sets the finalizers `foregroundDeletion` and `orphan`.
"""

from collections import defaultdict
from collections.abc import Iterator

import attrs

from neuron_scheduler.sandbox.apiserver.deletion import FOREGROUND, ORPHAN
from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.resources import EVENTS, RESOURCES
from neuron_scheduler.sandbox.apiserver.store import Object


@attrs.define(eq=False)
class Garbage:
    """The garbage collector."""

    registry: Registry

    def sync(self) -> None:
        """Bring every deletion one step further."""
        objects = list(self._objects())
        living = {obj["metadata"]["uid"] for _, obj in objects}
        dependents: dict[str, list[tuple[Resource, Object]]] = defaultdict(list)
        for resource, obj in objects:
            for reference in obj["metadata"].get("ownerReferences") or []:
                dependents[reference.get("uid", "")].append((resource, obj))
        for resource, obj in objects:
            finalizers = obj["metadata"].get("finalizers") or []
            owned = dependents[obj["metadata"]["uid"]]
            if ORPHAN in finalizers and "deletionTimestamp" in obj["metadata"]:
                for kind, dependent in owned:
                    self._disown(kind, dependent, obj["metadata"]["uid"])
                self._release(resource, obj, ORPHAN)
            elif FOREGROUND in finalizers:
                for kind, dependent in owned:
                    self._delete(kind, dependent, "Foreground")
                if not owned:
                    self._release(resource, obj, FOREGROUND)
        for resource, obj in objects:
            owners = obj["metadata"].get("ownerReferences") or []
            if owners and not any(reference.get("uid") in living for reference in owners):
                self._delete(resource, obj, "Background")

    def _objects(self) -> Iterator[tuple[Resource, Object]]:
        for storage, resource in {resource.storage: resource for resource in reversed(RESOURCES)}.items():
            if storage != EVENTS.storage:
                for obj in self.registry.store.objects(storage):
                    yield resource, obj

    def _delete(self, resource: Resource, obj: Object, policy: str) -> None:
        meta = obj["metadata"]
        current = self.registry.store.get(resource.storage, meta.get("namespace", ""), meta["name"])
        if current is not None and current["metadata"]["uid"] == meta["uid"] and "deletionTimestamp" not in meta:
            self.registry.delete(resource, meta.get("namespace", ""), meta["name"], {"propagationPolicy": policy})

    def _disown(self, resource: Resource, obj: Object, owner: str) -> None:
        references = [reference for reference in obj["metadata"]["ownerReferences"] if reference["uid"] != owner]
        self.registry.store.put(resource.storage, obj | {"metadata": obj["metadata"] | {"ownerReferences": references}})

    def _release(self, resource: Resource, obj: Object, finalizer: str) -> None:
        meta = obj["metadata"]
        kept = [name for name in meta["finalizers"] if name != finalizer]
        if kept:
            self.registry.store.put(resource.storage, obj | {"metadata": meta | {"finalizers": kept}})
        else:
            self.registry.store.remove(resource.storage, meta.get("namespace", ""), meta["name"])
