"""
Tables: what `kubectl get` prints, which the server decides.

After `pkg/printers/internalversion/printers.go`, for the kinds that people look at here. A column of priority 1 is
shown with `-o wide` only.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs

from sandbox.apiserver.store import Object

Cell: TypeAlias = Callable[[Object, datetime], Any]


@attrs.frozen
class Column:
    """One column: its heading, what it shows of a stored object, and its priority."""

    name: str
    cell: Cell
    priority: int = 0

    def definition(self) -> dict[str, Any]:
        """Return the column as the Table declares it."""
        shape = "name" if self.name == "Name" else ""
        return {"name": self.name, "type": "string", "format": shape, "description": "", "priority": self.priority}


def human_duration(elapsed: timedelta) -> str:
    """Return a duration as kubectl's AGE shows it (`HumanDuration` of apimachinery)."""
    seconds = max(int(elapsed.total_seconds()), 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    steps = (
        (120, f"{seconds}s"),
        (600, f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")),
        (3 * 3600, f"{minutes}m"),
        (8 * 3600, f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")),
        (48 * 3600, f"{hours}h"),
        (8 * 86400, f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")),
    )
    return next((text for limit, text in steps if seconds < limit), f"{days}d")


def name(obj: Object, _: datetime) -> str:
    """Return the name."""
    return str(obj["metadata"]["name"])


def since(text: str | None, now: datetime) -> str:
    """Return the time since a timestamp, as kubectl shows it."""
    return human_duration(now - datetime.fromisoformat(text)) if text else "<unknown>"


def age(obj: Object, now: datetime) -> str:
    """Return the time since the creation."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def at(*path: str, absent: str = "<none>") -> Cell:
    """Return a cell with the value at a path."""

    def cell(obj: Object, _: datetime) -> Any:
        value: Any = obj
        for step in path:
            value = (value or {}).get(step)
        return absent if value is None or value == "" else value

    return cell


NAME: Final = Column("Name", name)
AGE: Final = Column("Age", age)


def _ready_of_wanted(workload: Object, _: datetime) -> str:
    return f"{(workload.get('status') or {}).get('readyReplicas', 0)}/{workload['spec'].get('replicas', 1)}"


def _job_status(job: Object, _: datetime) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    return next((condition["type"] for condition in conditions if condition["status"] == "True"), "Running")


def _completions(job: Object, _: datetime) -> str:
    spec = job["spec"]
    return f"{(job.get('status') or {}).get('succeeded', 0)}/{spec.get('completions') or spec['parallelism']}"


def _duration(job: Object, now: datetime) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    if not status.get("completionTime"):
        return since(status["startTime"], now)
    elapsed = datetime.fromisoformat(status["completionTime"]) - datetime.fromisoformat(status["startTime"])
    return human_duration(elapsed)


def render(
    plural: str, objects: Iterable[Object], *, now: datetime, include: str, definitions: bool = True
) -> dict[str, Any]:
    """Return a Table of stored objects. `include` is the query's `includeObject`: `Metadata` or `Object`."""
    columns = COLUMNS.get(plural, _PLAIN)
    rows = [
        {"cells": [column.cell(obj, now) for column in columns], "object": _row_object(obj, include)} for obj in objects
    ]
    table: dict[str, Any] = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "rows": rows}
    table["columnDefinitions"] = [column.definition() for column in columns] if definitions else None
    return table


def _row_object(obj: Object, include: str) -> Any:
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _pod_statuses(pod: Object) -> list[Mapping[str, Any]]:
    return list(pod.get("status", {}).get("containerStatuses") or [])


def _pod_ready(pod: Object, _: datetime) -> str:
    return f"{sum(bool(status.get('ready')) for status in _pod_statuses(pod))}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Object, _: datetime) -> str:
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for state in (container["state"] for container in _pod_statuses(pod)):
        if reason := (state.get("waiting") or state.get("terminated") or {}).get("reason"):
            return str(reason)
    if any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or []):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _pod_restarts(pod: Object, _: datetime) -> str:
    return str(sum(status.get("restartCount", 0) for status in _pod_statuses(pod)))


def _node_status(node: Object, _: datetime) -> str:
    conditions = node.get("status", {}).get("conditions") or []
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), None)
    text = {"True": "Ready", "False": "NotReady"}.get(str(ready), "Unknown" if ready is None else "NotReady")
    return text + (",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else "")


def _node_roles(node: Object, _: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _address(node: Object, _: datetime) -> str:
    addresses = node.get("status", {}).get("addresses") or []
    return next((address["address"] for address in addresses if address["type"] == "InternalIP"), "<none>")


def _node_info(field: str) -> Cell:
    return at("status", "nodeInfo", field, absent="<unknown>")


def _last_seen(event: Object, now: datetime) -> str:
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return since(text or event["metadata"].get("creationTimestamp"), now)


def _event_count(event: Object, _: datetime) -> str:
    return str((event.get("series") or {}).get("count") or event.get("count") or 1)


def _about(event: Object, _: datetime) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_PLAIN: Final = (NAME, AGE)
COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", at("status", "podIP"), 1),
        Column("Node", at("spec", "nodeName"), 1),
        Column("Nominated Node", at("status", "nominatedNodeName"), 1),
        Column("Readiness Gates", lambda _, __: "<none>", 1),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _node_info("kubeletVersion")),
        Column("Internal-IP", _address, 1),
        Column("External-IP", lambda _, __: "<none>", 1),
        Column("OS-Image", _node_info("osImage"), 1),
        Column("Kernel-Version", _node_info("kernelVersion"), 1),
        Column("Container-Runtime", _node_info("containerRuntimeVersion"), 1),
    ),
    "namespaces": (NAME, Column("Status", at("status", "phase")), AGE),
    "events": (
        Column("Last Seen", _last_seen),
        Column("Type", at("type", absent="")),
        Column("Reason", at("reason", absent="")),
        Column("Object", _about),
        Column("Source", at("reportingComponent", absent=""), 1),
        Column("Message", lambda event, _: str(event.get("message", "")).strip()),
        Column("Count", _event_count, 1),
        Column("Name", name, 1),
    ),
    "leases": (NAME, Column("Holder", at("spec", "holderIdentity", absent="")), AGE),
    "deployments": (
        NAME,
        Column("Ready", _ready_of_wanted),
        Column("Up-to-date", at("status", "updatedReplicas", absent="0")),
        Column("Available", at("status", "availableReplicas", absent="0")),
        AGE,
    ),
    "jobs": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _completions),
        Column("Duration", _duration),
        AGE,
    ),
}
"""The columns of a kind by its plural; any other kind has name and age."""
