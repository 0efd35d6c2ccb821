"""
A placeholder on the wire: a pod that asks an autoscaler for one whole machine, and that nobody places.

It has the scheduler name of no scheduler, asks for the silicon of the machine, and carries what the waiting pod
requires of its node, so that an autoscaler buys a node that this pod can use. Does not send.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from neuron_scheduler.kube.writes.machine_order import MachineOrder, metadata_of
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement, Toleration
from neuron_scheduler.model.wording import quantity

SCHEDULER_NAME: Final = "neuron-scheduler-capacity"
"""No scheduler serves this name: neither we, nor an older version of us, nor kube-scheduler places the pod."""
PRIORITY_CLASS: Final = "neuron-scheduler-capacity"
_NOBODY: Final = 65535


def pod_of(order: MachineOrder) -> dict[str, Any]:
    """
    Return the placeholder.

    Raises:
        ValueError: no new node can match what the pod requires.
    """
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata_of(order), "spec": spec_of(order)}


def spec_of(order: MachineOrder) -> dict[str, Any]:
    """
    Return the spec of a placeholder, which the policy `restricted` of Pod Security admits.

    Raises:
        ValueError: no new node can match what the pod requires.
    """
    amounts = {name: quantity(name, amount) for name, amount in sorted(order.requests.items()) if amount}
    return {
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
        "containers": [
            {
                "name": "placeholder",
                "image": order.image,
                "resources": {"requests": amounts, "limits": amounts},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "nodeSelector": dict(order.like.constraints.node_selector),
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _terms(order)}},
        "tolerations": list(_tolerations(order.like.tolerations)),
    }


def _terms(order: MachineOrder) -> dict[str, Any]:
    """Return the pod's required terms, each with the machine's types and zones."""
    machine = [_wire(Requirement(INSTANCE_TYPE_LABEL, Operator.IN, order.instance_types))]
    if order.zones:
        machine.append(_wire(Requirement(ZONE_LABEL, Operator.IN, order.zones)))
    required = order.like.constraints.required_terms
    own = [[]] if required is None else [list(map(_wire, term.expressions)) for term in required if _for_any(term)]
    if not own:
        raise ValueError("no new node can match the required node affinity of the pod")
    return {"nodeSelectorTerms": [{"matchExpressions": [*expressions, *machine]} for expressions in own]}


def _for_any(term: NodeSelectorTerm) -> bool:
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
