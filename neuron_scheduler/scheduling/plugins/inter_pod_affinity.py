"""
InterPodAffinity: a pod's affinity and anti-affinity terms, and the terms of placed pods that match it.

Upstream: `plugins/interpodaffinity/{filtering,scoring}.go`. Pods that match a term, and pods that have a term, are
counted per domain of the term's label. Pods that are being deleted count.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.cluster.tables.selecting_kinds import Namespaces
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, PodAffinityTerm
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, Plugin, PluginName, Refusal
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("InterPodAffinity")
NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
KEPT_AWAY = "node(s) didn't satisfy existing pods anti-affinity rules"

PREFERRED_KINDS = (TermKind.AFFINITY, TermKind.PREFERRED_AFFINITY, TermKind.PREFERRED_ANTI_AFFINITY)
"""The kinds of terms of placed pods that make a node better or worse for the pods that match them."""

HARD_POD_AFFINITY_WEIGHT = 1
"""The weight of a placed pod's required affinity term that matches the incoming pod (`hardPodAffinityWeight`)."""


def filter_near(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    if not pod.constraints.affinity:
        return NONE_REFUSED
    near = _nodes_near(view, pod, pod.constraints.affinity)
    return (Refusal(NAME, NOT_NEAR, less(among, near), unresolvable=True),)


def filter_apart(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    crowded = _union(totals for term in pod.constraints.anti_affinity for totals in matching_totals(view, term))
    return (Refusal(NAME, NOT_APART, among & crowded),)


def refuse_emptied(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    refusals = []
    for matching, key in [(query_of_terms(view, (term,)), term.topology_key) for term in pod.constraints.anti_affinity]:
        if matching is not None:
            totals = view.totals(matching, key)
            leaving = view.counts(attrs.evolve(matching, below=pod.priority))
            staying = totals.less_all(leaving, totals.positive)
            refusals.append(Refusal(NAME, NOT_APART, among & staying.positive))
    return refusals


def filter_by_placed_pods(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    return (Refusal(NAME, KEPT_AWAY, among & _kept_away(view, pod)),)


def _priorities_of_keepers(node_info: NodeInfo) -> Values:
    return tuple({info.pod.priority for info in node_info.pod_infos.values() if info.pod.constraints.anti_affinity})


def refuse_emptied_by_placed_pods(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    keepers = view.postings(_priorities_of_keepers)
    may_leave = keepers.any_of(value for value in keepers.values if isinstance(value, int) and value < pod.priority)
    kept_away = _kept_away(view, pod) if among else NO_NODES  # each term of placed pods is asked
    return (Refusal(NAME, KEPT_AWAY, less(among & kept_away, may_leave)),)


def agreeable_nodes(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    return less(among, _kept_away(view, pod))


def _kept_away(view: View, pod: Pod) -> NodeSet:
    if not view.has_terms(TermKind.ANTI_AFFINITY):
        return NO_NODES
    return _union(totals for _, totals in view.terms_of_placed_pods(TermKind.ANTI_AFFINITY, pod))


def keepers(view: View, slot: Slot, pod: Pod, leavers: Iterable[Pod]) -> tuple[set[str], bool]:
    """Return the uids of a node's leavers whose terms keep a pod away from it, and whether other pods' terms do."""
    carriers = dict[PodAffinityTerm, list[str]]()
    for other in leavers:
        for term in view.terms_of_placed_pod(TermKind.ANTI_AFFINITY, other):
            carriers.setdefault(term, []).append(other.uid)
    found, others_do = set[str](), False
    for term, totals in view.terms_of_placed_pods(TermKind.ANTI_AFFINITY, pod):
        number, uids = totals.value(slot), carriers.get(term, ())
        if number:
            found.update(uids)
            others_do |= number > len(uids)
    return found, others_do


def preferred_weights(view: View, pod: Pod, among: NodeSet) -> Iterator[tuple[int, NodeSet]]:
    """Yield the weights of preferred terms, its own and those of placed pods, once for every pod that matches."""
    for term in pod.constraints.preferred_affinity:
        for totals in matching_totals(view, term):
            yield from _times(term.weight, totals)
    for term in pod.constraints.preferred_anti_affinity:
        for totals in matching_totals(view, term):
            yield from _times_less(term.weight, totals, among)
    for _, totals in view.terms_of_placed_pods(TermKind.AFFINITY, pod):
        yield from _times(HARD_POD_AFFINITY_WEIGHT, totals)
    for term, totals in view.terms_of_placed_pods(TermKind.PREFERRED_AFFINITY, pod):
        yield from _times(term.weight, totals)
    for term, totals in view.terms_of_placed_pods(TermKind.PREFERRED_ANTI_AFFINITY, pod):
        yield from _times_less(term.weight, totals, among)


def _nodes_near(view: View, pod: Pod, terms: Sequence[PodAffinityTerm]) -> NodeSet:
    """
    Return the nodes that carry all keys and have, in the domain of each, a pod that matches all terms.

    If there is no such pod in any domain and the pod matches its own terms, it is the first of its series, and the keys
    suffice.
    """
    matching = query_of_terms(view, terms)
    keyed = near = view.live
    anywhere = NO_NODES
    for key in dict.fromkeys(term.topology_key for term in terms):
        with_match = NO_NODES if matching is None else view.totals(matching, key).positive
        keyed &= view.domains(key).keyed
        near &= with_match
        anywhere |= with_match
    if not anywhere and matching is not None and matching.matches(pod):
        return keyed
    return near & keyed


def matching_totals(view: View, term: PodAffinityTerm) -> Iterator[Column]:
    """Yield how many pods match a term in each node's domain, if there can be any."""
    matching = query_of_terms(view, (term,))
    if matching is not None:
        yield view.totals(matching, term.topology_key)


def query_of_terms(view: View, terms: Iterable[PodAffinityTerm]) -> PodQuery | None:
    """Return which pods match all the terms; None if no pod can."""
    selectors: dict[LabelSelector, None] = {}
    namespaces: Namespaces | None = None
    for term in terms:
        if term.selector is None:
            return None
        selectors[term.selector] = None
        of_term = _namespaces(view, term)
        if of_term is not None:
            namespaces = of_term if namespaces is None else namespaces & of_term
    within = namespaces if namespaces is None or namespaces.slots else namespaces.names
    return PodQuery(tuple(selectors), within, terminating=True)


def _namespaces(view: View, term: PodAffinityTerm) -> Namespaces | None:
    """Return the namespaces of a pod's own term; None for all."""
    selector = term.namespace_selector
    if selector is not None and not selector.requirements:
        return None
    return view.namespaces.select(selector, term.namespaces)


def _union(columns: Iterable[Column]) -> NodeSet:
    nodes = NO_NODES
    for totals in columns:
        nodes |= totals.positive
    return nodes


def _times(weight: int, totals: Column) -> Iterator[tuple[int, NodeSet]]:
    for number, nodes in totals.weights():
        yield weight * number, nodes


def _times_less(weight: int, totals: Column, among: NodeSet) -> Iterator[tuple[int, NodeSet]]:
    """Yield the weight for the nodes without the pods, which ranks nodes as if it were subtracted for each pod."""
    for number, nodes in totals.weights():
        yield weight * number, less(among, nodes)


BY_PLACED_PODS: Final = Filter(filter_by_placed_pods, agreeable_nodes, refuse_emptied_by_placed_pods)
PLUGIN = Plugin(
    name=NAME,
    filters=(
        Filter(filter_near, reads=(PodField.AFFINITY,)),
        Filter(filter_apart, refuse_emptied=refuse_emptied, reads=(PodField.ANTI_AFFINITY,)),
        BY_PLACED_PODS,
    ),
    events=frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.NODE_DELETED,  # its pods no longer count, even if they have not ended
            ClusterEvent.ASSIGNED_POD_ADDED,
            ClusterEvent.ASSIGNED_POD_LABELS,
            ClusterEvent.ASSIGNED_POD_GONE,
            ClusterEvent.NAMESPACE_LABELS,
        }
    ),
    counts_pods=True,
    cause=Cause.AFFINITY,
)
