"""
What the API server does to a new pod: defaults, admission of priority and tolerations, validation.

After `pkg/apis/core/v1/defaults.go`, `pkg/apis/core/validation/validation.go` and the admission plugins that are on
by default. Only what a scheduler or its users can notice; the rest is stored as sent.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any, Final

from sandbox.apiserver import metadata
from sandbox.apiserver.resources import PODS, PRIORITY_CLASSES
from sandbox.apiserver.status import FieldError, forbidden, forbidden_value, invalid_value, required
from sandbox.apiserver.store import Object, Store

SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_NATIVE: Final = re.compile(r"(cpu|memory|ephemeral-storage|hugepages-.*)")
_QUANTITY: Final = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(m|[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_SUFFIXES: Final = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "u": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_MUTABLE: Final = ("activeDeadlineSeconds", "schedulingGates", "terminationGracePeriodSeconds", "tolerations")
_IMMUTABLE_RULE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def quantity(text: object) -> Fraction | None:
    """Return the exact number of a quantity; None if the text is not one."""
    if isinstance(text, int) and not isinstance(text, bool):
        return Fraction(text)
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    number, suffix = match[1], match[2] or ""
    scale = _SUFFIXES[suffix] if suffix in _SUFFIXES else Fraction(10) ** int(suffix[1:])
    return Fraction(number) * scale


def containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every container and init container with the path of its field."""
    for field in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(field) or []):
            yield f"spec.{field}[{number}]", container


def default(spec: dict[str, Any]) -> None:
    """Set the defaults of a pod's spec, or of a template's, in place."""
    for field, value in {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
    }.items():
        if spec.get(field) is None:
            spec[field] = value
    for _, container in containers(spec):
        _default_container(container)


def prepare_create(pod: Object, now: datetime) -> None:
    """Set the defaults in place; drop the client's status."""
    spec = pod.setdefault("spec", {})
    default(spec)
    spec["serviceAccountName"] = spec.get("serviceAccountName") or "default"
    for _, container in containers(spec):
        _default_requests(container)
    _default_tolerations(spec)
    pod["metadata"]["generation"] = 1
    pod["status"] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": None,
            "lastTransitionTime": metadata.timestamp(now),
        }
        pod["status"]["conditions"] = [condition]


def _default_container(container: dict[str, Any]) -> None:
    container.setdefault("resources", {})
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")


def _default_requests(container: dict[str, Any]) -> None:
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = resources["limits"] | (resources.get("requests") or {})


def _default_tolerations(spec: dict[str, Any]) -> None:
    """DefaultTolerationSeconds: five minutes for an absent node, unless the pod says otherwise."""
    tolerations = spec.get("tolerations") or []
    for condition in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{condition}"
        if not any(
            toleration.get("key") in {None, "", key} and toleration.get("effect") in {None, "", "NoExecute"}
            for toleration in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec["tolerations"] = tolerations


def admit_priority(pod: Object, store: Store) -> None:
    """
    Resolve the priority class to a number, as the Priority admission plugin does.

    Raises:
        StatusError: 403, an unknown class, or a number that contradicts the class.
    """
    spec = pod["spec"]
    wanted = spec.get("priorityClassName") or ""
    classes = store.objects(PRIORITY_CLASSES.storage)
    priority_class = next((candidate for candidate in classes if candidate["metadata"]["name"] == wanted), None)
    if not wanted:
        priority_class = next((candidate for candidate in classes if candidate.get("globalDefault")), None)
    if priority_class is not None:
        spec["priorityClassName"] = priority_class["metadata"]["name"]
    elif wanted and wanted not in SYSTEM_PRIORITIES:
        raise forbidden(PODS, pod["metadata"]["name"], f"no PriorityClass with name {wanted} was found")
    value = priority_class["value"] if priority_class is not None else SYSTEM_PRIORITIES.get(wanted, 0)
    if spec.get("priority") not in {None, value}:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, pod["metadata"]["name"], why)
    spec["priority"] = value
    if not spec.get("preemptionPolicy"):
        policy = priority_class.get("preemptionPolicy") if priority_class is not None else None
        spec["preemptionPolicy"] = policy or "PreemptLowerPriority"


def validate(pod: Object) -> Iterator[FieldError]:
    """Yield what is wrong with a new pod."""
    yield from metadata.validate(pod["metadata"])
    yield from validate_spec(pod["spec"])


def validate_spec(spec: Mapping[str, Any], root: str = "") -> Iterator[FieldError]:
    """Yield what is wrong with a pod's spec, or with a template's; `root` is the path of the template with a dot."""
    if not spec.get("containers"):
        yield required(f"{root}spec.containers")
    for place, container in containers(spec):
        path = root + place
        name = container.get("name") or ""
        if not metadata.is_dns_label(name):
            yield invalid_value(f"{path}.name", name, "a lowercase RFC 1123 label is needed")
        if not container.get("image"):
            yield required(f"{path}.image")
        yield from _validate_resources(container["resources"], f"{path}.resources")
    yield from metadata.validate_labels(spec.get("nodeSelector") or {}, f"{root}spec.nodeSelector")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden_value(f"{root}spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _validate_resources(resources: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield amounts that are none, and requests of extended resources that are not their limits."""
    limits = resources.get("limits") or {}
    for kind in ("limits", "requests"):
        for name, text in (resources.get(kind) or {}).items():
            amount, place = quantity(text), f"{path}.{kind}[{name}]"
            if amount is None or amount < 0:
                yield invalid_value(place, text, "quantities must match the regular expression of resource.Quantity")
            elif _NATIVE.fullmatch(name) is None and amount.denominator != 1:
                yield invalid_value(place, text, "must be an integer")
            elif _NATIVE.fullmatch(name) is None and amount != quantity(limits.get(name)):
                same = f"must be equal to {name} limit of {limits.get(name)}"
                yield invalid_value(f"{path}.requests", str(text), same)


def validate_update(pod: Object, old: Object) -> Iterator[FieldError]:
    """Yield forbidden changes: nearly all of the spec. Gates can only go; with gates, the node selection can change."""
    yield from metadata.validate(pod["metadata"])
    if _fixed(pod["spec"], old) != _fixed(old["spec"], old):
        yield forbidden_value("spec", _IMMUTABLE_RULE)
    gates = old["spec"].get("schedulingGates") or []
    if any(gate not in gates for gate in pod["spec"].get("schedulingGates") or []):
        yield forbidden_value("spec.schedulingGates", "only deletion is allowed")
    tolerations = pod["spec"].get("tolerations") or []
    if any(toleration not in tolerations for toleration in old["spec"].get("tolerations") or []):
        yield forbidden_value(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _fixed(spec: Mapping[str, Any], old: Object) -> dict[str, Any]:
    """Return the spec without the fields that an update of `old` may change."""
    ignored = {*_MUTABLE, *(("affinity", "nodeSelector") if old["spec"].get("schedulingGates") else ())}
    kept = {field: copy.deepcopy(value) for field, value in spec.items() if field not in ignored and value}
    for _, container in containers({field: kept.get(field) for field in ("initContainers", "containers")}):
        container.pop("image", None)
    return kept
