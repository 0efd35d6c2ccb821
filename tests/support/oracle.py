"""
The oracle: a simple scheduler, node by node and pod by pod, directly from the objects.

It shares with the real one the definitions of `model` (what matches what) and of `neuron` (which sets are legal), and
of `cluster` and `scheduling` one sentence only: no index, no running sum, no set of nodes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set as AbstractSet
from fractions import Fraction

import attrs

from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.model.selecting_kinds import Workload
from neuron_scheduler.model.selectors import Effect, Operator, Taint
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.scheduling.plugins import dynamic_resources
from tests.support import oracle_affinity, oracle_blocks
from tests.support.oracle_affinity import Namespaces, affinity_refusals, image_eighths
from tests.support.oracle_node import affine, forbidding, untolerated
from tests.support.oracle_silicon import free_amounts, illegal, no_block, of_silicon, silicon, wholeness
from tests.support.oracle_spread import default_scores, spread_refusals, spread_shares

NO_NAMESPACES: Namespaces = {}
CORDON = Taint("node.kubernetes.io/unschedulable", Effect.NO_SCHEDULE)


@attrs.frozen
class Outcome:
    """The expected outcome: a node with the number of feasible ones, or reasons with their counts."""

    node_name: str | None = None
    feasible: int = 0
    reasons: tuple[tuple[str, int], ...] = ()
    pod_reason: str = ""


def outcome(
    nodes: Iterable[Node],
    bound: Sequence[Pod],
    pod: Pod,
    *,
    workloads: Sequence[Workload] = (),
    namespaces: Namespaces = NO_NAMESPACES,
    rejecting: AbstractSet[str] = frozenset(),
) -> Outcome:
    """Return the outcome of a pod according to the documents."""
    nodes = list(nodes)
    refused = pod_reason(pod)
    if refused:
        return Outcome(pod_reason=refused)
    counts: Counter[str] = Counter()
    feasible: list[Node] = []
    for node in nodes:
        here = [p for p in bound if p.node_name == node.name]
        reasons = (
            refusals(node, here, pod)
            or spread_refusals(nodes, bound, pod, node)
            or affinity_refusals(nodes, bound, pod, node, namespaces)
        )
        counts.update(reasons)
        if not reasons:
            feasible.append(node)
    if not feasible:
        return Outcome(reasons=tuple(sorted(counts.items())))
    among = lowest(feasible, lambda node: node.name in rejecting)
    among = wished_for(nodes, bound, pod, among, namespaces)
    if pod.neuron is not None:
        among = least_missed(nodes, bound, pod, among, workloads)
    return Outcome(node_name=best(nodes, bound, pod, among, workloads).name, feasible=len(feasible))


def wished_for(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, among: Sequence[Node], namespaces: Namespaces
) -> list[Node]:
    """Return the nodes that the pod and other pods prefer, among those with the fewest untolerated taints."""
    among = lowest(among, lambda node: discouragement(node, pod))
    shares = [
        affinity_shares(pod, among),
        spread_shares(nodes, bound, pod, among),
        oracle_affinity.affinity_shares(nodes, bound, pod, among, namespaces),
    ]
    return lowest(among, lambda node: -sum(share.get(node.name, Fraction(0)) for share in shares))


def best(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, among: Sequence[Node], workloads: Sequence[Workload]
) -> Node:
    """Return the best of the nodes: each preference keeps its best ones."""
    if pod.neuron is None:
        among = lowest(among, lambda node: machine_of(node) is not None)
    spread = default_scores(nodes, bound, pod, among, workloads)
    among = lowest(among, lambda node: spread[node.name])
    return min(among, key=lambda node: merit(nodes, bound, node, pod))


def least_missed(
    nodes: Sequence[Node],
    bound: Sequence[Pod],
    pod: Pod,
    among: Sequence[Node],
    workloads: Sequence[Workload],
) -> list[Node]:
    """Return the nodes where the loss of the pod's block costs least, by the sizes of the pods on nodes."""
    spread = default_scores(nodes, bound, pod, among, workloads)
    among = lowest(among, lambda node: spread[node.name])
    here = {node.name: [p for p in bound if p.node_name == node.name] for node in nodes}
    left = {name: silicon(node, here[name]) for node in nodes for name in [node.name]}
    return oracle_blocks.least_missed(
        pod,
        {node.name: node for node in among},
        {name: machinery for name, machinery in left.items() if machinery is not None},
        [
            (p, machinery.machine if (machinery := left[p.node_name]) is not None else None)
            for p in bound
            if p.node_name in left
        ],
    )


def lowest(among: Sequence[Node], key: Callable[[Node], Fraction | int]) -> list[Node]:
    """Return all the nodes with the lowest key."""
    bound = min(key(node) for node in among)
    return [node for node in among if key(node) == bound]


def discouragement(node: Node, pod: Pod) -> int:
    """Return how many PreferNoSchedule taints the pod does not tolerate."""
    taints = [t for t in node.taints if t.effect is Effect.PREFER_NO_SCHEDULE]
    weighing = [t for t in pod.tolerations if t.effect in (None, Effect.PREFER_NO_SCHEDULE)]
    return sum(not any(t.tolerates(taint) for t in weighing) for taint in taints)


def affinity_shares(pod: Pod, among: Sequence[Node]) -> dict[str, Fraction]:
    """Return how well each node serves preferred node affinity, the best 1."""
    terms = pod.constraints.preferred_terms
    weights = {n.name: sum(p.weight for p in terms if p.term.matches(n.labels, n.name)) for n in among}
    highest = max(weights.values())
    return {name: Fraction(weight, highest) for name, weight in weights.items() if highest}


def pod_reason(pod: Pod) -> str:
    """Return why the pod itself is refused; empty if it is not."""
    asked = pod.constraints
    named = names_allowed(pod)
    for wrong, reason in (
        (pod.refusal, pod.refusal),
        (named is not None and not named, "pod affinity terms conflict"),
        (
            asked.inline_volumes,
            'volume "disk" is of an in-tree type that no CSI driver serves; use a PersistentVolumeClaim',
        ),
        (asked.volume_claims, 'persistentvolumeclaim "data" not found'),
        (
            asked.resource_claims,
            dynamic_resources.OFF,
        ),
    ):
        if wrong:
            return reason
    return ""


def names_allowed(pod: Pod) -> set[str] | None:
    """Return the node names that the required terms allow, None if some term names none."""
    allowed: set[str] = set()
    for term in pod.constraints.required_terms or ():
        lists = [set(field.values) for field in term.fields if field.operator is Operator.IN]
        if not lists:
            return None
        allowed |= set.intersection(*lists)
    return allowed if pod.constraints.required_terms else None


def refusals(node: Node, here: Sequence[Pod], pod: Pod) -> list[str]:
    """Return why a node cannot take a pod: the reasons of the first that refuses, in kube-scheduler's order."""
    named = names_allowed(pod)
    cordon = [CORDON] if node.unschedulable else []
    for refused, reason in (
        (named is not None and node.name not in named, "node(s) didn't satisfy plugin(s) [NodeAffinity]"),
        (node.refusal, "node(s) had an object that could not be read"),
        (untolerated(cordon, pod), "node(s) were unschedulable"),
        (pod.node_name not in ("", node.name), "node(s) didn't match the requested node name"),
        (untolerated(forbidding(node), pod), "node(s) had untolerated taint(s)"),
        (not affine(node, pod), "node(s) didn't match Pod's node affinity/selector"),
        (
            any(clash(mine, theirs) for mine in pod.host_ports for other in here for theirs in other.host_ports),
            "node(s) didn't have free ports for the requested pod ports",
        ),
    ):
        if refused:
            return [reason]
    return illegal(node, pod) or lacking(node, here, pod) or no_block(node, here, pod)


def clash(mine: HostPort, theirs: HostPort) -> bool:
    """Return whether two ports exclude each other."""
    everywhere = HostPort("TCP", 1).ip
    same = (mine.protocol, mine.port) == (theirs.protocol, theirs.port)
    return same and (mine.ip == theirs.ip or everywhere in (mine.ip, theirs.ip))


def lacking(node: Node, here: Sequence[Pod], pod: Pod) -> list[str]:
    """Return a reason for each resource of which too little is free."""
    reasons = ["Too many pods"] if len(here) + 1 > node.allocatable.get(PODS, 0) else []
    free = free_amounts(node, here)
    return reasons + [f"Insufficient {name}" for name, amount in pod.requests.items() if amount > free.get(name, 0)]


def merit(nodes: Sequence[Node], bound: Sequence[Pod], node: Node, pod: Pod) -> tuple[object, ...]:
    """Return the values that the last preferences compare, the most important first; the smallest is the best."""
    here = [p for p in bound if p.node_name == node.name]
    whole = 0 if pod.neuron is None else wholeness(nodes, bound, node)
    images = image_eighths(nodes, node, pod)
    return (*of_silicon(node, here, pod, silicon(node, here)), whole, -images, nodes.index(node))
