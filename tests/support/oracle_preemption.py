"""
Preemption by trying everything: every set of lower pods of every node, compared by kube-scheduler's criteria.

It shares with the real search which pods a budget selects (`model`); refusals come from `oracle`. It shares no code
that searches for victims or counts budgets.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations
from math import inf

from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from tests.support import oracle

Cost = tuple[float, ...]


def cost(victims: Iterable[Pod], budgets: Sequence[DisruptionBudget]) -> Cost:
    """Return kube-scheduler's criteria, from the documents; smaller is better."""
    ordered = by_importance(victims)
    highest = ordered[0].priority
    starts = [_start(p) for p in ordered if p.priority == highest]
    total = sum(p.priority + 2**31 for p in ordered)
    return (violations(ordered, budgets), highest, total, len(ordered), -min(starts))


def by_importance(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda p: (-p.priority, _start(p), p.key))


def violations(pods: Iterable[Pod], budgets: Sequence[DisruptionBudget]) -> int:
    """Return how many of these pods exceed a budget if only they leave, each budget counted alone."""
    return len(beyond(by_importance(pods), budgets))


def beyond(ordered: Sequence[Pod], budgets: Sequence[DisruptionBudget]) -> set[str]:
    """Return the pods that exceed a budget if these leave in this order."""
    return {p.uid for budget in budgets for p in [p for p in ordered if budget.counts(p)][budget.allowed :]}


def cheapest(
    nodes: Sequence[Node], bound: Sequence[Pod], pending: Pod, budgets: Sequence[DisruptionBudget]
) -> Cost | None:
    """Return the least cost of any set of lower pods of one node whose end would let the pod in; None without any."""
    costs = []
    for node in nodes:
        here = [p for p in bound if p.node_name == node.name]
        fits = _fitting(node, here, pending)
        lower = [p for p in here if p.priority < pending.priority]
        costs += [cost(group, budgets) for group in _groups(lower) if fits(group)]
    return min(costs, default=None)


def reprieved(node: Node, here: Sequence[Pod], pending: Pod, budgets: Sequence[DisruptionBudget]) -> list[Pod]:
    """Return the victims that kube-scheduler would choose on a node (`SelectVictimsOnNode`); none if none suffice."""
    lower = by_importance(p for p in here if p.priority < pending.priority)
    fits, violating, victims = _fitting(node, here, pending), beyond(lower, budgets), list(lower)
    if not lower or not fits(victims):
        return []
    for candidate in sorted(lower, key=lambda p: p.uid not in violating):
        without = [p for p in victims if p is not candidate]
        if fits(without):
            victims = without
    return victims


def _fitting(node: Node, here: Sequence[Pod], pending: Pod) -> Callable[[Sequence[Pod]], bool]:
    """Return a function: does the pod fit when some of the pods on the node have left?"""

    def fits(group: Sequence[Pod]) -> bool:
        left = [p for p in here if p not in group]
        return not oracle.refusals(node, left, pending)

    return fits


def _groups(pods: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    """Yield every set of pods, apart from the empty one: the pod has been refused."""
    return chain.from_iterable(combinations(pods, size) for size in range(1, len(pods) + 1))


def _start(pod: Pod) -> float:
    return inf if pod.started is None else pod.started
