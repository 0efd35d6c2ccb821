"""
AWS's recipe for UltraServers: workers with a pod affinity to each other over the label of a server id.

    podAffinity, required: labelSelector {job-name: train, job-role: worker}, topologyKey ...ultraserver-server-id-4

Such a term selects the pod itself, so the selected pods are a group. It does not say how many there are: the group is
inferred. A preferred term makes no group. Source: AWS Neuron documentation, "Using Neuron UltraServers with EKS".
"""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.model.node import ULTRASERVER_SIZES
from neuron_scheduler.model.pod import Constraints
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import Operator, PodAffinityTerm

_SIGNS: Final = {Operator.IN: "=", Operator.NOT_IN: "!="}


def read(namespace: str, labels: Mapping[str, str], constraints: Constraints) -> PodGroup | None:
    """Return the group of the pods that a term of the pod about itself selects; None if it has no such term."""
    for term in constraints.affinity:
        if term.topology_key in ULTRASERVER_SIZES and _selects(term, namespace, labels):
            return PodGroup(GroupKey(Dialect.AFFINITY, namespace, _name(term)), topology=term.topology_key)
    return None


def _selects(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
    everywhere = term.namespace_selector is not None and not term.namespace_selector.requirements
    return (everywhere or namespace in term.namespaces) and term.selector is not None and term.selector.matches(labels)


def _name(term: PodAffinityTerm) -> str:
    """Return a name for the pods that a term selects: its requirements, the same for all of them."""
    requirements = () if term.selector is None else term.selector.requirements
    signs = ((each, _SIGNS.get(each.operator, f" {each.operator}")) for each in requirements)
    return ",".join(sorted(f"{each.key}{sign}{'|'.join(sorted(each.values))}" for each, sign in signs))
