"""
Sets of pods on trial: does a node take the pod when they are gone, and which set of one node is the lightest?

Counting says which sets may do (`leavers`), the filters decide. Does not ask more than so many questions: what is not
asked is not claimed.
"""

from collections.abc import Generator, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.explain.changes import leavers as counted
from neuron_scheduler.explain.changes.leavers import Group
from neuron_scheduler.explain.changes.question import Question

MOST_TRIALS: Final = 64
"""Questions to the filters in one search; a third of them about one node."""
MOST_GONE: Final = 32
"""Pods in one set: the end of more is nothing to suggest, and every trial moves them in all tables of pods."""
_MOST_SETS: Final = 2048
"""Sets that are made in one search."""
_AT_ONCE: Final = 64
"""Sets that are made in one step."""

_Made = tuple[int, int, frozenset[int], Group, int]
"""Weight, number, base, pods added to it, and the place of the last of these in the order of all."""


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
        sets: how many more sets may be made.
        cut_off: something was not tried.
        too_many: some node would have to lose more pods than are offered.
    """

    question: Question
    left: int = MOST_TRIALS
    sets: int = _MOST_SETS
    cut_off: bool = False
    too_many: bool = False

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

    Where fewer pods never hurt, no set does if all pods together do not, and a pod is in every set if the end of all
    others does not do. A required pod affinity can be hurt.
    """
    pod = trials.question.pod
    leavers = counted.leavers_of(node_info, pod)
    needed: Group = ()
    if not pod.constraints.affinity and len(leavers) <= MOST_GONE:
        if not trials.takes(node_info, leavers):
            return None
        yield None
        needed = yield from _needed(trials, node_info, leavers)
    missing = counted.shortages(node_info, pod)
    last = max(0, trials.left - MOST_TRIALS // 3)
    for weight, group in _by_weight(trials, node_info, leavers, needed):
        if limit is not None and weight >= limit:
            return None
        if trials.left <= last or not trials.sets:
            trials.cut_off = True
            return None
        trials.sets -= 1
        if trials.sets % _AT_ONCE == 0:
            yield None
        gone = tuple(leavers[i] for i in group)
        if gone and counted.suffices(gone, missing):
            if trials.takes(node_info, gone):
                return Departure(node_info.node.name, gone, weight)
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
    trials: Trials, node_info: NodeInfo, leavers: Sequence[PodInfo], needed: Group
) -> Iterator[tuple[int, Group]]:
    """
    Yield the sets that may do, the lightest first: the pods in the way of a block, those needed, and any others.

    Each set is followed by the one with the next pod added, and by the one with that in place of its last.
    """
    pod = trials.question.pod
    weights = [counted.weight(leaver.pod) for leaver in leavers]
    bases = {frozenset((*group, *needed)) for _, group in counted.groups_in_the_way(node_info, pod, leavers)}
    order = sorted(range(len(leavers)), key=lambda i: (weights[i], not counted.is_suspect(leavers[i], pod), i))
    heap: list[_Made] = [(sum(weights[i] for i in base), number, base, (), -1) for number, base in enumerate(bases)]
    heapify(heap)
    numbers = count(len(heap))
    seen: set[frozenset[int]] = set()
    while heap:
        weight, _, base, added, last = heappop(heap)
        group = base.union(added)
        if group not in seen and len(group) <= MOST_GONE:
            seen.add(group)
            yield weight, tuple(sorted(group))
        following = next((place for place in range(last + 1, len(order)) if order[place] not in base), None)
        if following is None:
            continue
        more = weights[order[following]]
        heappush(heap, (weight + more, next(numbers), base, (*added, order[following]), following))
        if added:
            other = weight + more - weights[added[-1]]
            heappush(heap, (other, next(numbers), base, (*added[:-1], order[following]), following))
