"""
The completion indexes of Indexed Jobs: in a pod, in a template, and as the text that a Job's status shows.
"""

from collections.abc import Iterable
from typing import Any, Final

from neuron_scheduler.sandbox.apiserver.store import Object

INDEX: Final = "batch.kubernetes.io/job-completion-index"


def of(pod: Object) -> int | None:
    """Return the index of a pod, None if it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return int(text) if text is not None and text.isdecimal() else None


def with_index(template: dict[str, Any], job: str, index: int) -> dict[str, Any]:
    """Return the template, changed in place, of the pod with an index: annotation, label, host name, environment."""
    meta = template.setdefault("metadata", {})
    for field in ("annotations", "labels"):
        meta[field] = (meta.get(field) or {}) | {INDEX: str(index)}
    template["spec"].setdefault("hostname", f"{job}-{index}")
    source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}}
    for field in ("initContainers", "containers"):
        for container in template["spec"].get(field) or []:
            if all(variable["name"] != "JOB_COMPLETION_INDEX" for variable in container.get("env") or []):
                container.setdefault("env", []).append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return template


def text(indexes: Iterable[int | None]) -> str:
    """Return `0-2,5` for 0, 1, 2 and 5."""
    ranges: list[list[int]] = []
    for index in sorted({index for index in indexes if index is not None}):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
