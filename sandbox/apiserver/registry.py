"""
The verbs on stored objects: create, update, patch, delete, bind. No HTTP, no waiting.

Each verb is one synchronous step, so the event loop serialises writes as etcd's transactions do. Objects that
come in are owned by the call; objects that go out are the stored values and must not be mutated.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import attrs

from sandbox.apiserver import binding, claims, deletion, events, metadata, patch, pods, workloads
from sandbox.apiserver.resources import (
    CLAIMS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCES,
    Resource,
)
from sandbox.apiserver.status import (
    FieldError,
    already_exists,
    bad_request,
    invalid,
    invalid_value,
    not_found,
)
from sandbox.apiserver.store import Object, Store

INITIAL_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


@attrs.define(eq=False)
class Registry:
    """What can be done to the objects of a store. Refusals are raised as `StatusError`."""

    store: Store
    clock: Callable[[], datetime] = metadata.now

    def __attrs_post_init__(self) -> None:
        for name in INITIAL_NAMESPACES:
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """Return the object; 404 if there is none."""
        obj = self.store.get(resource.storage, namespace, name)
        if obj is None:
            raise not_found(resource, name)
        return obj

    def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Write a new object. 400, 403, 404 for an absent namespace, 409 if it exists, 422."""
        metadata.of(body)
        try:
            obj = self._new(resource, namespace, body)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _unreadable(resource, error) from error
        key = (namespace, obj["metadata"]["name"])
        if self.store.get(resource.storage, *key) is not None:
            raise already_exists(resource, key[1])
        return self.store.put(resource.storage, obj)

    def update(self, resource: Resource, namespace: str, name: str, body: Object, *, subresource: str = "") -> Object:
        """Replace an object. 400, 404, 409, 422."""
        given = metadata.of(body)
        if given.get("name") not in {None, "", name}:
            raise bad_request("the name of the object does not match the name on the URL")
        old = self.store.get(resource.storage, namespace, name)
        if old is None:
            raise not_found(resource, name)
        if not given.get("resourceVersion") and not resource.unconditional_update:
            problem = invalid_value("metadata.resourceVersion", "", "must be specified for an update")
            raise invalid(resource, name, [problem])
        return self._replace(resource, old, body, subresource=subresource)

    def patch(
        self, resource: Resource, namespace: str, name: str, change: Any, *, media_type: str, subresource: str = ""
    ) -> Object:
        """Change an object. 400, 404, 409, 415, 422."""
        old = self.get(resource, namespace, name)
        new = patch.patched(self.view(resource, old), change, media_type)
        metadata.of(new)
        return self._replace(resource, old, copy.deepcopy(new), subresource=subresource)

    def delete(self, resource: Resource, namespace: str, name: str, options: Mapping[str, Any]) -> Object:
        """
        Delete an object. A bound pod stays, terminating, until its kubelet confirms; finalizers hold any object. 404,
        409 when a precondition fails.
        """
        old = self.get(resource, namespace, name)
        marked, is_final = deletion.begun(resource, old, options, self.clock())
        if marked is not old:
            marked = self.store.put(resource.storage, marked)
        if not is_final:
            return marked
        if resource is NAMESPACES:
            self._empty(name)
        return self._gone(resource, namespace, name)

    def bind(self, namespace: str, name: str, body: Mapping[str, Any]) -> None:
        """Carry out a Binding. 400, 404, 409, and 500 if it names no node."""
        node = self.store.get(NODES.storage, "", binding.target_node(body, name))
        pod = binding.bound(self.get(PODS, namespace, name), body, node=node, now=self.clock())
        self.store.put(PODS.storage, pod)

    def view(self, resource: Resource, obj: Object) -> Object:
        """Return a stored object as this resource shows it."""
        return events.view(resource, obj) if resource.storage == EVENTS.storage else obj

    def _new(self, resource: Resource, namespace: str, body: Object) -> Object:
        obj = events.stored_form(resource, body) if resource.storage == EVENTS.storage else dict(body)
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        now = self.clock()
        metadata.prepare_create(resource, namespace, obj, now)
        if resource.namespaced and self.store.get(NAMESPACES.storage, "", namespace) is None:
            raise not_found(NAMESPACES, namespace)
        if resource is PODS:
            pods.prepare_create(obj, now)
        elif resource is NAMESPACES:
            obj["status"] = {"phase": "Active"}
        elif resource is NODES:
            obj.setdefault("spec", {})
            obj.setdefault("status", {})
        elif workloads.has_rules(resource):
            workloads.prepare_create(resource, obj)
        if resource.generation:
            obj["metadata"]["generation"] = 1
        errors = list(self._validate(resource, obj))
        if errors:
            raise invalid(resource, obj["metadata"].get("name") or "", errors)
        if resource is PODS:
            pods.admit_priority(obj, self.store)
        return obj

    def _replace(self, resource: Resource, old: Object, body: Object, *, subresource: str) -> Object:
        try:
            new = self._next(resource, old, body, subresource)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _unreadable(resource, error) from error
        if new == old:
            return new
        meta = new["metadata"]
        ended = meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds")
        if ended and not meta.get("finalizers"):
            return self._gone(resource, meta.get("namespace", ""), meta["name"])
        return self.store.put(resource.storage, new)

    def _next(self, resource: Resource, old: Object, body: Object, subresource: str) -> Object:
        new = events.stored_form(resource, body) if resource.storage == EVENTS.storage else dict(body)
        new["apiVersion"], new["kind"] = old["apiVersion"], old["kind"]
        metadata.prepare_update(resource, new, old)
        if "status" in resource.subresources:
            restored = "spec" if subresource == "status" else "status"
            new.pop(restored, None)
            if restored in old:
                new[restored] = old[restored]
        if resource is PODS:
            errors = list(pods.validate_update(new, old))
        elif resource is CLAIMS:
            errors = list(claims.validate_update(new, old))
        elif workloads.has_rules(resource):
            workloads.default(resource, new)
            errors = list(workloads.validate_update(resource, new, old))
        else:
            errors = list(self._validate(resource, new))
        if errors:
            raise invalid(resource, old["metadata"]["name"], errors)
        if resource.generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        return new

    def _validate(self, resource: Resource, obj: Object) -> Iterator[FieldError]:
        if resource is PODS:
            return pods.validate(obj)
        if resource.storage == EVENTS.storage:
            return events.validate(resource, obj)
        if resource is LEASES:
            return _validate_lease(obj)
        if workloads.has_rules(resource):
            return workloads.validate(resource, obj)
        return metadata.validate(obj["metadata"], label_name=resource is NAMESPACES)

    def _gone(self, resource: Resource, namespace: str, name: str) -> Object:
        last = self.store.remove(resource.storage, namespace, name)
        if last is None:
            raise not_found(resource, name)
        return last

    def _empty(self, namespace: str) -> None:
        for storage in {resource.storage for resource in RESOURCES if resource.namespaced}:
            for obj in self.store.objects(storage, namespace):
                self.store.remove(storage, namespace, obj["metadata"]["name"])


def _unreadable(resource: Resource, error: Exception) -> Exception:
    kind = resource.kind
    text = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {type(error).__name__}: {error}'
    return bad_request(text)


def _validate_lease(lease: Object) -> Iterator[FieldError]:
    yield from metadata.validate(lease["metadata"])
    spec = lease.get("spec") or {}
    for field in ("acquireTime", "renewTime"):
        if spec.get(field) is not None and not metadata.is_micro_time(spec[field]):
            layout = "2006-01-02T15:04:05.000000Z07:00"
            raise ValueError(f'parsing time "{spec[field]}" as "{layout}"')
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if (spec.get("leaseTransitions") or 0) < 0:
        yield invalid_value("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0")
