"""
Tables: what `kubectl get` prints, which the server decides.

After `pkg/printers/internalversion/printers.go`, for the kinds served here. A column of priority 1 is shown with
`-o wide` only.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import attrs

from neuron_scheduler.sandbox.apiserver.store import Object

_Cell: TypeAlias = Callable[[Object, datetime], Any]


@attrs.frozen
class Column:
    """One column: its heading, what it shows of a stored object, and its priority."""

    name: str
    cell: _Cell
    priority: int = 0
    type: str = "string"

    def definition(self) -> dict[str, Any]:
        """Return the column as the Table declares it."""
        shape = "name" if self.name == "Name" else ""
        return {"name": self.name, "type": self.type, "format": shape, "description": "", "priority": self.priority}


def render(
    plural: str, objects: Iterable[Object], *, now: datetime, include: str, definitions: bool = True
) -> dict[str, Any]:
    """Return a Table of stored objects. `include` is the query's `includeObject`: `Metadata`, `Object` or `None`."""
    columns = COLUMNS.get(plural, _PLAIN)
    rows = [
        {"cells": [column.cell(obj, now) for column in columns], "object": _row_object(obj, include)} for obj in objects
    ]
    table: dict[str, Any] = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "rows": rows}
    table["columnDefinitions"] = [column.definition() for column in columns] if definitions else None
    return table


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


def _row_object(obj: Object, include: str) -> Any:
    if include == "None":
        return None
    if include == "Object":
        return obj
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _name(obj: Object, _: datetime) -> str:
    return str(obj["metadata"]["name"])


def _since(text: str | None, now: datetime) -> str:
    return human_duration(now - datetime.fromisoformat(text)) if text else "<unknown>"


def _age(obj: Object, now: datetime) -> str:
    return _since(obj["metadata"].get("creationTimestamp"), now)


def _at(*path: str, absent: str = "<none>") -> _Cell:
    def cell(obj: Object, _: datetime) -> Any:
        value: Any = obj
        for step in path:
            value = (value or {}).get(step)
        return absent if value is None or value == "" else value

    return cell


def _pod_statuses(pod: Object) -> list[Mapping[str, Any]]:
    return list(pod.get("status", {}).get("containerStatuses") or [])


def _pod_ready(pod: Object, _: datetime) -> str:
    return f"{sum(bool(status.get('ready')) for status in _pod_statuses(pod))}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Object, _: datetime) -> str:
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if any(condition.get("reason") == "SchedulingGated" for condition in status.get("conditions") or []):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _pod_restarts(pod: Object, _: datetime) -> str:
    return str(sum(status.get("restartCount", 0) for status in _pod_statuses(pod)))


def _gates(pod: Object, _: datetime) -> str:
    gates = pod["spec"].get("readinessGates")
    return f"0/{len(gates)}" if gates else "<none>"


def _node_status(node: Object, _: datetime) -> str:
    conditions = node.get("status", {}).get("conditions") or []
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), None)
    text = {"True": "Ready", "False": "NotReady"}.get(str(ready), "Unknown" if ready is None else "NotReady")
    return text + (",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else "")


def _node_roles(node: Object, _: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))) or "<none>"


def _address(kind: str) -> _Cell:
    def cell(node: Object, _: datetime) -> str:
        addresses = node.get("status", {}).get("addresses") or []
        return next((address["address"] for address in addresses if address["type"] == kind), "<none>")

    return cell


def _node_info(field: str) -> _Cell:
    return _at("status", "nodeInfo", field, absent="<unknown>")


def _last_seen(event: Object, now: datetime) -> str:
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return _since(text or event["metadata"].get("creationTimestamp"), now)


def _first_seen(event: Object, now: datetime) -> str:
    return _since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_count(event: Object, _: datetime) -> str:
    return str((event.get("series") or {}).get("count") or event.get("count") or 1)


def _about(event: Object, _: datetime) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


_NAME: Final = Column("Name", _name)
_AGE: Final = Column("Age", _age)
_PLAIN: Final = (_NAME, _AGE)
COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "pods": (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        _AGE,
        Column("IP", _at("status", "podIP"), 1),
        Column("Node", _at("spec", "nodeName"), 1),
        Column("Nominated Node", _at("status", "nominatedNodeName"), 1),
        Column("Readiness Gates", _gates, 1),
    ),
    "nodes": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _node_info("kubeletVersion")),
        Column("Internal-IP", _address("InternalIP"), 1),
        Column("External-IP", _address("ExternalIP"), 1),
        Column("OS-Image", _node_info("osImage"), 1),
        Column("Kernel-Version", _node_info("kernelVersion"), 1),
        Column("Container-Runtime", _node_info("containerRuntimeVersion"), 1),
    ),
    "namespaces": (_NAME, Column("Status", _at("status", "phase")), _AGE),
    "events": (
        Column("Last Seen", _last_seen),
        Column("Type", _at("type", absent="")),
        Column("Reason", _at("reason", absent="")),
        Column("Object", _about),
        Column("Subobject", _at("involvedObject", "fieldPath", absent=""), 1),
        Column("Source", _at("reportingComponent", absent=""), 1),
        Column("Message", lambda event, _: str(event.get("message", "")).strip()),
        Column("First Seen", _first_seen, 1),
        Column("Count", _event_count, 1),
        Column("Name", _name, 1),
    ),
    "leases": (_NAME, Column("Holder", _at("spec", "holderIdentity", absent="")), _AGE),
    "configmaps": (
        _NAME,
        Column("Data", lambda config_map, _: len(config_map.get("data") or {}), type="integer"),
        _AGE,
    ),
    "priorityclasses": (
        _NAME,
        Column("Value", _at("value"), type="integer"),
        Column("Global-Default", lambda priority_class, _: bool(priority_class.get("globalDefault")), type="boolean"),
        _AGE,
        Column("PreemptionPolicy", _at("preemptionPolicy", absent="PreemptLowerPriority")),
    ),
}


def utc_now() -> datetime:
    """Return the moment against which ages are shown."""
    return datetime.now(UTC)
