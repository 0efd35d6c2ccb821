"""
Deletes what has lost its owners, in the background.

After `pkg/controller/garbagecollector`. Neither the foreground nor orphans: a `propagationPolicy` has no effect.
"""

import attrs

from sandbox.apiserver.registry import Registry
from sandbox.apiserver.resources import EVENTS, RESOURCES


@attrs.define(eq=False)
class Garbage:
    """The garbage collector."""

    registry: Registry

    def sync(self) -> None:
        """Delete each object all of whose owners have gone."""
        store = self.registry.store
        tables = {resource.storage: resource for resource in reversed(RESOURCES) if resource.storage != EVENTS.storage}
        objects = [(resource, obj) for storage, resource in tables.items() for obj in store.objects(storage)]
        living = {obj["metadata"]["uid"] for _, obj in objects}
        for resource, obj in objects:
            meta = obj["metadata"]
            owners = meta.get("ownerReferences") or []
            if owners and "deletionTimestamp" not in meta and not any(owner.get("uid") in living for owner in owners):
                self.registry.delete(resource, meta.get("namespace", ""), meta["name"], {})
