"""
What the API server does to the kinds that make pods: defaults, generated selectors, validation.

After `pkg/apis/apps` and `pkg/apis/batch`, for Deployments, ReplicaSets, DaemonSets and Jobs. What their controllers do
is in `sandbox/controllers`. StatefulSets and ReplicationControllers are only kept.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from neuron_scheduler.sandbox.apiserver import metadata, pods
from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.selectors import matches
from neuron_scheduler.sandbox.apiserver.status import FieldError, invalid_value, required
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.apiserver.workload_resources import DAEMON_SETS, DEPLOYMENTS, JOBS, REPLICA_SETS

WITH_RULES: Final = frozenset({DAEMON_SETS.plural, DEPLOYMENTS.plural, REPLICA_SETS.plural, JOBS.plural})
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
_COUNTS: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "backoffLimit",
        "completions",
        "parallelism",
        "progressDeadlineSeconds",
        "replicas",
        "revisionHistoryLimit",
        "ttlSecondsAfterFinished",
    }
)
_SHARE: Final = re.compile(r"\d+%")
_IMMUTABLE: Final = "field is immutable"


def has_rules(resource: Resource) -> bool:
    """Return whether the resource has rules here."""
    return resource.plural in WITH_RULES


def default(resource: Resource, obj: Object) -> None:
    """Set the defaults of a spec and of its pod template in place."""
    spec: dict[str, Any] = obj.setdefault("spec", {})
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pods.default(template.setdefault("spec", {}))
    if resource is JOBS:
        _default_job(spec)
        return
    if resource is DAEMON_SETS:
        strategy = spec.setdefault("updateStrategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            strategy["rollingUpdate"] = {"maxUnavailable": 1, "maxSurge": 0} | (strategy.get("rollingUpdate") or {})
        spec.setdefault("revisionHistoryLimit", 10)
        return
    spec.setdefault("replicas", 1)
    if resource is DEPLOYMENTS:
        strategy = spec.setdefault("strategy", {})
        if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)


def _default_job(spec: dict[str, Any]) -> None:
    if spec.get("parallelism") is None and spec.get("completions") is None:
        spec["completions"] = 1
    for field, value in {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "manualSelector": False,
    }.items():
        if spec.get(field) is None:
            spec[field] = value


def prepare_create(resource: Resource, obj: Object) -> None:
    """Set the defaults and drop the client's status; a Job gets labels and a selector of its own."""
    default(resource, obj)
    obj["status"] = {}
    meta, spec = obj["metadata"], obj["spec"]
    labels = spec["template"]["metadata"].get("labels")
    if resource is JOBS and not spec["manualSelector"]:
        if labels and not meta.get("labels"):
            meta["labels"] = dict(labels)
        own = {
            JOB_NAME: meta.get("name") or "",
            "job-name": meta.get("name") or "",
            CONTROLLER_UID: meta["uid"],
            "controller-uid": meta["uid"],
        }
        spec["template"]["metadata"]["labels"] = own | (labels or {})
        spec.setdefault("selector", {}).setdefault("matchLabels", {}).setdefault(CONTROLLER_UID, meta["uid"])


def validate(resource: Resource, obj: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the object."""
    spec, meta = obj["spec"], obj["metadata"]
    yield from metadata.validate(meta)
    for field in _COUNTS & spec.keys():
        if spec[field] is not None and type(spec[field]) is not int:
            raise TypeError(f"spec.{field} is {spec[field]!r}, and not an integer")
        if (spec[field] or 0) < 0:
            yield invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")
    if resource is DEPLOYMENTS:
        yield from _validate_strategy("strategy", spec["strategy"], "Recreate")
    if resource is DAEMON_SETS:
        yield from _validate_strategy("updateStrategy", spec["updateStrategy"], "OnDelete")
    template = spec["template"]
    labels = template["metadata"].get("labels") or {}
    if not spec.get("selector"):
        yield required("spec.selector")
    elif not matches(spec["selector"], labels):
        yield invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from metadata.validate_labels(labels, "spec.template.metadata.labels")
    yield from pods.validate_spec(template["spec"], "spec.template.")
    allowed = ("OnFailure", "Never") if resource is JOBS else ("Always",)
    policy = template["spec"]["restartPolicy"]
    if policy not in allowed:
        supported = ", ".join(f'"{value}"' for value in allowed)
        text = f'Unsupported value: "{policy}": supported values: {supported}'
        yield FieldError("spec.template.spec.restartPolicy", "FieldValueNotSupported", text)


def _validate_strategy(name: str, strategy: dict[str, Any], other: str) -> Iterator[FieldError]:
    if strategy["type"] not in {"RollingUpdate", other}:
        text = f'Unsupported value: "{strategy["type"]}": supported values: "{other}", "RollingUpdate"'
        yield FieldError(f"spec.{name}.type", "FieldValueNotSupported", text)
    for field, value in (strategy.get("rollingUpdate") or {}).items():
        if not isinstance(value, int) and _SHARE.fullmatch(str(value)) is None:
            text = "a valid percent string must be a numeric string followed by an ending '%'"
            yield invalid_value(f"spec.{name}.rollingUpdate.{field}", value, text)


def validate_update(resource: Resource, obj: Object, old: Object) -> Iterator[FieldError]:
    """Yield what is wrong with the new object, and what of the old one may not change."""
    yield from validate(resource, obj)
    fixed = ("selector", "completions", "template", "completionMode") if resource is JOBS else ("selector",)
    for field in fixed:
        if obj["spec"].get(field) != old["spec"].get(field):
            yield invalid_value(f"spec.{field}", obj["spec"].get(field), _IMMUTABLE)
