"""
Whether a node is the machine that a request is for, whether it takes pods already, and whether it has any.

Does not say which of several requests gets it (`requests`).
"""

from collections.abc import Container, Iterable
from typing import Final

from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import Effect, Taint, tolerates_all

PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")
"""Beginnings of the keys of taints that a node loses before it takes pods."""


def serves(node: Node, need: MachineNeed) -> bool:
    """Return whether a node is what a request asks for, by type, zone, labels; it may not be ready yet."""
    required = need.pattern.constraints
    return (
        need.is_met_by(node)
        and all(node.labels.get(key) == value for key, value in required.node_selector.items())
        and (
            required.required_terms is None
            or any(term.matches(node.labels, node.name) for term in required.required_terms)
        )
    )


def is_closed(node: Node, need: MachineNeed, others: Iterable[Node]) -> bool:
    """
    Return whether a node is of a group with taints that the pods of a request do not tolerate, as others have them.

    A taint that no other node has may be one that passes when the node has started.
    """
    closing = {
        taint
        for taint in node.taints
        if not (_passes(taint) or taint.effect is Effect.PREFER_NO_SCHEDULE)
        and not tolerates_all(need.pattern.tolerations, (taint,))
    }
    return bool(closing) and any(not closing.isdisjoint(other.taints) for other in others)


def takes_pods(node: Node, need: MachineNeed) -> bool:
    """Return whether the node of a machine shows its silicon, and is ready for pods."""
    shown = all(node.allocatable.get(name, 0) for name in need.silicon)
    passing = any(taint.effect is not Effect.PREFER_NO_SCHEDULE and _passes(taint) for taint in node.taints)
    return shown and not (passing or node.unschedulable or node.refusal)


def is_used(node_info: NodeInfo, but: Container[str] = ()) -> bool:
    """Return whether pods with Neuron are on a machine, `but` being uids of pods that do not count."""
    return any(pod_info.cores != 0 and uid not in but for uid, pod_info in node_info.pod_infos.items())


def _passes(taint: Taint) -> bool:
    return taint.key.startswith(PASSING)
