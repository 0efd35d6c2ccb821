"""
PodTopologySpread: no domain of a label may have many more matching pods than another (hard), or should (soft).

Upstream: `plugins/podtopologyspread/{common,filtering,scoring}.go`. A constraint's *eligible* nodes carry all keys of
the pod's constraints of this kind, and its policies let them count.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from math import log
from operator import and_

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NodeSet, less, lowest_slot
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, SpreadConstraint
from neuron_scheduler.scheduling.plugins import node_affinity, taint_toleration
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import Filter, Plugin, PluginName, Preference, Refusal
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("PodTopologySpread")
REASON = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{REASON} (missing required label)"

SYSTEM_DEFAULT = (
    SpreadConstraint(HOSTNAME_LABEL, max_skew=3, hard=False, selector=None),
    SpreadConstraint(ZONE_LABEL, max_skew=5, hard=False, selector=None),
)
"""The constraints that kube-scheduler assumes for a pod without any that belongs to a Service or a workload."""

_FEW_DOMAINS = 16
"""Up to this number, domains are looked up singly; for more, counting all is cheaper."""

_FINENESS = 64
"""Scores are integers: this many for one of upstream's units, so that they are the same on every machine."""


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes without the key of a hard constraint, and those whose domain has too many matching pods already."""
    refusals = []
    for constraint, totals, most in hard_counts(view, pod):
        keyed = view.domains(constraint.topology_key).keyed
        refusals.append(Refusal(NAME, NO_LABEL, less(among, keyed), unresolvable=True))
        among &= keyed
        crowded = totals.at_least(most + 1, among)
        refusals.append(Refusal(NAME, REASON, crowded))
        among = less(among, crowded)
    return refusals


def refuse_emptied(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    refusals = []
    hard = [constraint for constraint in pod.constraints.spread if constraint.hard]
    for constraint, eligible in _with_eligible_nodes(view, pod, hard, _nodes_with_keys(view, hard)):
        totals, most = _counts_and_most(view, pod, constraint, eligible)
        staying = totals.less_all(_counts(view, pod, constraint, below=pod.priority), eligible)
        refusals.append(Refusal(NAME, REASON, staying.at_least(most + 1, among & eligible)))
    return refusals


def preferred_weights(view: View, pod: Pod, among: NodeSet) -> Iterator[tuple[int, NodeSet]]:
    """Yield higher weights for fewer matching pods; nodes without the key of a soft constraint get none."""
    soft = [constraint for constraint in pod.constraints.spread if not constraint.hard]
    if not soft:
        return
    carrying = _nodes_with_keys(view, soft)
    scored = among & carrying
    scores = _scores(view, pod, soft, scored=scored, carrying=carrying)
    highest, lowest = scores.maximum(scored), scores.minimum(scored)
    yield from scores.subtract_from(highest, scored).weights()
    yield (lowest if highest else 1), scored


def prefer_by_default(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the best nodes by the system default; pods with Neuron are packed, not spread."""
    if pod.neuron is not None or pod.constraints.spread:
        return among
    selector = view.workloads.selector_of(pod)
    if selector is None:
        return among
    constraints = [attrs.evolve(constraint, selector=selector) for constraint in SYSTEM_DEFAULT]
    return _scores(view, pod, constraints, scored=among, carrying=view.live).lowest(among)


def hard_counts(view: View, pod: Pod) -> Iterator[tuple[SpreadConstraint, Column, int]]:
    """Yield each hard constraint with the matching pods in each node's domain, and the most that a domain may have."""
    hard = [constraint for constraint in pod.constraints.spread if constraint.hard]
    for constraint, eligible in _with_eligible_nodes(view, pod, hard, _nodes_with_keys(view, hard)):
        yield constraint, *_counts_and_most(view, pod, constraint, eligible)


def _nodes_with_keys(view: View, constraints: Sequence[SpreadConstraint]) -> NodeSet:
    keyed = (view.domains(constraint.topology_key).keyed for constraint in constraints)
    return reduce(and_, keyed, view.live)


def _with_eligible_nodes(
    view: View, pod: Pod, constraints: Sequence[SpreadConstraint], carrying: NodeSet
) -> Iterator[tuple[SpreadConstraint, NodeSet]]:
    """Yield the constraints with the nodes that their policies let count; a pod's node affinity may be long."""
    eligible: dict[tuple[bool, bool], NodeSet] = {}
    for constraint in constraints:
        policies = (constraint.honor_affinity, constraint.honor_taints)
        if policies not in eligible:
            nodes = node_affinity.fitting_nodes(view, pod, carrying) if constraint.honor_affinity else carrying
            tolerates = constraint.honor_taints
            eligible[policies] = taint_toleration.tolerated_nodes(view, pod, nodes) if tolerates else nodes
        yield constraint, eligible[policies]


def _counts_and_most(view: View, pod: Pod, constraint: SpreadConstraint, eligible: NodeSet) -> tuple[Column, int]:
    """Return how many matching pods each node's domain has, and how many it may have for one more to come."""
    totals = _totals(view, pod, constraint, eligible)
    lowest = totals.minimum(eligible)
    if lowest and not _has_domains(view, constraint, eligible):
        lowest = 0
    itself = constraint.selector is not None and constraint.selector.matches(pod.labels)
    return totals, lowest + constraint.max_skew - itself


def _has_domains(view: View, constraint: SpreadConstraint, eligible: NodeSet) -> bool:
    """Return whether there are as many eligible domains as the constraint requires."""
    domains = view.domains(constraint.topology_key)
    if constraint.min_domains > _FEW_DOMAINS:
        return domains.count_among(eligible) >= constraint.min_domains
    for _ in range(constraint.min_domains - 1):
        if not eligible:
            return False
        first = view.row(lowest_slot(eligible)).node
        eligible &= ~domains.get(first.labels[constraint.topology_key])
    return bool(eligible)


def _scores(
    view: View, pod: Pod, constraints: Sequence[SpreadConstraint], *, scored: NodeSet, carrying: NodeSet
) -> Column:
    """Return upstream's score of the nodes `scored`: the more matching pods, the higher."""
    scores = Column()
    for constraint, eligible in _with_eligible_nodes(view, pod, constraints, carrying):
        domains = view.domains(constraint.topology_key)
        if constraint.topology_key == HOSTNAME_LABEL:
            numbers, size = _counts(view, pod, constraint), scored.bit_count()
        else:
            numbers = _totals(view, pod, constraint, eligible)
            size = domains.count_among(scored) + bool(scored & ~domains.keyed)
        with_key = scored & domains.keyed
        scores.add_all(numbers, round(_FINENESS * log(size + 2)), with_key)
        scores.add(_FINENESS * (constraint.max_skew - 1), with_key)
    return scores


def _counts(view: View, pod: Pod, constraint: SpreadConstraint, below: int | None = None) -> Column:
    """Return how many matching pods there are on each node; an empty selector counts none."""
    if constraint.selector is None or not constraint.selector.requirements:
        return Column()
    return view.counts(attrs.evolve(_query_of(pod, constraint.selector), below=below))


def _totals(view: View, pod: Pod, constraint: SpreadConstraint, eligible: NodeSet) -> Column:
    """Return how many matching pods there are on the eligible nodes of each node's domain."""
    if constraint.selector is None or not constraint.selector.requirements:
        return Column()
    domains, matching = view.domains(constraint.topology_key), _query_of(pod, constraint.selector)
    totals, not_counting = view.totals(matching, constraint.topology_key), less(domains.keyed, eligible)
    if domains.keyed and not not_counting:
        return totals
    outside = view.counts(matching).mask(not_counting)  # as a warm-up asks, which does not know the domains yet
    if not outside.positive:
        return totals
    if len(domains.values) == domains.keyed.bit_count():
        return totals.mask(eligible)
    return totals.less_all(view.sums_in_domains(outside, constraint.topology_key), domains.keyed)


def _query_of(pod: Pod, selector: LabelSelector) -> PodQuery:
    return PodQuery((selector,), frozenset((pod.namespace,)), terminating=False)


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, refuse_emptied=refuse_emptied, reads=(PodField.SPREAD,)),),
    preference=Preference("DefaultTopologySpread", prefer_by_default),
    events=frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.NODE_TAINTS,
            ClusterEvent.NODE_DELETED,  # its pods no longer count, even if they have not ended
            ClusterEvent.ASSIGNED_POD_ADDED,
            ClusterEvent.ASSIGNED_POD_LABELS,
            ClusterEvent.ASSIGNED_POD_GONE,
        }
    ),
    counts_pods=True,
    cause=Cause.AFFINITY,
)
