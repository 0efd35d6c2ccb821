"""
What the API server does to the kinds that make pods: defaults, a Job's labels and selector, validation.

After `pkg/apis/apps` and `pkg/apis/batch`, for Deployments, ReplicaSets and Jobs, as far as their controllers
(`sandbox/controllers`) need it. The other kinds are only kept.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.apiserver import metadata, pods
from sandbox.apiserver.resources import DEPLOYMENTS, JOBS, REPLICA_SETS, Resource
from sandbox.apiserver.status import FieldError, invalid_value, required
from sandbox.apiserver.store import Object

WITH_RULES: Final = frozenset({DEPLOYMENTS.plural, REPLICA_SETS.plural, JOBS.plural})
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    DEPLOYMENTS.plural: {"replicas": 1, "strategy": {"type": "RollingUpdate"}},
    REPLICA_SETS.plural: {"replicas": 1},
    JOBS.plural: {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False},
}
_COUNTS: Final = ("backoffLimit", "completions", "parallelism", "replicas")


def has_rules(resource: Resource) -> bool:
    """Return whether the resource has rules here."""
    return resource.plural in WITH_RULES


def default(resource: Resource, obj: Object) -> None:
    """Set the defaults of a spec and of its pod template in place."""
    spec: dict[str, Any] = obj.setdefault("spec", {})
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pods.default(template.setdefault("spec", {}))
    if resource is JOBS and spec.get("parallelism") is None and spec.get("completions") is None:
        spec["completions"] = 1
    for field, value in _DEFAULTS[resource.plural].items():
        if spec.get(field) is None:
            spec[field] = copy.copy(value)


def prepare_create(resource: Resource, obj: Object) -> None:
    """Set the defaults and drop the client's status; a Job gets labels and a selector of its own."""
    default(resource, obj)
    obj["status"] = {}
    meta, spec = obj["metadata"], obj["spec"]
    if resource is JOBS:
        name = meta.get("name") or ""
        own = {JOB_NAME: name, "job-name": name, CONTROLLER_UID: meta["uid"], "controller-uid": meta["uid"]}
        labels = spec["template"]["metadata"]
        labels["labels"] = own | (labels.get("labels") or {})
        spec.setdefault("selector", {}).setdefault("matchLabels", {}).setdefault(CONTROLLER_UID, meta["uid"])


def scale_of(obj: Object) -> Object:
    """Return the subresource `scale` of an object with replicas."""
    meta, labels = obj["metadata"], (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")},
        "spec": {"replicas": obj["spec"]["replicas"]},
        "status": {"replicas": (obj.get("status") or {}).get("replicas", 0), "selector": selector},
    }


def validate(resource: Resource, obj: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the object."""
    spec, template = obj["spec"], obj["spec"]["template"]
    yield from metadata.validate(obj["metadata"])
    for field in _COUNTS:
        if not isinstance(spec.get(field) or 0, int):
            raise TypeError(f"spec.{field} is {spec[field]!r}, and not an integer")
        if (spec.get(field) or 0) < 0:
            yield invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    labels = template["metadata"].get("labels") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if not spec.get("selector"):
        yield required("spec.selector")
    elif not wanted.items() <= labels.items():
        yield invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from pods.validate_spec(template["spec"], "spec.template.")
    policy = template["spec"]["restartPolicy"]
    if (policy == "Always") is (resource is JOBS):
        yield invalid_value("spec.template.spec.restartPolicy", policy, "Unsupported value")


def validate_update(resource: Resource, obj: Object, old: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the new object, and what of the old one may not change."""
    yield from validate(resource, obj)
    for field in ("selector", "completions", "template") if resource is JOBS else ("selector",):
        if obj["spec"].get(field) != old["spec"].get(field):
            yield invalid_value(f"spec.{field}", obj["spec"].get(field), "field is immutable")
