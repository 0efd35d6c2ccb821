"""The oracle's part about pod affinity and images: every pod compared with every other, node by node."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import PodAffinityTerm
from tests.support.oracle_node import domain_of

Namespaces = Mapping[str, Mapping[str, str]]

MB = 1 << 20


def affinity_refusals(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, node: Node, namespaces: Namespaces
) -> list[str]:
    """Return why pods on this and other nodes keep a pod away from a node: the first of the reasons."""
    asked = pod.constraints
    places = placed(nodes, bound)
    if asked.affinity and not near(places, pod, node, namespaces):
        return ["node(s) didn't match pod affinity rules"]
    for term in asked.anti_affinity:
        if any(means(term, other, namespaces) and together(term, node, there) for other, there in places):
            return ["node(s) didn't match pod anti-affinity rules"]
    for other, there in places:
        for term in other.constraints.anti_affinity:
            if means(term, pod, namespaces) and together(term, node, there):
                return ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return []


def near(places: Sequence[tuple[Pod, Node]], pod: Pod, node: Node, namespaces: Namespaces) -> bool:
    """Return whether all terms are satisfied, or no pod satisfies them anywhere and the pod itself would."""
    terms = pod.constraints.affinity
    if any(domain_of(node, term.topology_key) is None for term in terms):
        return False
    wanted = [(other, there) for other, there in places if all(means(term, other, namespaces) for term in terms)]
    if all(any(together(term, node, there) for _, there in wanted) for term in terms):
        return True
    somewhere = any(domain_of(there, term.topology_key) is not None for term in terms for _, there in wanted)
    return not somewhere and all(means(term, pod, namespaces) for term in terms)


def affinity_shares(
    nodes: Sequence[Node], bound: Sequence[Pod], pod: Pod, among: Sequence[Node], namespaces: Namespaces
) -> dict[str, Fraction]:
    """Return how well each node serves the preferences of pods, the best 1, the worst 0."""
    scores = {node.name: 0 for node in among}
    for other, there in placed(nodes, bound):
        theirs = other.constraints
        for worth, term, meant in (
            *((t.weight, t, other) for t in pod.constraints.preferred_affinity),
            *((-t.weight, t, other) for t in pod.constraints.preferred_anti_affinity),
            *((1, t, pod) for t in theirs.affinity),
            *((t.weight, t, pod) for t in theirs.preferred_affinity),
            *((-t.weight, t, pod) for t in theirs.preferred_anti_affinity),
        ):
            if means(term, meant, namespaces):
                for node in among:
                    scores[node.name] += worth * together(term, node, there)
    lowest, highest = min(scores.values()), max(scores.values())
    span = highest - lowest
    return {name: Fraction(score - lowest, span) for name, score in scores.items() if span}


def placed(nodes: Sequence[Node], bound: Sequence[Pod]) -> list[tuple[Pod, Node]]:
    """Return the pods on existing nodes, with their nodes."""
    return [(pod, node) for pod in bound for node in nodes if pod.node_name == node.name]


def means(term: PodAffinityTerm, pod: Pod, namespaces: Namespaces) -> bool:
    """Return whether a term matches a pod."""
    if term.selector is None or not term.selector.matches(pod.labels):
        return False
    among = term.namespace_selector
    return pod.namespace in term.namespaces or (among is not None and among.matches(namespaces.get(pod.namespace, {})))


def together(term: PodAffinityTerm, node: Node, other: Node) -> bool:
    """Return whether two nodes are in one domain."""
    domain = domain_of(node, term.topology_key)
    return domain is not None and domain == domain_of(other, term.topology_key)


def image_eighths(nodes: Sequence[Node], node: Node, pod: Pod) -> int:
    """Return how much of the pod's images a node has, in eighths."""
    if not pod.images:
        return 0
    total = 0
    for name in (*pod.images, *pod.volume_images):
        having = sum(size_of(other, name) is not None for other in nodes)
        total += (size_of(node, name) or 0) * having // len(nodes)
    most = 1000 * MB * (len(pod.images) + len(pod.volume_images))
    return 8 * (min(max(total, 23 * MB), most) - 23 * MB) // (most - 23 * MB)


def size_of(node: Node, name: str) -> int | None:
    """Return the size of an image on a node, None if it is absent."""
    return max((image.size for image in node.images if name in image.names), default=None)
