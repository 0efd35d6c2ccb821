"""
The columns of workloads and of the kinds around them, as `kubectl get` prints them.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from neuron_scheduler.sandbox.apiserver.columns import AGE, NAME, Cell, Column, at, human_duration, since
from neuron_scheduler.sandbox.apiserver.store import Object


def _count(*path: str) -> Cell:
    return at(*path, absent="0")


def _ready_of_wanted(workload: Object, _: datetime) -> str:
    return f"{(workload.get('status') or {}).get('readyReplicas', 0)}/{workload['spec'].get('replicas', 1)}"


def _containers(field: str) -> Cell:
    def cell(workload: Object, _: datetime) -> str:
        return ",".join(container.get(field, "") for container in workload["spec"]["template"]["spec"]["containers"])

    return cell


def _selector(*path: str) -> Cell:
    def cell(obj: Object, _: datetime) -> str:
        value: Any = obj
        for step in path:
            value = (value or {}).get(step)
        return ",".join(f"{key}={text}" for key, text in sorted((value or {}).items())) or "<none>"

    return cell


def _job_status(job: Object, _: datetime) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    held = {condition["type"] for condition in conditions if condition["status"] == "True"}
    for kind, text in (
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ):
        if kind in held:
            return text
    return "Terminating" if job["metadata"].get("deletionTimestamp") else "Running"


def _completions(job: Object, _: datetime) -> str:
    succeeded, spec = (job.get("status") or {}).get("succeeded", 0), job["spec"]
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 1)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(job: Object, now: datetime) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    if not status.get("completionTime"):
        return since(status["startTime"], now)
    elapsed = datetime.fromisoformat(status["completionTime"]) - datetime.fromisoformat(status["startTime"])
    return human_duration(elapsed)


def _ports(service: Object, _: datetime) -> str:
    ports = service["spec"].get("ports") or []
    return ",".join(
        f"{port['port']}{':' + str(port['nodePort']) if 'nodePort' in port else ''}/{port.get('protocol', 'TCP')}"
        for port in ports
    )


def _with_containers(*columns: Column) -> tuple[Column, ...]:
    """Return the columns of a kind with a pod template, those that `-o wide` adds included."""
    wide = (
        Column("Containers", _containers("name"), 1),
        Column("Images", _containers("image"), 1),
        Column("Selector", _selector("spec", "selector", "matchLabels"), 1),
    )
    return (NAME, *columns, AGE, *wide)


WORKLOAD_COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "deployments": _with_containers(
        Column("Ready", _ready_of_wanted),
        Column("Up-to-date", _count("status", "updatedReplicas")),
        Column("Available", _count("status", "availableReplicas")),
    ),
    "replicasets": _with_containers(
        Column("Desired", _count("spec", "replicas")),
        Column("Current", _count("status", "replicas")),
        Column("Ready", _count("status", "readyReplicas")),
    ),
    "daemonsets": _with_containers(
        Column("Desired", _count("status", "desiredNumberScheduled")),
        Column("Current", _count("status", "currentNumberScheduled")),
        Column("Ready", _count("status", "numberReady")),
        Column("Up-to-date", _count("status", "updatedNumberScheduled")),
        Column("Available", _count("status", "numberAvailable")),
        Column("Node Selector", _selector("spec", "template", "spec", "nodeSelector")),
    ),
    "jobs": _with_containers(
        Column("Status", _job_status),
        Column("Completions", _completions),
        Column("Duration", _duration),
    ),
    "services": (
        NAME,
        Column("Type", at("spec", "type", absent="ClusterIP")),
        Column("Cluster-IP", at("spec", "clusterIP")),
        Column("External-IP", lambda _, __: "<none>"),
        Column("Port(s)", _ports),
        AGE,
        Column("Selector", _selector("spec", "selector"), 1),
    ),
    "poddisruptionbudgets": (
        NAME,
        Column("Min Available", at("spec", "minAvailable", absent="N/A")),
        Column("Max Unavailable", at("spec", "maxUnavailable", absent="N/A")),
        Column("Allowed Disruptions", _count("status", "disruptionsAllowed")),
        AGE,
    ),
    "networkpolicies": (NAME, Column("Pod-Selector", _selector("spec", "podSelector", "matchLabels")), AGE),
}
