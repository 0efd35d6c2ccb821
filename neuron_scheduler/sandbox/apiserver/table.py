"""
Tables: what `kubectl get` prints, which the server decides.

After `pkg/printers/internalversion/printers.go`, for the kinds served here. A column of priority 1 is shown with
`-o wide` only.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from neuron_scheduler.sandbox.apiserver.columns import AGE, NAME, Cell, Column, at, name, since
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.apiserver.workload_columns import WORKLOAD_COLUMNS


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


def _row_object(obj: Object, include: str) -> Any:
    if include == "None":
        return None
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


def _address(kind: str) -> Cell:
    def cell(node: Object, _: datetime) -> str:
        addresses = node.get("status", {}).get("addresses") or []
        return next((address["address"] for address in addresses if address["type"] == kind), "<none>")

    return cell


def _node_info(field: str) -> Cell:
    return at("status", "nodeInfo", field, absent="<unknown>")


def _last_seen(event: Object, now: datetime) -> str:
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return since(text or event["metadata"].get("creationTimestamp"), now)


def _first_seen(event: Object, now: datetime) -> str:
    return since(event.get("firstTimestamp") or event.get("eventTime"), now)


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
        Column("Readiness Gates", _gates, 1),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", _node_info("kubeletVersion")),
        Column("Internal-IP", _address("InternalIP"), 1),
        Column("External-IP", _address("ExternalIP"), 1),
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
        Column("Subobject", at("involvedObject", "fieldPath", absent=""), 1),
        Column("Source", at("reportingComponent", absent=""), 1),
        Column("Message", lambda event, _: str(event.get("message", "")).strip()),
        Column("First Seen", _first_seen, 1),
        Column("Count", _event_count, 1),
        Column("Name", name, 1),
    ),
    "leases": (NAME, Column("Holder", at("spec", "holderIdentity", absent="")), AGE),
    "configmaps": (
        NAME,
        Column("Data", lambda config_map, _: len(config_map.get("data") or {}), type="integer"),
        AGE,
    ),
    "priorityclasses": (
        NAME,
        Column("Value", at("value"), type="integer"),
        Column("Global-Default", lambda priority_class, _: bool(priority_class.get("globalDefault")), type="boolean"),
        AGE,
        Column("PreemptionPolicy", at("preemptionPolicy", absent="PreemptLowerPriority")),
    ),
    **WORKLOAD_COLUMNS,
}
