"""
What a DELETE does to an object before it can be gone.

After `BeforeDelete` of `k8s.io/apiserver/pkg/registry/rest` and `CheckGracefulDelete` of the pod strategy: a bound pod
is only marked, its kubelet removes it; a pod that runs nowhere is marked and removed at once, in two changes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.resources import PODS, Resource
from neuron_scheduler.sandbox.apiserver.status import conflict
from neuron_scheduler.sandbox.apiserver.store import Object


@attrs.frozen
class Deletion:
    """The object as the DELETE leaves it, or last leaves it, and whether it is then removed."""

    object: Object
    final: bool


def begun(resource: Resource, obj: Object, options: Mapping[str, Any], now: datetime) -> Deletion:
    """
    What a DELETE with these options does now. The object is returned itself where nothing of it changes.

    Raises:
        StatusError: 409, a precondition fails.
    """
    _check_preconditions(resource, obj, options.get("preconditions") or {})
    held = obj["metadata"]
    finalizers = bool(held.get("finalizers"))
    if resource is not PODS:
        marks = {"deletionTimestamp": metadata.timestamp(now), "deletionGracePeriodSeconds": 0}
        marked = obj | {"metadata": held | marks} if finalizers and "deletionTimestamp" not in held else obj
        return Deletion(marked, final=not finalizers)
    grace = _grace_period(obj, options.get("gracePeriodSeconds"))
    pending = held.get("deletionGracePeriodSeconds") if "deletionTimestamp" in held else None
    if pending is not None and (pending == 0 or grace >= pending or options.get("gracePeriodSeconds") is None):
        return Deletion(obj, final=pending == 0 and not finalizers)
    marks = {
        "deletionTimestamp": metadata.timestamp(now + timedelta(seconds=grace)),
        "deletionGracePeriodSeconds": grace,
    }
    if pending is None:
        marks["generation"] = held.get("generation", 0) + 1
    return Deletion(obj | {"metadata": held | marks}, final=grace == 0 and not finalizers)


def _check_preconditions(resource: Resource, obj: Object, preconditions: Mapping[str, Any]) -> None:
    held = obj["metadata"]
    for field, label, told in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        asked = preconditions.get(field)
        if asked and asked != held[field]:
            why = (
                f"the {label} in the precondition ({asked}) does not match the {label} in record ({held[field]}). "
                f"The object might have been {told}"
            )
            raise conflict(attrs.evolve(resource, plural=resource.kind), held["name"], why)


def _grace_period(pod: Object, asked: int | None) -> int:
    """Seconds that a pod gets to end: none where nothing runs."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return 0
    seconds = int(pod["spec"].get("terminationGracePeriodSeconds") or 0 if asked is None else asked)
    return seconds if seconds >= 0 else 1
