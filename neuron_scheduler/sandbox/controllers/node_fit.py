"""
Whether a pod may be on a node: node selector, required node affinity, taints and tolerations.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from neuron_scheduler.sandbox.apiserver.selectors import matches
from neuron_scheduler.sandbox.apiserver.store import Object


def is_chosen(spec: Mapping[str, Any], node: Object) -> bool:
    """Return whether node selector and required node affinity of a pod's spec choose the node."""
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False
    terms = required_terms(spec)
    return terms is None or any(_matches(term, node) for term in terms)


def required_terms(spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return the terms of the required node affinity, None without one."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return list(required.get("nodeSelectorTerms") or []) if required else None


def is_tolerated(spec: Mapping[str, Any], node: Object, effects: Sequence[str] = ("NoSchedule", "NoExecute")) -> bool:
    """Return whether a pod's spec tolerates the node's taints of these effects, and its cordon as NoSchedule."""
    tolerations = spec.get("tolerations") or []
    taints = [dict(taint) for taint in (node.get("spec") or {}).get("taints") or []]
    if (node.get("spec") or {}).get("unschedulable"):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    return all(_tolerates(tolerations, taint) for taint in taints if taint.get("effect") in effects)


def _matches(term: Mapping[str, Any], node: Object) -> bool:
    """Return whether a term matches: an empty one matches nothing."""
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return False
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    on_labels = {"matchExpressions": term.get("matchExpressions")}
    return matches(on_labels, labels) and matches({"matchExpressions": term.get("matchFields")}, fields)


def _tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    return any(
        toleration.get("key") in {None, "", taint.get("key")}
        and toleration.get("effect") in {None, "", taint.get("effect")}
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
        for toleration in tolerations
    )
