"""
The status of a Deployment, which `kubectl rollout status` and `kubectl wait` read.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.store import Object


def of(
    deployment: Object, replica_sets: Sequence[Object], new: Object | None, unavailable: int, now: datetime
) -> dict[str, Any]:
    """Return the status; `unavailable` is how many pods may be missing."""
    wanted, before = deployment["spec"]["replicas"], deployment.get("status") or {}
    available, total = _sum(replica_sets, "availableReplicas"), _sum(replica_sets, "replicas")
    asked = sum(replica_set["spec"]["replicas"] for replica_set in replica_sets)
    counts = {
        "replicas": total,
        "updatedReplicas": _sum([new] if new else [], "replicas"),
        "readyReplicas": _sum(replica_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(asked - available, 0),
    }
    enough = available >= wanted - unavailable
    conditions = [
        _condition(
            "Available",
            enough,
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            "Deployment has minimum availability." if enough else "Deployment does not have minimum availability.",
        )
    ]
    if progress := _progress(deployment, new, counts, now):
        conditions.append(progress)
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        **{field: count for field, count in counts.items() if count},
        "conditions": [_dated(condition, before, now) for condition in conditions],
    }


def _sum(replica_sets: Sequence[Object], field: str) -> int:
    return sum((replica_set.get("status") or {}).get(field, 0) for replica_set in replica_sets)


def _progress(deployment: Object, new: Object | None, counts: dict[str, int], now: datetime) -> dict[str, Any] | None:
    current, wanted = _find(deployment.get("status") or {}, "Progressing"), deployment["spec"]["replicas"]
    if deployment["spec"].get("paused"):
        return _condition("Progressing", None, "DeploymentPaused", "Deployment is paused")
    if new is None:
        return current
    name = f'ReplicaSet "{new["metadata"]["name"]}"'
    if counts["updatedReplicas"] == counts["replicas"] == counts["availableReplicas"] == wanted:
        return _condition("Progressing", True, "NewReplicaSetAvailable", f"{name} has successfully progressed.")
    if current is None or _moves(deployment, current, counts):
        return _condition("Progressing", True, "ReplicaSetUpdated", f"{name} is progressing.")
    waited = now - metadata.moment(current["lastUpdateTime"])
    if _is_settled(current) or waited.total_seconds() < deployment["spec"]["progressDeadlineSeconds"]:
        return current
    return _condition("Progressing", False, "ProgressDeadlineExceeded", f"{name} has timed out progressing.")


def _moves(deployment: Object, current: dict[str, Any], counts: dict[str, int]) -> bool:
    """Return whether a rollout has begun or got further. A lost pod of a completed rollout is no progress."""
    if _is_settled(current):
        return counts["updatedReplicas"] != counts["replicas"]
    before = deployment.get("status") or {}
    fields = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return any(before.get(field, 0) != counts[field] for field in fields)


def _is_settled(condition: dict[str, Any]) -> bool:
    return bool(condition["reason"] == "NewReplicaSetAvailable")


def _condition(kind: str, status: bool | None, reason: str, message: str) -> dict[str, Any]:
    text = "Unknown" if status is None else str(status)
    return {"type": kind, "status": text, "reason": reason, "message": message}


def _find(status: dict[str, Any], kind: str) -> dict[str, Any] | None:
    return next((condition for condition in status.get("conditions") or [] if condition["type"] == kind), None)


def _dated(condition: dict[str, Any], before: dict[str, Any], now: datetime) -> dict[str, Any]:
    """Return the condition with its times; one that says the same as before keeps them."""
    current = _find(before, condition["type"])
    if current is not None and all(current[field] == condition[field] for field in ("status", "reason", "message")):
        return current
    same = current is not None and current["status"] == condition["status"]
    moment = metadata.timestamp(now)
    transition = current["lastTransitionTime"] if current is not None and same else moment
    return condition | {"lastUpdateTime": moment, "lastTransitionTime": transition}
