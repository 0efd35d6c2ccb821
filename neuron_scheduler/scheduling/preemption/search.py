"""
DefaultPreemption: which pods to evict, so that a pod that fits nowhere gets a node.

    which nodes refused for a reason that fewer pods could change?           (the filters' own answer)
    would the pod fit if all pods up to some priority left?                  (one question to all nodes)
    on those, by the lowest such priority: exactly which pods, what cost?    (`victims`)
    the cheapest by kube-scheduler's criteria                                (`Comparison`)

Upstream: `plugins/defaultpreemption/default_preemption.go`, `framework/preemption/preemption.go`. The search pauses
between nodes and within one; its result must be confirmed in the step that acts on it (`nominations`).
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Any, Final, cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination, evictable
from neuron_scheduler.cluster.tables.budgets import Selecting
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import FEW_COMPARISONS, Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.filters import nomination_priorities, walk
from neuron_scheduler.scheduling.cycle.index_warmup import asks_much
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import counts_by_reason, nodes_not_refused, resolvable_nodes
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins.contract import Refusal
from neuron_scheduler.scheduling.plugins.inter_pod_affinity import BY_PLACED_PODS
from neuron_scheduler.scheduling.plugins.registry import COUNTING_PODS
from neuron_scheduler.scheduling.preemption.units import Units, UnitState
from neuron_scheduler.scheduling.preemption.victims import (
    Cost,
    Incoming,
    Victims,
    has_none_cheaper,
    victims_by_counting,
    victims_on,
)

NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
ASKS_MUCH = f"not eligible with more than {FEW_COMPARISONS} terms about other pods, or with long claims."
MOST_ROUNDS = 4
"""Questions to all nodes; where there are more priorities, several are taken together."""

NOBODY: frozenset[str] = frozenset()
_AT_ONCE = 64
"""Nodes that are looked at in a row; then other tasks may run."""
_MOST_QUESTIONS: Final = 64
_MOST_ANSWERS: Final = 16
"""That are kept with a row."""
_NO_ROOM: Final = (inf,)
"""The cost where counting finds no victims: the filters say why."""
_SETTLED: Final = (inf, inf)
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
FEWEST_CANDIDATES: Final = 100
PERCENT_OF_NODES: Final = 10
"""Of the nodes that may fit, so many candidates are compared, at least the fewest (upstream's defaults)."""
MOST_CANDIDATES: Final = 1000
"""Which upstream does not bound: each of a group's members has as many."""


def priorities_on(node_info: NodeInfo) -> Values:
    return tuple(node_info.priorities)


@attrs.frozen(cache_hash=True)
class WithoutLowerPriority:
    """Overlay: rows without the pods below a priority."""

    below: int

    @property
    def marks(self) -> Callable[[NodeInfo], Values]:
        return priorities_on

    def changes(self, mark: Hashable) -> bool:
        return cast(int, mark) < self.below

    def __call__(self, node_info: NodeInfo) -> NodeInfo:
        return node_info.without_lower_priority(self.below)


@attrs.frozen
class Preemption:
    """Pods of one node are evicted for a pod."""

    node_name: str
    victims: Victims


@attrs.frozen
class NoPreemption:
    """
    No pod is evicted.

    Attributes:
        text: why, as it is appended to the message about the refused pod.
        gives_up: no node can be made to fit, so the pod loses its nomination.
        plugins: the plugins whose answer has to change; empty for those that refused the pod.
    """

    text: str
    gives_up: bool = False
    plugins: frozenset[str] = frozenset()


@attrs.frozen
class _RowCost:
    """
    What the cheapest victims of a row cost by counting, kept with the row.

    Attributes:
        budgets_of_pods: the budgets on which that depends.
        selecting: what all budgets of the pods' namespaces selected then.
        members: how many of the pods each group has.
        states: of these groups; their other members change all the time.
    """

    cost: Cost
    budgets_of_pods: tuple[DisruptionBudget, ...]
    selecting: tuple[tuple[str, Selecting], ...]
    members: tuple[tuple[GroupKey, int], ...]
    states: tuple[UnitState, ...]

    def holds(self, incoming: Incoming, units: Units) -> bool:
        """Return whether no budget has come that may select one of the pods, and theirs and the groups are as then."""
        allowance = incoming.disruption_allowance
        if not all(allowance.selecting(namespace) is then for namespace, then in self.selecting):
            return False
        return all(map(allowance.has, self.budgets_of_pods)) and self.states == (
            units.known_states(self.members, incoming.pod.priority) if self.members else ()
        )


@memoise(maxsize=_MOST_QUESTIONS)
def _question(
    _requests: frozenset[tuple[str, int]], _neuron: NeuronRequest | None, _priority: int, _below: int
) -> object:
    """Return the key of a row's answer for pods that are alike in counting, always the same object."""
    return object()


@attrs.define(eq=False)
class Comparison:
    """
    The candidates of one search: the best so far, and why other nodes are none.

    A candidate is a node with the pods that would leave it. Upstream: `pickOneNodeForPreemption`. All are counted; the
    filters are asked about the cheapest only.

    Attributes:
        helpful: number of nodes that refused for a reason that fewer pods could change.
        best: the cheapest that the filters have confirmed.
        counted: the rows of the nodes that were looked at one by one.
        costs: what the victims of each cost by counting, `_SETTLED` once the filters were asked.
        is_within: whether some candidate keeps to the budgets.
        refused: number of counted nodes that cannot be made to fit.
        without_victims: number of helpful nodes without a pod of lower priority.
        reasons, asked_reasons: how many nodes would refuse even if all pods of lower priority left.
        plugins: the plugins whose answer has to change: that refused the pod, or would on these nodes.
    """

    helpful: int
    best: Preemption | None = None
    counted: list[NodeInfo] = attrs.field(factory=list)
    costs: list[Cost] = attrs.field(factory=list)
    is_within: bool = False
    refused: int = 0
    without_victims: int = 0
    reasons: Counter[str] = attrs.field(factory=Counter)
    asked_reasons: Counter[str] = attrs.field(factory=Counter)
    plugins: set[str] = attrs.field(factory=set)

    @property
    def limit(self) -> Cost | None:
        """What another candidate must cost less than; None as long as there is none."""
        return None if self.best is None else self.best.victims.cost

    @property
    def plenty(self) -> int:
        """How many nodes have to be counted so that as many candidates are compared as have to be."""
        tenth = self.helpful * PERCENT_OF_NODES // 100
        return max(FEWEST_CANDIDATES, min(tenth, MOST_CANDIDATES)) + self.refused

    @property
    def has_enough(self) -> bool:
        """Whether there are plenty of candidates, and one keeps to the budgets."""
        return self.is_within and len(self.costs) >= self.plenty

    def is_decided(self, below: int) -> bool:
        """Return whether no further node can be better: on each, a pod of priority `below` or higher must leave."""
        return self.has_enough or (self.best is not None and has_none_cheaper(below, self.best.victims.cost))

    def cheapest(self) -> int | None:
        """Return the first counted node that may have cheaper victims than the best; None if no node has."""
        cost = min(self.costs, default=_SETTLED)
        return None if cost >= (self.limit or _SETTLED) else self.costs.index(cost)

    def add(self, rows: Sequence[NodeInfo], costs: Sequence[Cost]) -> None:
        """Add rows that were counted, with what their victims cost."""
        self.counted += rows
        self.costs += costs
        self.is_within = self.is_within or not min(costs)[0]

    def settle(self, number: int, result: Victims | list[Refusal] | None) -> None:
        """Take in the result of a counted node: victims cheaper than the best, None if there are none, or refusals."""
        self.costs[number] = _SETTLED
        if isinstance(result, list):
            self.refused += 1
            self.asked_reasons += counts_by_reason(result)
            self.plugins.update(refusal.plugin for refusal in result)
        elif result is not None:
            self.best = Preemption(self.counted[number].node.name, result)
        self.is_within = (self.best is not None and not self.best.victims.violations) or not min(self.costs)[0]

    def outcome(self, nodes: int) -> Preemption | NoPreemption:
        """Return the best candidate, or why there is none among so many nodes."""
        if self.best is not None:
            return self.best
        counts = self.reasons + self.asked_reasons
        counts += Counter({NOT_HELPFUL: nodes - self.helpful, NO_VICTIMS: self.without_victims})
        text = FitError(nodes, tuple(counts.items())).text
        return NoPreemption(f"preemption: {text}", gives_up=True, plugins=frozenset(self.plugins))


def search(
    cluster: Cluster,
    pod: Pod,
    profile: Profile,
    *,
    refused: FitError,
    units: Units | None = None,
) -> Generator[None, None, Preemption | NoPreemption]:
    """
    Return the cheapest pods to evict, within the budgets; yields whenever other tasks may run.

    The cluster may change in between: node sets are not valid after such a pause, names are.
    """
    nomination = cluster.nomination(pod.uid)
    with cluster.without_nomination(pod.uid):
        helpful, against = (
            (NO_NODES, frozenset[str]()) if refused.pod_reason else resolvable_nodes(cluster, pod, profile)
        )
        crowded = _refusals_by_counting(cluster.view, pod, profile, helpful)
    against |= {refusal.plugin for refusal in crowded}
    may_fit = nodes_not_refused(helpful, crowded)
    reason = _not_eligible(cluster, pod, nomination, helpful)
    if reason:
        return NoPreemption(f"preemption: {reason}", plugins=frozenset() if may_fit else against)
    yield from cluster.view.prepare(lambda view: (view.postings(priorities_on), view.postings(nomination_priorities)))
    comparison = Comparison(helpful.bit_count())
    if crowded and _lower(cluster, pod.priority):
        yield from cluster.view.prepare(lambda view: _refusals_by_counting(view, pod, profile, NO_NODES, emptied=True))
    units = units or Units(cluster)
    incoming = Incoming(pod, profile, units.allowance, units)
    for below in _bounds(cluster, pod.priority) if helpful else ():
        overlaid = cluster.view.with_overlay(WithoutLowerPriority(below))
        yield from overlaid.prepare(lambda view: _warm_up(view, pod, profile.without(BY_PLACED_PODS)))
        rows, is_last = _with_room(cluster, pod, profile, below, comparison, is_crowded=bool(crowded)), False
        yield
        while not (is_last or comparison.has_enough):
            is_last = yield from _count(rows, incoming, units, below, comparison)
            yield from _ask_filters(cluster, incoming, below, comparison)
        if comparison.is_decided(below):
            break
    comparison.plugins.update(against, refused.plugins if may_fit or comparison.counted else ())
    return comparison.outcome(refused.nodes)


def _count(
    rows: Iterator[NodeInfo], incoming: Incoming, units: Units, below: int, comparison: Comparison
) -> Generator[None, None, bool]:
    """Count rows until there are enough candidates; return whether no row is left. Most answers are there already."""
    pod = incoming.pod
    question = _question(frozenset(pod.requests.items()), pod.neuron, pod.priority, below)
    if comparison.counted:
        names = {row.node.name for row in comparison.counted}
        rows = (row for row in rows if row.node.name not in names)
    while not comparison.has_enough:
        lacking = comparison.plenty - len(comparison.costs)
        some = list(islice(rows, min(max(lacking, 1), _AT_ONCE)))
        if not some:
            return True
        yield
        if lacking < 1 and not _has_spare_pod(some[0], incoming):
            continue
        answers: list[Any] = [row.answers.get(question) for row in some]
        for number in [n for n, answer in enumerate(answers) if not (answer and answer.holds(incoming, units))]:
            answers[number] = yield from _row_cost(some[number], incoming, units, below, answers[number])
            _keep(some[number], question, answers[number])
            yield
        comparison.add(some, [answer.cost for answer in answers])
    return False


def _keep(node_info: NodeInfo, question: object, answer: _RowCost) -> None:
    if len(node_info.answers) >= _MOST_ANSWERS:
        node_info.answers.clear()
    node_info.answers[question] = answer


def _row_cost(
    node_info: NodeInfo, incoming: Incoming, units: Units, below: int, before: _RowCost | None
) -> Generator[None, None, _RowCost]:
    """Return what a row's pods cost by counting; as `before`, if no budget or group of the pods has changed since."""
    allowance, pods = incoming.disruption_allowance, _evictable_pods(node_info, incoming.pod.priority)
    members = tuple(Counter([pod.group.key for pod in pods if pod.group is not None]).items())
    states = (yield from units.states(members, incoming.pod.priority)) if members else ()
    selecting = tuple([(namespace, allowance.selecting(namespace)) for namespace in {pod.namespace for pod in pods}])
    on = allowance.budgets_of(pods), selecting, members, states
    if before is not None and (before.budgets_of_pods, before.states) == (on[0], states):
        return _RowCost(before.cost, *on)
    victims = yield from victims_by_counting(node_info, incoming, incoming.leavers(node_info), below)
    return _RowCost(_NO_ROOM if victims is None else victims.cost, *on)


def _ask_filters(
    cluster: Cluster, incoming: Incoming, below: int, comparison: Comparison
) -> Generator[None, None, None]:
    """Ask the filters about the cheapest candidate, and about others as long as they may be cheaper than the best."""
    while (number := comparison.cheapest()) is not None:
        name = comparison.counted[number].node.name
        comparison.settle(number, (yield from _victims_on(cluster, name, incoming, below, comparison.limit)))
        yield


def _not_eligible(cluster: Cluster, pod: Pod, nomination: tuple[str, Nomination] | None, helpful: NodeSet) -> str:
    """
    Return why no pod may be evicted for this pod now; empty if they may.

    After a restart in the middle of the evictions, only the pod's status names its node: it does not fit there yet.
    """
    if pod.never_preempts:
        return NEVER
    if asks_much(pod):
        return ASKS_MUCH
    name, victims, cores = pod.nominated_node_name, NOBODY, NO_CORES
    if nomination is not None and not nomination[1].awaited:
        name, victims, cores = nomination[0], nomination[1].victims, nomination[1].cores
    slot = cluster.view.slot(name)
    if slot is None or not helpful >> slot & 1:
        return ""  # also if no eviction would help on the nominated node any more
    node_info = cluster.view.row(slot)
    waiting = any(
        uid in victims or is_leaving(node_info.pod_infos[uid].pod) for uid in evictable(node_info, pod.priority)
    )
    return WAITING if waiting or node_info.claimed.alone & cores else ""


def is_leaving(victim: Pod) -> bool:
    """Return whether a pod is terminating because it was evicted by a scheduler."""
    return victim.terminating and victim.preempted > 0


def _refusals_by_counting(
    view: View, pod: Pod, profile: Profile, among: NodeSet, *, emptied: bool = False
) -> list[Refusal]:
    """Return the refusals by what a pod asks about others, also if a node is `emptied` of those that could leave."""
    found = list[Refusal]()
    for step in profile.steps_for(pod).filters:
        if step.refuse_emptied is not None:
            for refusal in (step.refuse_emptied if emptied else step.refuse)(view, pod, among):
                found += [refusal] if refusal.nodes else []
                among = less(among, refusal.nodes)
    return found


def _lower(cluster: Cluster, priority: int) -> list[int]:
    values = cluster.view.postings(priorities_on).values
    return sorted(value for value in values if isinstance(value, int) and value < priority)


def _bounds(cluster: Cluster, priority: int) -> list[int]:
    """Return, for each round, the priority below which all pods are assumed gone; searches share them."""
    bounds = [value + 1 for value in _lower(cluster, priority)] or [priority]
    step = -(-len(bounds) // MOST_ROUNDS)
    return bounds[::-1][::step][::-1]


def prepare_rounds(cluster: Cluster, pod: Pod, profile: Profile) -> Iterator[None]:
    """Build the indexes of all rounds, a few rows at a time: searches on several forks need them."""
    for below in _bounds(cluster, pod.priority):
        overlaid = cluster.view.with_overlay(WithoutLowerPriority(below))
        yield from overlaid.prepare(lambda view: _warm_up(view, pod, profile.without(BY_PLACED_PODS)))


def _warm_up(view: View, pod: Pod, profile: Profile) -> None:
    """Ask every filter, whatever the others answer."""
    for step in profile.steps_for(pod).filters:
        step.refuse(view, pod, view.live)


def _with_room(
    cluster: Cluster, pod: Pod, profile: Profile, below: int, comparison: Comparison, *, is_crowded: bool
) -> Iterator[NodeInfo]:
    """Return the rows that would fit if all pods below a priority left; note why the others would not."""
    with cluster.without_nomination(pod.uid):
        helpful, against = resolvable_nodes(cluster, pod, profile)
        comparison.plugins.update(against)
        among = helpful & cluster.view.postings(priorities_on).any_of(_lower(cluster, pod.priority))
        crowded = _refusals_by_counting(cluster.view, pod, profile, among, emptied=True) if is_crowded and among else []
        # Else plugins that count pods are asked node by node: the pods of other nodes stay.
        nodes, refusals = walk(
            cluster.view.with_overlay(WithoutLowerPriority(below)),
            pod,
            profile,
            nodes_not_refused(among, crowded),
            ignored_plugins=COUNTING_PODS,
        )
        refusals += crowded
        comparison.reasons = counts_by_reason(refusals)
        comparison.plugins.update(refusal.plugin for refusal in refusals)
        comparison.without_victims = (helpful & ~among).bit_count()
        return cluster.view.rows_of(nodes)


def _has_spare_pod(node_info: NodeInfo, incoming: Incoming) -> bool:
    """Return whether some pod of a node may be evicted within the budgets."""
    return any(map(incoming.disruption_allowance.allows, _evictable_pods(node_info, incoming.pod.priority)))


def _evictable_pods(node_info: NodeInfo, priority: int) -> list[Pod]:
    """Return the pods of `evictable`, in any order."""
    pod_infos = node_info.pod_infos.values()
    return [pod_info.pod for pod_info in pod_infos if pod_info.pod.priority < priority and pod_info.is_evictable]


def _victims_on(
    cluster: Cluster, name: str, incoming: Incoming, below: int, limit: Cost | None
) -> Generator[None, None, Victims | list[Refusal] | None]:
    """Return the result of a node; one that changes in a pause is looked at again, in one step."""
    slot, node_info, steps, may_pause = None, None, None, True
    while True:
        slot_now = cluster.view.slot(name)
        if slot_now is None:
            return []
        if steps is None or slot_now != slot or cluster.view.row(slot_now) is not node_info:
            slot, node_info, may_pause = slot_now, cluster.view.row(slot_now), steps is None
            steps = victims_on(cluster, slot, incoming, below=below, limit=limit)
        try:
            with cluster.without_nomination(incoming.pod.uid):
                next(steps)
        except StopIteration as end:
            found: Victims | list[Refusal] | None = end.value
            return found
        if may_pause:
            yield
