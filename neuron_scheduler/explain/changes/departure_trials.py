"""
Sets of pods on trial: does a node take the pod when they are gone, and which set of one node is the lightest?

Counting says which sets may do (`leavers`), the filters decide. Refuses to ask more than so many questions: what is not
asked is not claimed.
"""

from collections.abc import Generator, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.explain.changes import leavers as counted
from neuron_scheduler.explain.changes.leavers import Group
from neuron_scheduler.explain.changes.question import Question

MOST_TRIALS: Final = 64
"""Questions to the filters in one search; a third of them about one node."""
_MOST_SETS: Final = 2048
"""Sets that are made for one node."""
_AT_ONCE: Final = 64
"""Sets that are made in one step."""


@attrs.frozen
class Departure:
    """A set of pods of one node after whose end the node takes the pod."""

    node_name: str
    gone: tuple[PodInfo, ...]
    weight: int


@attrs.define(eq=False)
class Trials:
    """
    The questions to the filters of one search.

    Attributes:
        left: how many more may be asked.
        cut_off: something was not tried.
    """

    question: Question
    left: int = MOST_TRIALS
    cut_off: bool = False

    def takes(self, node_info: NodeInfo, gone: Sequence[PodInfo]) -> bool:
        """Return whether a node takes the pod without these pods."""
        self.left -= 1
        return self.question.decision_with(counted.without(node_info, gone)) is not None

    def row(self, name: str) -> NodeInfo | None:
        """Return the row of a node without what is kept there for the pod itself."""
        node_info, uid = self.question.cluster.node(name), self.question.pod.uid
        if node_info is None or all(nomination.pod.uid != uid for nomination in node_info.nominations):
            return node_info
        kept = tuple(nomination for nomination in node_info.nominations if nomination.pod.uid != uid)
        return attrs.evolve(node_info, nominations=kept)


def lightest_on(trials: Trials, node_info: NodeInfo, limit: int | None) -> Generator[None, None, Departure | None]:
    """
    Return the lightest set of one node that is lighter than the limit.

    Where fewer pods never hurt, a pod is in every set if the end of all others does not do. A required pod affinity can
    be hurt.
    """
    pod, name = trials.question.pod, node_info.node.name
    leavers = counted.leavers_of(node_info, pod)
    needed: Group = ()
    if not pod.constraints.affinity:
        if not trials.takes(node_info, leavers):
            return None
        yield None
        needed = yield from _needed(trials, node_info, leavers)
    missing = counted.shortages(node_info, pod)
    last = trials.left - MOST_TRIALS // 3
    for made, (weight, group) in enumerate(_by_weight(node_info, leavers, trials, needed)):
        if limit is not None and weight >= limit:
            return None
        if made >= _MOST_SETS or trials.left <= max(0, last):
            trials.cut_off = True
            return None
        if made % _AT_ONCE == _AT_ONCE - 1:
            yield None
        gone = tuple(leavers[i] for i in group)
        if gone and counted.suffices(gone, missing):
            if trials.takes(node_info, gone):
                return Departure(name, gone, weight)
            yield None
    return None


def _needed(trials: Trials, node_info: NodeInfo, leavers: Sequence[PodInfo]) -> Generator[None, None, Group]:
    """Return the pods that are in every set that would do; none if there are too many pods to ask about each."""
    if len(leavers) > trials.left:
        return ()
    needed: list[int] = []
    for i in range(len(leavers)):
        if not trials.takes(node_info, [*leavers[:i], *leavers[i + 1 :]]):
            needed.append(i)
        yield None
    return tuple(needed)


def _by_weight(
    node_info: NodeInfo, leavers: Sequence[PodInfo], trials: Trials, needed: Group
) -> Iterator[tuple[int, Group]]:
    """Yield every set that may do, the lightest first: the pods in the way of a block, those needed, and any others."""
    weights = [counted.weight(leaver.pod) for leaver in leavers]
    groups = counted.groups_in_the_way(node_info, trials.question.pod, leavers)
    bases = {tuple(sorted({*group, *needed})) for _, group in groups}
    heap = [(sum(weights[i] for i in base), base, -1) for base in bases]
    heapify(heap)
    seen: set[Group] = set()
    while heap:
        weight, group, last = heappop(heap)
        if group not in seen:
            seen.add(group)
            yield weight, group
        for i in range(last + 1, len(leavers)):
            if i not in group:
                heappush(heap, (weight + weights[i], tuple(sorted((*group, i))), i))
