"""API objects as the server sends them, by keyword."""

import json
from typing import Any


def pod(name: str = "p", **changes: Any) -> dict[str, Any]:
    """A pod; `spec`, `status` and `metadata` are merged into what every pod has."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "5",
        "creationTimestamp": "2026-11-21T08:00:00Z",
        **changes.get("metadata", {}),
    }
    spec = {"schedulerName": "my-scheduler", "containers": [container()], **changes.get("spec", {})}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", **changes.get("status", {})}}


def container(name: str = "c", **fields: Any) -> dict[str, Any]:
    """A container; `requests` and `limits` become its resources."""
    resources = {key: fields.pop(key) for key in ("requests", "limits") if key in fields}
    return {"name": name, "resources": resources, **fields}


def node(name: str = "n", **changes: Any) -> dict[str, Any]:
    """A node."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **changes.get("metadata", {})}
    return {"metadata": metadata, "spec": changes.get("spec", {}), "status": changes.get("status", {})}


def encoded(obj: Any) -> bytes:
    return json.dumps(obj).encode()
