"""
The status of a pod as its kubelet reports it: running, ready or not, restarted, ended.
"""

import copy
from datetime import datetime
from typing import Any

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.store import Object


def creating(pod: Object) -> Object:
    """Return a copy of a bound pod whose containers do not run yet."""
    pod = copy.deepcopy(pod)
    _set_containers(pod, {"waiting": {"reason": "ContainerCreating"}}, is_ready=False)
    return pod


def running(pod: Object, address: str, now: datetime, *, is_ready: bool = True, restarts: int = 0) -> Object:
    """Return a copy of a bound pod with all its containers running."""
    pod, moment = copy.deepcopy(pod), metadata.timestamp(now)
    status: dict[str, Any] = pod["status"]
    status |= {
        "phase": "Running",
        "startTime": status.get("startTime") or moment,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
    }
    _set_conditions(status, {"PodReadyToStartContainers": True, "Initialized": True}, moment)
    _set_conditions(status, {"Ready": is_ready, "ContainersReady": is_ready}, moment)
    _set_containers(pod, {"running": {"startedAt": moment}}, is_ready=is_ready, restarts=restarts)
    return pod


def backing_off(pod: Object, exit_code: int, seconds: float, now: datetime, *, restarts: int) -> Object:
    """Return a copy of a pod whose containers have ended and will be started again after a time."""
    pod, moment = copy.deepcopy(pod), metadata.timestamp(now)
    _set_conditions(pod["status"], {"Ready": False, "ContainersReady": False}, moment)
    _set_containers(pod, _terminated(pod, exit_code, now), is_ready=False)
    message = f"back-off {seconds:.0f}s restarting failed container"
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    _set_containers(pod, state, is_ready=False, restarts=restarts)
    return pod


def ended(pod: Object, exit_code: int, now: datetime) -> Object:
    """Return a copy of a pod whose containers have ended for good."""
    pod, moment = copy.deepcopy(pod), metadata.timestamp(now)
    pod["status"]["phase"] = "Failed" if exit_code else "Succeeded"
    kinds = {"Ready": False, "ContainersReady": False}
    _set_conditions(pod["status"], kinds, moment, reason="PodFailed" if exit_code else "PodCompleted")
    _set_containers(pod, _terminated(pod, exit_code, now), is_ready=False)
    return pod


def restarts(pod: Object) -> int:
    """Return how often the pod's containers were restarted."""
    statuses = pod["status"].get("containerStatuses") or []
    return max((status["restartCount"] for status in statuses), default=0)


def _terminated(pod: Object, exit_code: int, now: datetime) -> dict[str, Any]:
    moment = metadata.timestamp(now)
    reason = "Error" if exit_code else "Completed"
    started = pod["status"].get("startTime") or moment
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": moment}}


def _set_conditions(status: dict[str, Any], kinds: dict[str, bool], moment: str, *, reason: str = "") -> None:
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    for kind, holds in kinds.items():
        if conditions.get(kind, {}).get("status") != str(holds):
            condition = {"type": kind, "status": str(holds), "lastProbeTime": None, "lastTransitionTime": moment}
            conditions[kind] = condition | ({"reason": reason} if reason else {})
    status["conditions"] = list(conditions.values())


def _set_containers(pod: Object, state: dict[str, Any], *, is_ready: bool, restarts: int | None = None) -> None:
    status = pod["status"]
    before = {found["name"]: found for found in status.get("containerStatuses") or []}
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "containerID": f"simulated://{pod['metadata']['uid']}-{container['name']}",
            "ready": is_ready,
            "started": "running" in state,
            "restartCount": _restart_count(before.get(container["name"]), restarts),
            "lastState": _last_state(before.get(container["name"]), state),
            "state": _kept(before.get(container["name"]), state),
        }
        for container in pod["spec"]["containers"]
    ]


def _restart_count(before: dict[str, Any] | None, restarts: int | None) -> int:
    return restarts if restarts is not None else int(before["restartCount"]) if before else 0


def _last_state(before: dict[str, Any] | None, state: dict[str, Any]) -> dict[str, Any]:
    """Return the last end: the present state if that is one, else what was the last end so far."""
    if before is None:
        return {}
    replaced = "terminated" in before["state"] and "terminated" not in state
    return dict(before["state"] if replaced else before["lastState"])


def _kept(before: dict[str, Any] | None, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state; a container that keeps running keeps its start."""
    both_run = before is not None and "running" in state and "running" in before["state"]
    return dict(before["state"]) if before is not None and both_run else state
