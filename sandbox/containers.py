"""
Simulated containers: how long they run, and what the status of their pod says then, as a kubelet reports it.

Nothing is executed. Containers run without end, but those of a pod with `restartPolicy: Never` or `OnFailure` that
belongs to a Job, which end after `JOB_SECONDS`, or that has the annotation `sandbox/run-seconds`. Their exit code is 0,
or that of the annotation `sandbox/exit-code`. None is started again.
"""

import copy
from datetime import datetime
from typing import Any, Final

import attrs

from sandbox.apiserver import metadata
from sandbox.apiserver.store import Object

RUN_SECONDS: Final = "sandbox/run-seconds"
EXIT_CODE: Final = "sandbox/exit-code"
JOB_SECONDS: Final = 2.0


@attrs.frozen
class Run:
    """Seconds until the containers end, None for never, and their exit code."""

    seconds: float | None
    exit_code: int = 0


def run_of(pod: Object) -> Run:
    """Return how the containers of a pod run."""
    meta = pod["metadata"]
    annotations = meta.get("annotations") or {}
    of_job = any(reference.get("kind") == "Job" for reference in meta.get("ownerReferences") or [])
    if pod["spec"]["restartPolicy"] == "Always" or not (of_job or RUN_SECONDS in annotations):
        return Run(None)
    try:
        seconds, code = float(annotations.get(RUN_SECONDS, JOB_SECONDS)), int(annotations.get(EXIT_CODE, 0))
    except ValueError:
        return Run(None)
    return Run(seconds if 0 <= seconds < float("inf") else None, code)


def creating(pod: Object) -> Object:
    """Return a copy of a bound pod whose containers do not run yet."""
    pod = copy.deepcopy(pod)
    _set_containers(pod, {"waiting": {"reason": "ContainerCreating"}}, is_ready=False)
    return pod


def running(pod: Object, address: str, now: datetime, *, is_ready: bool = True) -> Object:
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
    _set_containers(pod, {"running": {"startedAt": status["startTime"]}}, is_ready=is_ready)
    return pod


def crashed(pod: Object, exit_code: int, now: datetime) -> Object:
    """Return a copy of a pod whose containers have ended by themselves and wait for another start."""
    pod, moment = copy.deepcopy(pod), metadata.timestamp(now)
    kinds = {"Ready": False, "ContainersReady": False}
    _set_conditions(pod["status"], kinds, moment, reason="ContainersNotReady")
    last = _terminated(pod, exit_code, now)
    for status in pod["status"].get("containerStatuses") or []:
        status |= {"lastState": last, "restartCount": status["restartCount"] + 1}
    _set_containers(pod, {"waiting": {"reason": "CrashLoopBackOff"}}, is_ready=False)
    return pod


def ended(pod: Object, exit_code: int, now: datetime) -> Object:
    """Return a copy of a pod whose containers have ended for good."""
    pod, moment = copy.deepcopy(pod), metadata.timestamp(now)
    pod["status"]["phase"] = "Failed" if exit_code else "Succeeded"
    kinds = {"Ready": False, "ContainersReady": False}
    _set_conditions(pod["status"], kinds, moment, reason="PodFailed" if exit_code else "PodCompleted")
    _set_containers(pod, _terminated(pod, exit_code, now), is_ready=False)
    return pod


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


def _set_containers(pod: Object, state: dict[str, Any], *, is_ready: bool) -> None:
    status = pod["status"]
    before = {one["name"]: one for one in status.get("containerStatuses") or []}
    none = {"restartCount": 0, "lastState": {}}
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "containerID": f"simulated://{pod['metadata']['uid']}-{container['name']}",
            "ready": is_ready,
            "started": "running" in state,
            **{field: before.get(container["name"], none)[field] for field in none},
            "state": state,
        }
        for container in pod["spec"]["containers"]
    ]
