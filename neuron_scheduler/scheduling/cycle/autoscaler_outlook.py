"""
Whether a node that does not exist yet could take a pod: the line between `Unschedulable` and `SchedulerError`.

Karpenter and Cluster Autoscaler add nodes for pods whose condition has the reason `Unschedulable`. A pod that asks for
7 devices and requires trn1.32xlarge is refused by every node of that type, new ones included: with `Unschedulable`
autoscalers would buy accelerators in a loop. Only what the pod requires of the instance type is read: a new node may
meet any other constraint.
"""

from functools import lru_cache

from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.node import BETA_INSTANCE_TYPE_LABEL, INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine
from neuron_scheduler.neuron.topology import illegal_count, place

_TYPE_LABELS = (INSTANCE_TYPE_LABEL, BETA_INSTANCE_TYPE_LABEL)
"""A node has its type under both; the second is deprecated, but still in old manifests."""

_MACHINES = tuple(
    Machine(row.name, row.shape, row.devices, cores)
    for row in INSTANCE_TYPES.values()
    for cores in row.cores_per_device
)


def new_node_could_help(pod: Pod) -> bool:
    """Return whether an empty node of some instance type that the pod allows has room for its Neuron request."""
    if pod.neuron is None:
        return True
    unknown = ("", *(named_types(pod.constraints) - INSTANCE_TYPES.keys()))
    fitting = (*unknown, *_fitting(pod.neuron))
    return any(_allows(pod.constraints, prefix + name) for name in fitting for prefix in ("", "ml."))


@lru_cache(maxsize=1024)
def _fitting(request: NeuronRequest) -> tuple[str, ...]:
    """Return the known types on which the request fits if the node is empty."""
    return tuple(
        machine.instance_type
        for machine in _MACHINES
        if illegal_count(machine, request) is None and place(machine, machine.all_cores, request) is not None
    )


def named_types(constraints: Constraints) -> set[str]:
    """Return the instance types that a pod's node selector and required node affinity name, without `ml.`."""
    named = {constraints.node_selector.get(key, "") for key in _TYPE_LABELS}
    for term in constraints.required_terms or ():
        named |= {value for r in term.expressions if r.key in _TYPE_LABELS for value in r.values}
    return {name.removeprefix("ml.") for name in named}


def _allows(constraints: Constraints, instance_type: str) -> bool:
    """Return whether a node of the type may match; empty stands for a type that the pod does not name."""
    labels = dict.fromkeys(_TYPE_LABELS, instance_type)
    if any(constraints.node_selector.get(key, value) != value for key, value in labels.items()):
        return False
    terms = constraints.required_terms
    return terms is None or any(_may_match(term, labels) for term in terms)


def _may_match(term: NodeSelectorTerm, labels: dict[str, str]) -> bool:
    if term.unreadable or not (term.expressions or term.fields):
        return False
    return all(r.matches(labels) for r in term.expressions if r.key in labels)
