"""
InterPodAffinity: not served yet, so pods whose placement it would decide are refused rather than placed wrongly.

That is a pod with required pod (anti-)affinity, and a pod that the required anti-affinity of a pod already placed may
keep away. Borne terms are posted, so the question is asked once per distinct term, not per pod.
"""

from typing import cast

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.node_state import NodeState
from neuron_scheduler.cluster.postings import Values
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import PodAffinityTerm
from neuron_scheduler.scheduling.framework import PodRefusal

NAME = "InterPodAffinity"
OWN_TERMS = "required pod affinity and anti-affinity are not supported yet"
BORNE_TERMS = "required anti-affinity of an existing pod matches this pod, which is not supported yet"


def _borne(state: NodeState) -> Values:
    return tuple(state.anti_affinity)


def pre_filter(cluster: Cluster, pod: Pod) -> PodRefusal | None:
    """Refuse pods that required (anti-)affinity, their own or others', has a say about."""
    if pod.constraints.affinity or pod.constraints.anti_affinity:
        return PodRefusal(NAME, OWN_TERMS, hopeless=True)
    terms = cluster.postings(_borne)
    if terms.keyed and any(_may_match(cast(PodAffinityTerm, term), pod) for term in terms.values):
        return PodRefusal(NAME, BORNE_TERMS, hopeless=True)
    return None


def _may_match(term: PodAffinityTerm, pod: Pod) -> bool:
    """Tell whether a term may mean the pod; which namespaces a selector means is unknown, so it means all."""
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    return term.namespace_selector is not None or pod.namespace in term.namespaces
