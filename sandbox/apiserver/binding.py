"""
What a Binding does to a pod: one write that sets the node and merges the annotations.

After `BindingREST` of `pkg/registry/core/pod/storage/storage.go`, with its traps: neither the node's existence nor the
annotations are checked.
"""

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandbox.apiserver import metadata
from sandbox.apiserver.resources import PODS
from sandbox.apiserver.status import StatusError, bad_request, conflict
from sandbox.apiserver.store import Object

_TOPOLOGY = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def target_node(binding: Mapping[str, Any], name: str) -> str:
    """
    Return the name of the node that a Binding for pod `name` chooses.

    Raises:
        StatusError: 400 if it names another pod, 500 (an aggregate upstream, no 422) if it names no node.
    """
    metadata.of(binding)
    if binding["metadata"].get("name") != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    problems = []
    if target.get("kind") not in {None, "", "Node"}:
        problems.append(f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"')
    if not target.get("name"):
        problems.append("target.name: Required value")
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise StatusError(500, "InternalError", text)
    return str(target["name"])


def bound(pod: Object, binding: Mapping[str, Any], *, node: Object | None, now: datetime) -> Object:
    """
    Return a copy of the pod as the Binding leaves it.

    `node` is the target if it exists: its topology labels are copied.

    Raises:
        StatusError: 409, a precondition fails or the pod can no longer, or not yet, be bound.
    """
    _check(pod, binding)
    pod = copy.deepcopy(pod)
    pod["spec"]["nodeName"] = binding["target"]["name"]
    pod["status"].pop("nominatedNodeName", None)
    annotations = binding["metadata"].get("annotations") or {}
    if annotations:
        pod["metadata"]["annotations"] = (pod["metadata"].get("annotations") or {}) | annotations
    labels = dict(binding["metadata"].get("labels") or {})
    if node is not None and binding["target"].get("kind") == "Node":
        node_labels = node["metadata"].get("labels") or {}
        labels |= {key: node_labels[key] for key in _TOPOLOGY if key in node_labels}
    if labels:
        pod["metadata"]["labels"] = (pod["metadata"].get("labels") or {}) | labels
    _set_scheduled(pod["status"], now)
    return pod


def _check(pod: Object, binding: Mapping[str, Any]) -> None:
    name, meta = pod["metadata"]["name"], pod["metadata"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        asked = binding["metadata"].get(field)
        if asked and asked != meta[field]:
            why = (
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{meta['namespace']}/{name}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {label} in precondition: {asked}, "
                f"{label} in object meta: {meta[field]}"
            )
            raise conflict(PODS, name, why)
    why = ""
    if meta.get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict(PODS, name, why, subresource="binding")


def _set_scheduled(status: dict[str, Any], now: datetime) -> None:
    conditions = status.setdefault("conditions", [])
    old = next((condition for condition in conditions if condition["type"] == "PodScheduled"), None)
    new = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": metadata.timestamp(now),
    }
    if old is None:
        conditions.append(new)
        return
    if old["status"] == "True":
        new["lastTransitionTime"] = old["lastTransitionTime"]
    conditions[conditions.index(old)] = new
