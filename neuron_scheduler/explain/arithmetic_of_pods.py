"""What other pods decide: topology spread, affinity and anti-affinity, with the counts (see `arithmetic`)."""

from collections.abc import Callable, Iterator, Sequence

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import clipped, counted, first_of
from neuron_scheduler.scheduling.plugins import inter_pod_affinity, pod_topology_spread

_Sentence = Callable[[Slot, NodeInfo, Sequence[str]], str]
_Counts = list[tuple[str, Column]]
"""Keys of labels, each with how many pods there are in each node's domain."""


def spread(view: View, pod: Pod) -> _Sentence:
    """Return how many matching pods the node's domain has, and how many it may have."""
    constraints = [*pod_topology_spread.hard_counts(view, pod)]

    def sentence(slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        missing = pod_topology_spread.NO_LABEL in reasons
        for constraint, totals, most in constraints:
            key = constraint.topology_key
            if domain_of(node_info.node, key) is None:
                return _no_domain(key, node_info)
            count = totals.value(slot)
            if count > most and not missing:
                return (
                    f"{_domain(key, node_info)} has {counted(count, 'matching pod')}, and may have at most"
                    f" {max(0, most)} before this one (maxSkew {constraint.max_skew})"
                )
        return ""

    return sentence


def affinity(view: View, pod: Pod) -> _Sentence:
    """Return which pods are missing near a node, or too near."""
    constraints = pod.constraints
    apart = [
        (term.topology_key, totals)
        for term in constraints.anti_affinity
        for totals in inter_pod_affinity.matching_pods(view, term)
    ]
    away = [(term.topology_key, totals) for term, totals in view.terms_of_placed_pods(TermKind.ANTI_AFFINITY, pod)]
    matching = inter_pod_affinity.matching_all(view, constraints.affinity) if constraints.affinity else None
    keys = [*dict.fromkeys(term.topology_key for term in constraints.affinity)]
    near = [(key, Column() if matching is None else view.totals(matching, key)) for key in keys]

    def sentence(slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        if inter_pod_affinity.NOT_NEAR in reasons:
            return first_of(_lacking(near, slot, node_info)) or "no pod is near that matches all its affinity terms"
        if inter_pod_affinity.NOT_APART in reasons:
            return first_of(f"{text} to which it has anti-affinity" for text in _crowded(apart, slot, node_info))
        return first_of(f"{text} with anti-affinity to it" for text in _crowded(away, slot, node_info))

    return sentence


def _lacking(near: _Counts, slot: Slot, node_info: NodeInfo) -> Iterator[str]:
    for key, totals in near:
        if domain_of(node_info.node, key) is None:
            yield _no_domain(key, node_info)
        elif not totals.value(slot):
            yield f"{_domain(key, node_info)} has no pod that matches the pod's affinity terms"


def _crowded(counts: _Counts, slot: Slot, node_info: NodeInfo) -> Iterator[str]:
    for key, totals in counts:
        number = totals.value(slot)
        if number:
            yield f"{_domain(key, node_info)} has {counted(number, 'pod')}"


def _no_domain(key: str, node_info: NodeInfo) -> str:
    has_label = key in node_info.node.labels
    return f"its label {clipped(key)} names no UltraServer" if has_label else f"it has no label {clipped(key)}"


def _domain(key: str, node_info: NodeInfo) -> str:
    return f"{clipped(key)}={clipped(node_info.node.labels.get(key, ''))}"
