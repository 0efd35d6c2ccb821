"""
A placeholder on the wire: a pod that asks an autoscaler for one whole machine, and is never placed.

It asks for the silicon of the machine, and carries what the waiting pods require of their node. A new leader reads back
from it what decides: type, zones and amounts. The next plan says which pods it is for.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from neuron_scheduler.capacity.planning.need import LimitOwner, MachineNeed
from neuron_scheduler.model.annotations import CAPACITY_REQUEST_PODS
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES, add
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement, Toleration
from neuron_scheduler.model.wording import quantity

NAMESPACE: Final = "neuron-scheduler-capacity"
SCHEDULER_NAME: Final = "neuron-scheduler-capacity"
"""No scheduler serves this name: neither we, nor an older version of us, nor kube-scheduler places the pod."""
PRIORITY_CLASS: Final = "neuron-scheduler-capacity"
MARKER: Final = "neuron-scheduler/placeholder"
"""Label of placeholders; its value is `true`."""
REQUESTED_BY: Final = "neuron-scheduler/requested-by"
"""Label of a placeholder: the name of the scheduler for whose pods it asks."""
FOR_NAMESPACE: Final = "neuron-scheduler/for-namespace"
"""Label of a placeholder: the namespace of the first pod that waits for it."""
MOST_NAMED: Final = 64
"""Pods whose uids are in the annotation; a person reads it, no decision does."""
_NOBODY: Final = 65535


def manifest(name: str, need: MachineNeed, image: str) -> dict[str, Any]:
    """Return the placeholder for a machine; the policy `restricted` of Pod Security admits it."""
    amounts = {name: quantity(name, amount) for name, amount in sorted(add(need.silicon, need.host).items()) if amount}
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {
            "app.kubernetes.io/name": "neuron-scheduler",
            "app.kubernetes.io/component": "capacity-request",
            MARKER: "true",
            REQUESTED_BY: need.owner.scheduler_name,
            FOR_NAMESPACE: need.owner.namespace,
        },
        "annotations": {CAPACITY_REQUEST_PODS: ",".join(pod.uid for pod in need.pods[:MOST_NAMED])},
    }
    container = {
        "name": "placeholder",
        "image": image,
        "resources": {"requests": amounts, "limits": amounts},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "schedulerName": SCHEDULER_NAME,
        "priorityClassName": PRIORITY_CLASS,
        "preemptionPolicy": "Never",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "nodeSelector": dict(need.pattern.constraints.node_selector),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _terms(need)}},
        "tolerations": list(_tolerations(need.pattern.tolerations)),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_placeholder(pod: Pod) -> bool:
    return pod.namespace == NAMESPACE and pod.scheduler_name == SCHEDULER_NAME and pod.labels.get(MARKER) == "true"


def need_of(placeholder: Pod) -> MachineNeed:
    """Return what a placeholder asks for; of what cannot be recognised, type or silicon is empty."""
    return MachineNeed(
        owner=LimitOwner(placeholder.labels.get(REQUESTED_BY, ""), placeholder.labels.get(FOR_NAMESPACE, "")),
        instance_type=next(iter(_values(placeholder, INSTANCE_TYPE_LABEL)), ""),
        silicon={name: placeholder.requests[name] for name in NEURON_NAMES if placeholder.requests.get(name)},
        host={name: amount for name, amount in placeholder.requests.items() if name not in NEURON_NAMES},
        zones=_values(placeholder, ZONE_LABEL),
        pods=(),
        pattern=placeholder,
    )


def is_asking(placeholder: Pod) -> bool:
    """Return whether an autoscaler sees a placeholder: it is complete, not about to go, and nobody has bound it."""
    need = need_of(placeholder)
    is_complete = placeholder.scheduled is not None and need.instance_type and need.silicon
    return bool(is_complete) and not placeholder.terminating and not placeholder.node_name


def _terms(need: MachineNeed) -> dict[str, Any]:
    machine = [_wire(Requirement(INSTANCE_TYPE_LABEL, Operator.IN, (need.instance_type,)))]
    if need.zones:
        machine.append(_wire(Requirement(ZONE_LABEL, Operator.IN, need.zones)))
    required = need.pattern.constraints.required_terms
    own = (
        [[]]
        if required is None
        else [list(map(_wire, term.expressions)) for term in required if _is_for_any_node(term)]
    )
    return {"nodeSelectorTerms": [{"matchExpressions": [*expressions, *machine]} for expressions in own]}


def _is_for_any_node(term: NodeSelectorTerm) -> bool:
    """Return whether a new node can match the term: one with fields names a node, an empty one matches no node."""
    return bool(term.expressions) and not (term.fields or term.unreadable)


def _wire(requirement: Requirement) -> dict[str, Any]:
    described: dict[str, Any] = {"key": requirement.key, "operator": requirement.operator.value}
    return described | ({"values": list(requirement.values)} if requirement.values else {})


def _tolerations(tolerations: Iterable[Toleration]) -> Iterable[Mapping[str, str]]:
    for toleration in tolerations:
        if toleration.unreadable:
            continue  # it tolerates nothing
        fields = {
            "key": toleration.key,
            "operator": "Exists" if toleration.exists else "Equal",
            "value": "" if toleration.exists else toleration.value,
            "effect": "" if toleration.effect is None else toleration.effect.value,
        }
        yield {name: value for name, value in fields.items() if value}


def _values(placeholder: Pod, key: str) -> tuple[str, ...]:
    """Return the values of a label that the placeholder requires; its own requirements come last in each term."""
    for term in placeholder.constraints.required_terms or ():
        for requirement in reversed(term.expressions):
            if (requirement.key, requirement.operator) == (key, Operator.IN):
                return requirement.values
    return ()
