"""
What a DELETE does to an object before the object is removed.

After `BeforeDelete` of `k8s.io/apiserver/pkg/registry/rest` and `CheckGracefulDelete` of the pod strategy: a bound pod
is only marked, its kubelet removes it; a pod that runs nowhere is marked and removed at once, in two changes. A
`propagationPolicy` has no effect: what is owned is collected in the background.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from sandbox.apiserver import metadata
from sandbox.apiserver.resources import PODS, Resource
from sandbox.apiserver.status import conflict
from sandbox.apiserver.store import Object


def begun(resource: Resource, obj: Object, options: Mapping[str, Any], now: datetime) -> tuple[Object, bool]:
    """
    Return the object as a DELETE leaves it now, itself if nothing in it changes, and whether it goes.

    Raises:
        StatusError: 409, a precondition fails.
    """
    _check_preconditions(resource, obj, options.get("preconditions") or {})
    meta = obj["metadata"]
    if resource is not PODS:
        return _marked(obj, now)
    finalizers = bool(meta.get("finalizers"))
    grace = _grace_period(obj, options.get("gracePeriodSeconds"))
    pending = meta.get("deletionGracePeriodSeconds") if "deletionTimestamp" in meta else None
    if pending is not None and (pending == 0 or grace >= pending or options.get("gracePeriodSeconds") is None):
        return obj, pending == 0 and not finalizers
    marks = {
        "deletionTimestamp": metadata.timestamp(now + timedelta(seconds=grace)),
        "deletionGracePeriodSeconds": grace,
    }
    if pending is None:
        marks["generation"] = meta.get("generation", 0) + 1
    return obj | {"metadata": meta | marks}, grace == 0 and not finalizers


def _marked(obj: Object, now: datetime) -> tuple[Object, bool]:
    meta = obj["metadata"]
    if not meta.get("finalizers"):
        return obj, True
    marks = {"deletionTimestamp": metadata.timestamp(now), "deletionGracePeriodSeconds": 0}
    return obj if "deletionTimestamp" in meta else obj | {"metadata": meta | marks}, False


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
