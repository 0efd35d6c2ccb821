"""
The subresource `scale`, which `kubectl scale` reads and writes: an `autoscaling/v1` Scale of a workload.
"""

from typing import Any

from neuron_scheduler.sandbox.apiserver.status import StatusError, bad_request
from neuron_scheduler.sandbox.apiserver.store import Object


def of(workload: Object) -> dict[str, Any]:
    """Return the Scale of a workload."""
    meta, spec, status = workload["metadata"], workload["spec"], workload.get("status") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = spec.get("selector") or {}
    labels = selector.get("matchLabels", selector) if isinstance(selector, dict) else {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        },
    }


def scaled(workload: Object, scale: Any) -> Object:
    """
    Return the workload with the replicas, and the precondition, of a Scale.

    Raises:
        StatusError: 400, it is no Scale; 422, fewer than no replicas.
    """
    spec = scale.get("spec") if isinstance(scale, dict) else None
    replicas = (spec or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise bad_request("a Scale has an integer in spec.replicas")
    name = workload["metadata"]["name"]
    if replicas < 0:
        why = f"spec.replicas: Invalid value: {replicas}: must be greater than or equal to 0"
        raise StatusError(422, "Invalid", f'Scale.autoscaling "{name}" is invalid: {why}')
    version = (scale.get("metadata") or {}).get("resourceVersion") or workload["metadata"]["resourceVersion"]
    changed = {"metadata": workload["metadata"] | {"resourceVersion": version}}
    return workload | changed | {"spec": workload["spec"] | {"replicas": replicas}}
