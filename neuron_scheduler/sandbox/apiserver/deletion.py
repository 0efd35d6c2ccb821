"""
What a DELETE does to an object before the object is removed.

After `BeforeDelete` of `k8s.io/apiserver/pkg/registry/rest` and `CheckGracefulDelete` of the pod strategy: a bound pod
is only marked, its kubelet removes it; a pod that runs nowhere is marked and removed at once, in two changes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.resources import PODS
from neuron_scheduler.sandbox.apiserver.status import conflict
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.apiserver.workload_resources import JOBS, REPLICATION_CONTROLLERS

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_BY_POLICY: Final = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
_ORPHANING: Final = (JOBS, REPLICATION_CONTROLLERS)


@attrs.frozen
class Deletion:
    """The object as the DELETE leaves it, and whether it is then removed."""

    object: Object
    final: bool


def begun(resource: Resource, obj: Object, options: Mapping[str, Any], now: datetime) -> Deletion:
    """
    Return what a DELETE with these options does now; the object itself if nothing in it changes.

    Raises:
        StatusError: 409, a precondition fails.
    """
    _check_preconditions(resource, obj, options.get("preconditions") or {})
    meta = obj["metadata"]
    if resource is not PODS:
        return _marked(obj, _finalizers(resource, obj, options), now)
    finalizers = bool(meta.get("finalizers"))
    grace = _grace_period(obj, options.get("gracePeriodSeconds"))
    pending = meta.get("deletionGracePeriodSeconds") if "deletionTimestamp" in meta else None
    if pending is not None and (pending == 0 or grace >= pending or options.get("gracePeriodSeconds") is None):
        return Deletion(obj, final=pending == 0 and not finalizers)
    marks = {
        "deletionTimestamp": metadata.timestamp(now + timedelta(seconds=grace)),
        "deletionGracePeriodSeconds": grace,
    }
    if pending is None:
        marks["generation"] = meta.get("generation", 0) + 1
    return Deletion(obj | {"metadata": meta | marks}, final=grace == 0 and not finalizers)


def _marked(obj: Object, finalizers: list[str], now: datetime) -> Deletion:
    meta = obj["metadata"]
    if not finalizers:
        return Deletion(obj, final=True)
    if "deletionTimestamp" in meta and finalizers == meta.get("finalizers"):
        return Deletion(obj, final=False)
    marks = {"deletionTimestamp": metadata.timestamp(now), "deletionGracePeriodSeconds": 0, "finalizers": finalizers}
    return Deletion(obj | {"metadata": marks | meta | {"finalizers": finalizers}}, final=False)


def _finalizers(resource: Resource, obj: Object, options: Mapping[str, Any]) -> list[str]:
    """Return the finalizers with that of the propagation policy; without a policy, a Job leaves its pods behind."""
    policy = options.get("propagationPolicy") or ("Orphan" if resource in _ORPHANING else "Background")
    kept = [name for name in obj["metadata"].get("finalizers") or [] if name not in _BY_POLICY.values()]
    return [*kept, *([_BY_POLICY[policy]] if policy in _BY_POLICY else [])]


def _check_preconditions(resource: Resource, obj: Object, preconditions: Mapping[str, Any]) -> None:
    meta = obj["metadata"]
    for field, label, cause in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        asked = preconditions.get(field)
        if asked and asked != meta[field]:
            why = (
                f"the {label} in the precondition ({asked}) does not match the {label} in record ({meta[field]}). "
                f"The object might have been {cause}"
            )
            raise conflict(attrs.evolve(resource, plural=resource.kind), meta["name"], why)


def _grace_period(pod: Object, asked: int | None) -> int:
    """Return the seconds that a pod gets to end: none if nothing runs."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return 0
    seconds = int(pod["spec"].get("terminationGracePeriodSeconds") or 0 if asked is None else asked)
    return seconds if seconds >= 0 else 1
