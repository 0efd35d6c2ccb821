"""The oracle's part about topology spread: pods counted one by one, domains in a dictionary."""

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import log

import attrs

from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.selecting_kinds import SERVICE, Workload
from neuron_scheduler.model.selectors import LabelSelector, SpreadConstraint
from tests.support.oracle_node import affine, domain_of, forbidding, untolerated

CROWDED = "node(s) didn't match pod topology spread constraints"
FINENESS = 64


def spread_refusals(nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, node: Node) -> list[str]:
    """Return why the pod's hard constraints refuse a node: the first that does."""
    hard = [c for c in pod.constraints.spread if c.hard]
    for constraint in hard:
        domain = domain_of(node, constraint.topology_key)
        if domain is None:
            return [f"{CROWDED} (missing required label)"]
        totals = by_domain(eligible(nodes, pod, constraint, hard), bound, pod, constraint)
        lowest = min(totals.values(), default=0) if len(totals) >= constraint.min_domains else 0
        itself = constraint.selector is not None and constraint.selector.matches(pod.labels)
        if totals.get(domain, 0) + itself - lowest > constraint.max_skew:
            return [CROWDED]
    return []


def spread_shares(nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, among: Sequence[Node]) -> dict[str, Fraction]:
    """Return how well each node serves the soft constraints, the best 1."""
    soft = [c for c in pod.constraints.spread if not c.hard]
    scored = [node for node in among if carries(node, soft)]
    scores = {node.name: score(nodes, bound, pod, node, soft, scored=scored) for node in scored}
    highest, lowest = max(scores.values(), default=0), min(scores.values(), default=0)
    return {
        node.name: Fraction(highest + lowest - scores[node.name], highest) if highest else Fraction(1)
        for node in scored
        if soft
    }


def default_scores(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, among: Sequence[Node], workloads: Iterable[Workload]
) -> dict[str, int]:
    """Return the scores of the system default, 0 for all where it does not apply; the lowest is the best."""
    selector = selector_of(workloads, pod)
    if pod.neuron is not None or pod.constraints.spread or not selector.requirements:
        return {node.name: 0 for node in among}
    constraints = [
        SpreadConstraint(HOSTNAME_LABEL, 3, hard=False, selector=selector),
        SpreadConstraint(ZONE_LABEL, 5, hard=False, selector=selector),
    ]
    return {node.name: score(nodes, bound, pod, node, constraints, scored=among, lenient=True) for node in among}


def score(
    nodes: Sequence[Node],
    bound: Sequence[Pod],
    pod: Pod,
    node: Node,
    constraints: Sequence[SpreadConstraint],
    *,
    scored: Sequence[Node],
    lenient: bool = False,
) -> int:
    """Return upstream's score of a node in finer units; `lenient` leaves out the keys that the node lacks."""
    total = 0
    for constraint in constraints:
        domain = domain_of(node, constraint.topology_key)
        if domain is None:
            continue
        if constraint.topology_key == HOSTNAME_LABEL:
            count, size = matching(bound, node, pod, constraint), len(scored)
        else:
            counted = eligible(nodes, pod, constraint, () if lenient else constraints)
            count = by_domain(counted, bound, pod, constraint)[domain]
            size = len({domain_of(other, constraint.topology_key) for other in scored})
        total += count * round(FINENESS * log(size + 2)) + FINENESS * (constraint.max_skew - 1)
    return total


def eligible(
    nodes: Iterable[Node], pod: Pod, constraint: SpreadConstraint, kind: Sequence[SpreadConstraint]
) -> list[Node]:
    return [
        node
        for node in nodes
        if carries(node, kind)
        and (not constraint.honor_affinity or affine(node, pod))
        and not (constraint.honor_taints and untolerated(forbidding(node), pod))
    ]


def carries(node: Node, constraints: Iterable[SpreadConstraint]) -> bool:
    """Return whether a node has the keys of all the constraints."""
    return all(domain_of(node, constraint.topology_key) is not None for constraint in constraints)


def by_domain(nodes: Iterable[Node], bound: Sequence[Pod], pod: Pod, constraint: SpreadConstraint) -> Counter[str]:
    """Return the matching pods in each domain."""
    totals: Counter[str] = Counter()
    for node in nodes:
        domain = domain_of(node, constraint.topology_key)
        if domain is not None:
            totals[domain] += matching(bound, node, pod, constraint)
    return totals


def matching(bound: Iterable[Pod], node: Node, pod: Pod, constraint: SpreadConstraint) -> int:
    """Return how many pods on a node count; an empty selector counts none."""
    selector = constraint.selector
    if selector is None or not selector.requirements:
        return 0
    return sum(
        other.node_name == node.name
        and other.namespace == pod.namespace
        and not other.terminating
        and selector.matches(other.labels)
        for other in bound
    )


def selector_of(workloads: Iterable[Workload], pod: Pod) -> LabelSelector:
    """Return the requirements of all of the pod's workloads together."""
    asked = LabelSelector()
    for workload in workloads:
        selector = workload.selector
        if workload.namespace != pod.namespace or selector is None:
            continue
        owns = pod.owner == Owner(workload.api_version, workload.kind, workload.name)
        if owns or (workload.kind == SERVICE and selector.matches(pod.labels)):
            asked = attrs.evolve(asked, requirements=(*asked.requirements, *selector.requirements))
    return asked
