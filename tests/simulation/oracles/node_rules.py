"""
Kubernetes' rules about one node and one pod, on their JSON: cordon, taints, selectors, requests.

From the reference of the API (taints and tolerations, node affinity, init containers and sidecars). Shares no code with
the scheduler.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from sandbox.apiserver.pods import quantity
from tests.simulation.oracles.change import Object, metadata_of
from tests.simulation.oracles.reading import containers_of, requests_of
from tests.support.neuron_oracle import Kind

_CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_FORBIDDING: Final = ("NoSchedule", "NoExecute")


def refusals(node: Object, pod: Object, others: Iterable[Object]) -> Iterator[str]:
    """Yield why a node, with some other pods on it, cannot take a pod; Neuron counts as any resource."""
    spec = node.get("spec") or {}
    tolerations = (pod.get("spec") or {}).get("tolerations") or []
    taints = [*(spec.get("taints") or []), *([_CORDON] if spec.get("unschedulable") else [])]
    for taint in taints:
        if taint.get("effect") in _FORBIDDING and not any(_tolerates(t, taint) for t in tolerations):
            yield f"taint {taint.get('key')}={taint.get('value', '')}:{taint.get('effect')} is not tolerated"
    if not _selected(node, pod.get("spec") or {}):
        yield "the node selector or the required node affinity does not match"
    yield from _lacking(node, pod, list(others))


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key, exists = toleration.get("key") or "", toleration.get("operator") == "Exists"
    if not key:
        return exists
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(key == taint.get("key") and (exists or same))


def _selected(node: Object, spec: Mapping[str, Any]) -> bool:
    labels: Mapping[str, str] = metadata_of(node).get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = (((spec.get("affinity") or {}).get("nodeAffinity")) or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required is None:
        return True
    name = {"metadata.name": str(metadata_of(node).get("name", ""))}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(_matches(labels, rule) for rule in term.get("matchExpressions") or [])
        and all(_matches(name, rule) for rule in term.get("matchFields") or [])
        for term in required.get("nodeSelectorTerms") or []
    )


def _matches(labels: Mapping[str, str], rule: Mapping[str, Any]) -> bool:
    value, values = labels.get(rule["key"]), rule.get("values") or []
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator if value is not None and value.lstrip("-").isdecimal():
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return False


def requested(pod: Object) -> dict[str, Fraction]:
    """Return what Kubernetes counts for a pod: its largest phase, its overhead, and one of `pods`."""
    staying: dict[str, Fraction] = {}
    most: dict[str, Fraction] = {}
    for kind, container in containers_of(pod):
        own = requests_of(container)
        if kind is Kind.INIT:
            _raise(most, _sum(staying, own))
        else:
            staying = _sum(staying, own)
    _raise(most, staying)
    spec = pod.get("spec") or {}
    most |= requests_of(spec)  # of the pod as a whole, which count instead of its containers'
    overhead = {k: q for k, text in (spec.get("overhead") or {}).items() if (q := quantity(text)) is not None}
    return _sum(_sum(most, overhead), {"pods": Fraction(1)})


def _sum(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: one.get(name, Fraction(0)) + other.get(name, Fraction(0)) for name in one.keys() | other.keys()}


def _raise(most: dict[str, Fraction], amounts: Mapping[str, Fraction]) -> None:
    for name, amount in amounts.items():
        most[name] = max(most.get(name, Fraction(0)), amount)


def _lacking(node: Object, pod: Object, others: Sequence[Object]) -> Iterator[str]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    used = [requested(other) for other in others]
    for name, amount in sorted(requested(pod).items()):
        have = quantity(allocatable.get(name)) or Fraction(0)
        left = have - sum((other.get(name, Fraction(0)) for other in used), Fraction(0))
        if amount > 0 and amount > left:
            yield f"{_number(amount)} {name} are more than the {_number(left)} that are left"


def _number(amount: Fraction) -> str:
    return f"{float(amount):g}"
