"""
NodeAffinity: nodeSelector and required node affinity as filters; preferred node affinity is a source of WeightedTerms.

Upstream: `plugins/nodeaffinity/node_affinity.go`. A requirement on a label is a union of that label's postings;
only Gt and Lt look at the label's distinct integers.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement, parse_int64
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import (
    EVERY_PLUGIN,
    NONE_REFUSED,
    Filter,
    NodeHint,
    Plugin,
    PluginName,
    PodRefusal,
    PreFilter,
    Refusal,
)
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("NodeAffinity")
REASON = "node(s) didn't match Pod's node affinity/selector"
NOT_NAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"

_FIELD = "metadata.name"
Selection = tuple[frozenset[tuple[str, str]], tuple[NodeSelectorTerm, ...] | None]
"""A pod's node selector and its required terms."""


def pre_filter(_: View, pod: Pod) -> PodRefusal | None:
    """Refuse a pod whose every required term names nodes, but no node that could exist."""
    names = _required_names(pod)
    return PodRefusal(NAME, CONFLICT) if names is not None and not names else None


def filter_names(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """
    Refuse all other nodes where every required term names some.

    It comes before all other filters: upstream, nodes that a pre-filter leaves out get no other reason.
    """
    names = _required_names(pod)
    if names is None:
        return NONE_REFUSED
    return [Refusal(NAME, NOT_NAMED, less(among, _nodes_named(view, names)), unresolvable=True)]


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    fitting = fitting_nodes(view, pod, among)
    return NONE_REFUSED if fitting == among else [Refusal(NAME, REASON, less(among, fitting), unresolvable=True)]


def fitting_nodes(view: View, pod: Pod, among: NodeSet) -> NodeSet:
    """Return the nodes that match the pod's node selector and at least one required term."""
    constraints = pod.constraints
    for key, value in constraints.node_selector.items():
        among &= view.label_postings(key).get(value)
    if constraints.required_terms is not None:
        among = any_term(view, constraints.required_terms, among)
    return among


def selection_of(pod: Pod) -> Selection:
    return frozenset(pod.constraints.node_selector.items()), pod.constraints.required_terms


def fits(selection: Selection, node: Node) -> bool:
    """Return whether one node matches; as `fitting_nodes`."""
    selector, terms = selection
    if any(node.labels.get(key) != value for key, value in selector):
        return False
    return terms is None or any(term.matches(node.labels, node.name) for term in terms)


def preferred_weights(view: View, pod: Pod, among: NodeSet) -> Iterator[tuple[int, NodeSet]]:
    for weighted in pod.constraints.preferred_terms:
        yield weighted.weight, _nodes_matching(view, weighted.term, among)


def any_term(view: View, terms: Sequence[NodeSelectorTerm], among: NodeSet) -> NodeSet:
    matching = NO_NODES
    for term in terms:
        matching |= _nodes_matching(view, term, among)
    return matching


def _nodes_matching(view: View, term: NodeSelectorTerm, among: NodeSet) -> NodeSet:
    if term.unreadable or not (term.expressions or term.fields):
        return NO_NODES
    for expression in term.expressions:
        among &= _nodes_satisfying(view, expression, among)
    for field in term.fields:
        named = _nodes_named(view, field.values)
        among = among & named if field.operator is Operator.IN else less(among, named)
    return among


def _nodes_satisfying(view: View, requirement: Requirement, among: NodeSet) -> NodeSet:
    if requirement.operator in (Operator.GT, Operator.LT):
        return _nodes_beyond(view, requirement)
    postings = view.label_postings(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return postings.any_of(requirement.values)
        case Operator.NOT_IN:
            return less(among, postings.any_of(requirement.values))
        case Operator.EXISTS:
            return postings.keyed
        case Operator.DOES_NOT_EXIST:
            return less(among, postings.keyed)


def _nodes_beyond(view: View, requirement: Requirement) -> NodeSet:
    """Return the nodes whose label is an integer beyond the requirement's bound."""
    bound = parse_int64(requirement.values[0]) if len(requirement.values) == 1 else None
    if bound is None:
        return NO_NODES
    postings = view.integer_postings(requirement.key)
    numbers = cast(frozenset[int], postings.values)
    if requirement.operator is Operator.GT:
        return postings.any_of(number for number in numbers if number > bound)
    return postings.any_of(number for number in numbers if number < bound)


def _nodes_named(view: View, names: Sequence[str] | frozenset[str]) -> NodeSet:
    nodes = NO_NODES
    for name in names:
        slot = view.slot(name)
        nodes |= NO_NODES if slot is None else 1 << slot
    return nodes


def _required_names(pod: Pod) -> frozenset[str] | None:
    """Return the node names that the required terms allow, None if some term names none."""
    terms = pod.constraints.required_terms
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        wanted = [set(f.values) for f in term.fields if f.key == _FIELD and f.operator is Operator.IN]
        if not wanted:
            return None
        names |= set.intersection(*wanted)
    return frozenset(names)


PLUGIN = Plugin(
    name=NAME,
    pre_filter=PreFilter(pre_filter, reads=(PodField.REQUIRED_TERMS,)),
    filters=(
        Filter(filter_names, reads=(PodField.REQUIRED_TERMS,), before=EVERY_PLUGIN),
        Filter(filter_nodes, fitting_nodes, reads=(PodField.NODE_SELECTOR, PodField.REQUIRED_TERMS)),
    ),
    events=frozenset({ClusterEvent.NODE_ADDED, ClusterEvent.NODE_LABELS}),
    hint=NodeHint(selection_of, fits),
    cause=Cause.AFFINITY,
)
