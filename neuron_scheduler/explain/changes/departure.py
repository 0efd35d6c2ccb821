"""
DEPARTURE: pods of one node end or are evicted, and that node then takes the pod.

Smallest: the fewest pods that are not terminating already, then the fewest that are. No other set on any node has
fewer, so no proper part of the named set would do. Which pods may end, `leavers` says: their priority does not matter,
as it does in preemption. Of sets with as few pods, one is named that is cheap by preemption's criteria (budgets,
priorities, how long they have run); not every set is compared. Of sets with the same budgets and priorities the one
comes first that ends the fewest pods of other namespaces: the reader can rarely end those.

How few pods a node must lose at least is counted for every node where fewer pods could help (`leavers`), and the
filters are asked about the most promising sets, node by node. If too many nodes or sets would have to be tried, the
search is cut off: a note says so, and that fewer pods may do.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from neuron_scheduler.cluster.index.nodeset import Slot, less, membership
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.explain.changes import leavers as counted
from neuron_scheduler.explain.changes.departure_text import change_of
from neuron_scheduler.explain.changes.departure_trials import MOST_GONE, Departure, Trials, lightest_on
from neuron_scheduler.explain.changes.leavers import LIVE, Group
from neuron_scheduler.explain.changes.question import Found, Note, Question
from neuron_scheduler.scheduling.preemption.victims import Victims, by_importance

_COUNTED_AT_ONCE: Final = 256
_LOOKED_AT_ONCE: Final = 4096
"""Nodes and pods in one step."""
_MOST_COMPARED: Final = 32
"""Nodes whose lightest sets are compared by cost, and sets that are tried then."""
_CUT_OFF: Final = Note(
    "The search for pods whose end would do was cut off; fewer pods may do, or those of another node."
)
_TOO_MANY: Final = Note(f"Some nodes would have to lose more than {MOST_GONE} pods; this is not offered.")
_CHANGED: Final = Note("The pods whose end would have done changed during the search.")

_Place = tuple[Slot, str]
"""A node's slot when the search began, which tells its age, and its name."""
_Order = tuple[tuple[int, float, int, int], int, float]
"""The cost of a preemption, with the number of pods of other namespaces before how long they have run."""
_Bound = tuple[int, Slot, str]
"""A weight under which none of a node's sets can do, and its place."""


def find(question: Question) -> Iterator[Found]:
    """Yield the pods of one node whose end would do, if there are any."""
    trials = Trials(question)
    yield from question.refusal_warmed_up()
    best = yield from _smallest(trials)
    if trials.cut_off:
        yield _CUT_OFF
    if best is None:
        if trials.too_many:
            yield _TOO_MANY
        return
    node_info = trials.row(best.node_name)
    leavers = [] if node_info is None else counted.leavers_of(node_info, question.pod)
    by_uid = {leaver.pod.uid: leaver for leaver in leavers}
    gone = [by_uid[leaver.pod.uid] for leaver in best.gone if leaver.pod.uid in by_uid]
    if node_info is None or sum(counted.weight(leaver.pod) for leaver in gone) != best.weight:
        yield _CHANGED
    elif trials.takes(node_info, gone):
        yield change_of(question, node_info, [leaver.pod for leaver in gone])


def _smallest(trials: Trials) -> Generator[None, None, Departure | None]:
    """
    Return the smallest set of any node.

    Sets of pods that are all terminating come first. Then no set is lighter than one live pod: once enough nodes are
    known where one may do, the other nodes need not be counted.
    """
    names = _names(trials.question)
    yield None
    ending, others = yield from _with_ending_pods(trials, names)
    bounds = yield from _bounds(trials, iter(ending))
    best = yield from _lightest(trials, [bound for bound in bounds if bound[0] < LIVE], LIVE)
    if best is not None:
        return best
    bounds = [(max(least, LIVE), slot, name) for least, slot, name in bounds]
    rest = iter(others)
    bounds += yield from _bounds(trials, rest, enough=_MOST_COMPARED)
    best = yield from _cheapest(trials, [bound for bound in bounds if bound[0] == LIVE], LIVE)
    if best is not None:
        return best
    bounds += yield from _bounds(trials, rest)
    best = yield from _lightest(trials, bounds, None)
    return best


def _names(question: Question) -> list[_Place]:
    """Return the nodes where fewer pods could help: no filter says that they would not, whatever the others say."""
    view, pod = question.cluster.view, question.pod
    nodes = view.live
    with question.cluster.without_nomination(pod.uid):
        for step in question.profile.plan(pod).filters:
            for refusal in step.refuse(view, pod, nodes):
                if refusal.unresolvable:
                    nodes = less(nodes, refusal.nodes)
    size = nodes.bit_length()
    is_one = membership(nodes, size)
    return [(slot, view.row(slot).node.name) for slot in map(Slot, range(size)) if is_one(slot)]


def _with_ending_pods(
    trials: Trials, places: Sequence[_Place]
) -> Generator[None, None, tuple[list[_Place], list[_Place]]]:
    """Return the nodes that have terminating pods, and the others."""
    ending, others = list[_Place](), list[_Place]()
    looked_at = 0
    for place in places:
        node_info = trials.question.cluster.node(place[1])
        infos = () if node_info is None else node_info.pod_infos.values()
        (ending if any(info.pod.terminating for info in infos) else others).append(place)
        looked_at += 1 + len(infos)
        if looked_at >= _LOOKED_AT_ONCE:
            looked_at = 0
            yield None
    return ending, others


def _bounds(
    trials: Trials, places: Iterator[_Place], *, enough: int | None = None
) -> Generator[None, None, list[_Bound]]:
    """Return what nodes must lose at least; it stops at so many of which one live pod may be enough."""
    bounds: list[_Bound] = []
    may_do = counted_pods = 0
    for slot, name in places:
        node_info = trials.row(name)
        leavers = [] if node_info is None else counted.leavers_of(node_info, trials.question.pod)
        least = None if node_info is None else counted.least(node_info, trials.question.pod, leavers)
        trials.too_many |= least is not None and least > MOST_GONE * LIVE
        if least is not None and least <= MOST_GONE * LIVE:
            bounds.append((least, slot, name))
            may_do += least <= LIVE
        if may_do == enough:
            break
        counted_pods += 1 + len(leavers)
        if counted_pods >= _COUNTED_AT_ONCE:
            counted_pods = 0
            yield None
    return bounds


def _lightest(trials: Trials, bounds: list[_Bound], limit: int | None) -> Generator[None, None, Departure | None]:
    """Return the lightest set that is lighter than the limit: first by cost, then node by node."""
    bounds = sorted(bounds)
    least = bounds[0][0] if bounds else 0
    best = yield from _cheapest(trials, bounds, least)
    if best is not None:
        return best
    for bound, _, name in bounds:
        lightest = limit if best is None else best.weight
        if lightest is not None and bound >= lightest:
            break
        if trials.left <= 0:
            trials.cut_off = True
            break
        node_info = trials.row(name)
        if node_info is not None:
            departure = yield from lightest_on(trials, node_info, lightest)
            best = departure or best
            yield None
    return best


def _cheapest(trials: Trials, bounds: Sequence[_Bound], least: int) -> Generator[None, None, Departure | None]:
    """Return the cheapest set of the least weight that any node could have, if the filters agree."""
    candidates: list[tuple[_Order, Slot, str, tuple[PodInfo, ...]]] = []
    for weight, slot, name in islice(bounds, _MOST_COMPARED):
        node_info = trials.row(name)
        if weight == least and node_info is not None:
            candidates += [(order, slot, name, gone) for order, gone in _sets_of(trials.question, node_info, least)]
            yield None
    for _, _, name, gone in islice(sorted(candidates, key=itemgetter(0, 1)), _MOST_COMPARED):
        node_info = trials.row(name)
        if node_info is not None and trials.takes(node_info, gone):
            return Departure(name, gone, least)
        yield None
    return None


def _sets_of(question: Question, node_info: NodeInfo, weight: int) -> list[tuple[_Order, tuple[PodInfo, ...]]]:
    """Return sets of this weight that may do, with what they are compared by."""
    pod = question.pod
    leavers, missing = counted.leavers_of(node_info, pod), counted.shortages(node_info, pod)
    groups: dict[Group, None] = {}
    for light, group in counted.groups_in_the_way(node_info, pod, leavers):
        if light <= weight:
            groups |= dict.fromkeys(counted.completions(group, missing, leavers))
    sets = [tuple(leavers[i] for i in group) for group in groups if group]
    return [
        (_order(question, gone), gone) for gone in sets if sum(counted.weight(leaver.pod) for leaver in gone) == weight
    ]


def _order(question: Question, gone: Sequence[PodInfo]) -> _Order:
    """Return what these pods are compared by, without those that are terminating already: the smaller the better."""
    ending = by_importance(leaver.pod for leaver in gone if not leaver.pod.terminating)
    cost = Victims(ending, len(question.disruption_allowance.violating(ending))).cost
    return cost[:4], sum(pod.namespace != question.pod.namespace for pod in ending), cost[4]
