"""Rules about one node and one pod that several parts of the oracle use."""

from collections.abc import Iterable

from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, Taint


def untolerated(taints: Iterable[Taint], pod: Pod) -> list[Taint]:
    """Return the taints that no toleration of the pod covers."""
    return [taint for taint in taints if not any(t.tolerates(taint) for t in pod.tolerations)]


def forbidding(node: Node) -> list[Taint]:
    return [taint for taint in node.taints if taint.effect is not Effect.PREFER_NO_SCHEDULE]


def domain_of(node: Node, key: str) -> str | None:
    """Return the node's domain of a label; ids of zeros say that the node is in no UltraServer."""
    value = node.labels.get(key)
    return None if "ultraserver-server-id" in key and value == "0000000000000000" else value


def affine(node: Node, pod: Pod) -> bool:
    """Return whether the node selector and some required term match."""
    terms = pod.constraints.required_terms
    return all(node.labels.get(k) == v for k, v in pod.constraints.node_selector.items()) and (
        terms is None or any(term.matches(node.labels, node.name) for term in terms)
    )
