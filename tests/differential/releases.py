"""
What kube-scheduler's releases do differently in these worlds, each with its source; our answer is that of the newest.

For an older judge our side is asked about the same objects, rewritten so that they mean to the newest release what
the older one makes of them. Nothing else may differ: neither a reason nor a node.
"""

import copy
import re
from fractions import Fraction
from typing import Final

from tests.control_plane.binaries import before
from tests.differential.vocabulary import Object

_UNITS: Final[dict[str, int | Fraction]] = {
    "": 1,
    "m": Fraction(1, 1000),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
}
_POD_LEVEL: Final = ("cpu", "memory")
"""The resources of `spec.resources` that the generator uses."""


def as_accepted(pod: Object, release: str) -> Object:
    """
    Return a pod as the API server of a release accepts it: without what it refuses because a gate is off.

    RestartAllContainersOnContainerExits is on from 1.36, ContainerRestartRules from 1.35 (`pkg/features`): before,
    there are no such rules, and only sidecars have a restart policy of their own.
    """
    if not before(release, "1.36"):
        return pod
    accepted = copy.deepcopy(pod)
    for container in (*accepted["spec"]["containers"], *accepted["spec"].get("initContainers", ())):
        actions = {rule["action"] for rule in container.get("restartPolicyRules", ())}
        if before(release, "1.35") or "RestartAllContainers" in actions:
            container.pop("restartPolicyRules", None)
        if before(release, "1.35") and container.get("restartPolicy") != "Always":
            container.pop("restartPolicy", None)
    return accepted


def pending_as_read(pod: Object, release: str) -> Object:
    """
    Return a pending pod as a release reads it.

    Before 1.37 `mergeAffinityTermNamespacesIfNotEmpty` (`plugins/interpodaffinity/plugin.go`) changes a copy of the
    term, so the selector of a pending pod's own term is also evaluated on an empty set of labels: one with only NotIn
    and DoesNotExist selects every namespace. Since 1.37 it changes the term.
    """
    if not before(release, "1.37"):
        return pod
    read = copy.deepcopy(pod)
    rules = read["spec"].get("affinity", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in rules.get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            if _accepts_no_labels(term.get("namespaceSelector")):
                term["namespaceSelector"] = {}
    return read


def bound_as_counted(pod: Object, release: str) -> Object:
    """
    Return a bound pod that asks for what a release counts while it is resized.

    Before 1.37 `AggregateContainerRequests` (component-helpers, `resource/helpers.go`) adds up the largest amounts of
    each container, and leaves out the statuses of ordinary init containers; of the pod as a whole only the resources
    count that its spec names. Since 1.37 it takes the largest of three sums.
    """
    if not before(release, "1.37"):
        return pod
    read = copy.deepcopy(pod)
    spec, status = read["spec"], read.get("status", {})
    infeasible = any(
        condition["type"] == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions", ())
    )
    statuses = {
        given["name"]: given
        for part in ("containerStatuses", "initContainerStatuses")
        for given in status.pop(part, ())
    }
    resizable = [c for c in spec.get("initContainers", ()) if c.get("restartPolicy") == "Always"]
    for container in (*spec["containers"], *resizable):
        given = statuses.get(container["name"], {})
        if "resources" in given:
            resources = container.setdefault("resources", {})
            resources["requests"] = _largest(resources.get("requests", {}), given, infeasible=infeasible)
    whole = {part: status.pop(part) for part in ("resources", "allocatedResources") if part in status}
    if "resources" in whole and any(name in _POD_LEVEL for name in spec.get("resources", {}).get("requests", ())):
        wanted = spec["resources"]["requests"]
        effective = _largest(wanted, whole, infeasible=infeasible)
        spec["resources"]["requests"] = {name: effective.get(name, "0") for name in wanted}
    return read


def _largest(wanted: Object, given: Object, *, infeasible: bool) -> dict[str, str]:
    """Return the largest of what is wanted, has been promised and is there, by name (`determineEffectiveRequests`)."""
    parts = (given["resources"].get("requests", {}), given.get("allocatedResources", {}), {} if infeasible else wanted)
    names = {name for part in parts for name in part}
    return {name: max((part[name] for part in parts if name in part), key=_number) for name in names}


def _number(quantity: str) -> Fraction:
    matched = re.fullmatch(r"([\d.]+(?:e\d+)?)([A-Za-z]*)", quantity)
    if matched is None:
        raise ValueError(f"the generator writes no quantity like {quantity}")
    return Fraction(matched[1]) * _UNITS[matched[2]]


def _accepts_no_labels(selector: Object | None) -> bool:
    if selector is None or selector.get("matchLabels"):
        return False
    return all(
        requirement["operator"] in ("NotIn", "DoesNotExist") for requirement in selector.get("matchExpressions", ())
    )
