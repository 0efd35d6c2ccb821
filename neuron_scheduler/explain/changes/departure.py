"""
DEPARTURE: pods of one node end or are evicted, and that node then takes the pod.

Smallest: the fewest pods that are not terminating already, then the fewest that are. No other set on any node has
fewer, so no proper part of the named set would do. Which pods may end, `leavers` says: their priority does not matter,
as it does in preemption. Of sets with as few pods, one is named that is cheap by preemption's criteria (budgets,
priorities, how long they have run); not every set is compared.

How few pods a node must lose at least is counted for every node where fewer pods could help (`leavers`), and the
filters are asked about the most promising sets, node by node. If too many nodes or sets would have to be tried, the
search is cut off: a note says so, and that fewer pods may do.
"""

from collections.abc import Generator, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import itemgetter
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.changes import leavers as counted
from neuron_scheduler.explain.changes.departure_text import change_of
from neuron_scheduler.explain.changes.leavers import Group, Leaver
from neuron_scheduler.explain.changes.question import Found, Note, Question
from neuron_scheduler.scheduling.cycle.filters import accepted
from neuron_scheduler.scheduling.preemption.victims import Cost, Victims, by_importance

_AT_ONCE: Final = 64
"""Nodes that are counted in one step."""
_MOST_COMPARED: Final = 32
"""Nodes whose lightest sets are compared by cost."""
_MOST_TRIALS: Final = 96
"""Questions to the filters in one search; a third of them about one node."""
_MOST_SETS: Final = 2048
"""Sets that are made for one node."""
_CUT_OFF: Final = Note(
    "The search for pods whose end would do was cut off; fewer pods may do, or those of another node."
)
_CHANGED: Final = Note("The pods whose end would have done changed during the search.")


@attrs.frozen
class _Departure:
    """A set of pods of one node after whose end the node takes the pod."""

    node_name: str
    gone: tuple[Leaver, ...]
    weight: int


@attrs.define(eq=False)
class _Search:
    """
    One search.

    Attributes:
        trials: how many more questions may be asked.
        cut_off: something was not tried.
    """

    question: Question
    trials: int = _MOST_TRIALS
    cut_off: bool = False

    def takes(self, node_info: NodeInfo, gone: Sequence[Leaver]) -> bool:
        """Return whether a node takes the pod without these pods."""
        self.trials -= 1
        return self.question.decision_with(counted.without(node_info, gone)) is not None

    def row(self, name: str) -> NodeInfo | None:
        """Return the row of a node without what is kept there for the pod itself."""
        node_info, uid = self.question.cluster.node(name), self.question.pod.uid
        if node_info is None or all(nomination.pod.uid != uid for nomination in node_info.nominations):
            return node_info
        kept = tuple(nomination for nomination in node_info.nominations if nomination.pod.uid != uid)
        return attrs.evolve(node_info, nominations=kept)


def find(question: Question) -> Iterator[Found]:
    """Yield the pods of one node whose end would do, if there are any."""
    search = _Search(question)
    yield from question.refusal_warmed_up()
    names = _names(question)
    yield None
    bounds = yield from _bounds(search, names)
    best = yield from _cheapest_of_the_lightest(search, bounds)
    if best is None:
        best = yield from _lightest(search, bounds)
    if search.cut_off:
        yield _CUT_OFF
    if best is None:
        return
    node_info = search.row(best.node_name)
    leavers = [] if node_info is None else counted.leavers_of(node_info, question.pod)
    by_uid = {leaver.pod.uid: leaver for leaver in leavers}
    gone = [by_uid[leaver.pod.uid] for leaver in best.gone if leaver.pod.uid in by_uid]
    if node_info is None or sum(counted.weight(leaver.pod) for leaver in gone) != best.weight:
        yield _CHANGED
    elif search.takes(node_info, gone):
        yield change_of(question, node_info, [leaver.pod for leaver in gone])


def _names(question: Question) -> list[str]:
    """Return the nodes where fewer pods could help: no filter says that none would."""
    cluster = question.cluster
    nodes = cluster.view.live
    with cluster.without_nomination(question.pod.uid):
        for refusal in accepted(cluster, question.pod, question.profile, nodes)[1]:
            if refusal.unresolvable:
                nodes &= ~refusal.nodes
    return [cluster.view.row(slot).node.name for slot in cluster.view.oldest_first(nodes)]


def _bounds(search: _Search, names: Sequence[str]) -> Generator[None, None, list[tuple[int, int, str]]]:
    """Return the nodes with the weight under which none of their sets can do; the lightest and oldest first."""
    bounds: list[tuple[int, int, str]] = []
    for number, name in enumerate(names):
        node_info = search.row(name)
        if node_info is not None and (node_info.pod_infos or node_info.nominations):
            leavers = counted.leavers_of(node_info, search.question.pod)
            least = counted.least(node_info, search.question.pod, leavers)
            if least is not None:
                bounds.append((least, number, name))
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield None
    return sorted(bounds)


def _cheapest_of_the_lightest(
    search: _Search, bounds: Sequence[tuple[int, int, str]]
) -> Generator[None, None, _Departure | None]:
    """Return the cheapest set of the least weight that any node could have, if the filters agree."""
    least = bounds[0][0] if bounds else 0
    candidates: list[tuple[Cost, int, str, tuple[Leaver, ...]]] = []
    for weight, number, name in islice(bounds, _MOST_COMPARED):
        node_info = search.row(name)
        if weight == least and node_info is not None:
            candidates += [(cost, number, name, gone) for cost, gone in _sets_of(search.question, node_info, least)]
            yield None
    for _, _, name, gone in islice(sorted(candidates, key=itemgetter(0, 1)), _MOST_TRIALS // 3):
        node_info = search.row(name)
        if node_info is not None and search.takes(node_info, gone):
            return _Departure(name, gone, least)
        yield None
    return None


def _lightest(search: _Search, bounds: Sequence[tuple[int, int, str]]) -> Generator[None, None, _Departure | None]:
    """Return the lightest set, node by node, as long as another node could have a lighter one."""
    best: _Departure | None = None
    for least, _, name in bounds:
        if best is not None and least >= best.weight:
            break
        if search.trials <= 0:
            search.cut_off = True
            break
        node_info = search.row(name)
        if node_info is not None:
            departure = yield from _lightest_on(search, node_info, None if best is None else best.weight)
            best = departure or best
    return best


def _lightest_on(search: _Search, node_info: NodeInfo, limit: int | None) -> Generator[None, None, _Departure | None]:
    """
    Return the lightest set of one node that is lighter than the limit.

    Where fewer pods never hurt, a pod is in every set if the end of all others does not do. A required pod affinity can
    be hurt.
    """
    pod, name = search.question.pod, node_info.node.name
    leavers = counted.leavers_of(node_info, pod)
    needed: Group = ()
    if not pod.constraints.affinity:
        if not search.takes(node_info, leavers):
            return None
        yield None
        needed = yield from _needed(search, node_info, leavers)
    missing = counted.shortages(node_info, pod)
    last = search.trials - _MOST_TRIALS // 3
    for made, (weight, group) in enumerate(_by_weight(node_info, leavers, search, needed)):
        if limit is not None and weight >= limit:
            return None
        if made >= _MOST_SETS or search.trials <= max(0, last):
            search.cut_off = True
            return None
        if made % _AT_ONCE == _AT_ONCE - 1:
            yield None
        gone = tuple(leavers[i] for i in group)
        if gone and counted.suffices(gone, missing):
            if search.takes(node_info, gone):
                return _Departure(name, gone, weight)
            yield None
    return None


def _needed(search: _Search, node_info: NodeInfo, leavers: Sequence[Leaver]) -> Generator[None, None, Group]:
    """Return the pods that are in every set that would do; none if there are too many pods to ask about each."""
    if len(leavers) > search.trials:
        return ()
    needed: list[int] = []
    for i in range(len(leavers)):
        if not search.takes(node_info, [*leavers[:i], *leavers[i + 1 :]]):
            needed.append(i)
        yield None
    return tuple(needed)


def _by_weight(
    node_info: NodeInfo, leavers: Sequence[Leaver], search: _Search, needed: Group
) -> Iterator[tuple[int, Group]]:
    """Yield every set that may do, the lightest first: the pods in the way of a block, those needed, and any others."""
    weights = [counted.weight(leaver.pod) for leaver in leavers]
    groups = counted.groups_in_the_way(node_info, search.question.pod, leavers)
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


def _sets_of(question: Question, node_info: NodeInfo, weight: int) -> list[tuple[Cost, tuple[Leaver, ...]]]:
    """Return sets of this weight that may do, with their cost."""
    pod = question.pod
    leavers, missing = counted.leavers_of(node_info, pod), counted.shortages(node_info, pod)
    groups: dict[Group, None] = {}
    for light, group in counted.groups_in_the_way(node_info, pod, leavers):
        if light <= weight:
            groups |= dict.fromkeys(counted.completions(group, missing, leavers))
    sets = [tuple(leavers[i] for i in group) for group in groups if group]
    return [
        (_cost(question, gone), gone) for gone in sets if sum(counted.weight(leaver.pod) for leaver in gone) == weight
    ]


def _cost(question: Question, gone: Sequence[Leaver]) -> Cost:
    """Return what preemption would compare these pods by, without those that are terminating already."""
    ending = by_importance(leaver.pod for leaver in gone if not leaver.pod.terminating)
    return Victims(ending, len(question.disruption_allowance.violating(ending))).cost
