"""
Which pods one node would have to lose for an incoming pod, and what that costs.

Upstream: `SelectVictimsOnNode` and `pickOneNodeForPreemption` (`plugins/defaultpreemption`, `framework/preemption`).
Neuron makes a difference: reprieves in order of importance may free any block, not the cheapest. So a candidate is a
node *and* a legal block: the pods on the block's cores must leave, all others are reprieved in upstream's order, and
blocks are compared by upstream's criteria, as nodes are.

The dry run is made by counting resources and cores, which takes a hundredth of the time of the filters. If the result
is cheaper than what is known from other nodes, the filters confirm it; where they refuse it, they make the dry run.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache, partial, reduce
from math import inf
from operator import or_
from typing import Final, Self

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo, evictable, with_pod, without_pods
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.packing import MOST_REMEMBERED
from neuron_scheduler.neuron.topology import legal_sets
from neuron_scheduler.scheduling.cycle.index_warmup import asks_much
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import refusals_on
from neuron_scheduler.scheduling.plugins import inter_pod_affinity
from neuron_scheduler.scheduling.plugins.contract import Refusal
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance
from neuron_scheduler.scheduling.preemption.units import EvictionUnit, Units

_TO_POSITIVE = 1 << 31
"""Added to every priority, so that a few pods of negative priority are cheaper than many."""
_AT_ONCE: Final = 64
"""Pods that are put back on trial in one step."""
Cost = tuple[float, ...]
"""What candidates are compared by, the smaller the better; more victims never cost less."""


@attrs.define(eq=False)
class ByCounting:
    """
    A node without some of its pods, on which an incoming pod is tried: by counting resources, and no more.

    Attributes:
        left: how much of each resource that the pod asks for is left beside it, below 0 if there is too little.
    """

    left: dict[str, int]

    @classmethod
    def without(cls, gone: Iterable[Pod], node_info: NodeInfo, pod: Pod) -> Self:
        """Count what is left on a node beside a pod when others are gone."""
        offered, used = node_info.node.allocatable, node_info.used
        left = {name: offered.get(name, 0) - used.get(name, 0) - need for name, need in pod.requests.items() if need}
        left[PODS] = offered.get(PODS, 0) - used.get(PODS, 0) - 1
        for other in gone:
            left[PODS] += 1
            for name, amount in other.requests.items():
                if name in left:
                    left[name] += amount
        return cls(left)

    def fits(self) -> bool:
        return min(self.left.values()) >= 0

    def without_reprieve(self, others: Iterable[Pod]) -> set[str]:
        """Put others back, one after the other, if the incoming pod fits beside them; return the uids of the rest."""
        return {other.uid for other in others if not self._reprieve(other)}

    def _reprieve(self, other: Pod) -> bool:
        left, requests = self.left, other.requests
        if left[PODS] < 1 or any(amount > left.get(name, amount) for name, amount in requests.items()):
            return False
        left[PODS] -= 1
        for name, amount in requests.items():
            if name in left:
                left[name] -= amount
        return True


@attrs.define(eq=False)
class ByFilters:
    """
    The same trial, by asking the filters.

    Attributes:
        keepers: uids of pods that keep the incoming pod away; None if it is the filters that say so.
    """

    cluster: Cluster
    slot: Slot
    pod: Pod
    profile: Profile
    node_info: NodeInfo
    keepers: Collection[str] | None = None

    def refusals(self) -> list[Refusal]:
        """Return why the node, as it is on trial, refuses the incoming pod."""
        with self._with_row(self.node_info):
            return refusals_on(self.cluster, self.slot, self.pod, self.profile)

    def fits(self) -> bool:
        return self.node_info.pod_infos.keys().isdisjoint(self.keepers or ()) and not self.refusals()

    def without_reprieve(self, others: Iterable[Pod]) -> set[str]:
        """
        Put others back, one after the other, if the incoming pod fits beside them; return the uids of the rest.

        The row stays replaced meanwhile: each pod is a change of the counts by one, and not by all that are gone.
        Those that were put back stay on trial.
        """
        whole, left = self.cluster.view.row(self.slot), set[str]()
        with ExitStack() as kept:
            kept.enter_context(self._with_row(self.node_info))
            for other in others:
                if self.keepers is not None and other.uid in self.keepers:
                    left.add(other.uid)
                    continue
                beside = with_pod(self.cluster.view.row(self.slot), whole.pod_infos[other.uid])
                with ExitStack() as tried:
                    tried.enter_context(self._with_row(beside))
                    if refusals_on(self.cluster, self.slot, self.pod, self.profile):
                        left.add(other.uid)
                    else:
                        kept.enter_context(tried.pop_all())
                        self.node_info = beside
        return left

    def _with_row(self, node_info: NodeInfo) -> AbstractContextManager[None]:
        return self.cluster.row_replaced(self.slot, node_info, with_terms=self.keepers is None)


@attrs.frozen
class Victims:
    """
    Pods of one node that would have to leave.

    Attributes:
        pods: the most important first.
        violations: how many of all that have to leave go beyond what their budgets allow.
        units: those that lose too many members by it, so that all of them leave, on other nodes, too.
    """

    pods: tuple[Pod, ...]
    violations: int
    units: tuple[EvictionUnit, ...] = ()

    @property
    def cost(self) -> Cost:
        """
        Budget violations, the highest priority, the sum of priorities, the number of pods, and how early the first of
        the highest priority was started: the least work lost. One that was not started counts as started now.
        """
        if not self.pods:
            return (self.violations, -inf, 0, 0, -inf)
        if self.units:
            return self._cost_of_units()
        highest = self.pods[0].priority
        earliest = min(_start_of(pod) for pod in self.pods if pod.priority == highest)
        total = sum(pod.priority + _TO_POSITIVE for pod in self.pods)
        return (self.violations, highest, total, len(self.pods), -earliest)

    def _cost_of_units(self) -> Cost:
        """Return the same with the members on other nodes; the priority of a unit is that of its group."""
        keys = {unit.key for unit in self.units}
        alone = [pod for pod in self.pods if pod.group is None or pod.group.key not in keys]
        starts = [*((unit.highest, unit.earliest) for unit in self.units)]
        starts += [(pod.priority, _start_of(pod)) for pod in alone]
        highest = max(priority for priority, _ in starts)
        count = len(alone) + sum(unit.count for unit in self.units)
        total = sum(pod.priority for pod in alone) + sum(unit.total for unit in self.units) + count * _TO_POSITIVE
        earliest = min(start for priority, start in starts if priority == highest)
        return (self.violations, highest, total, count, -earliest)


def by_importance(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods from the most to the least important."""
    return tuple(sorted(pods, key=importance_of))


def importance_of(pod: Pod) -> tuple[int, float, str]:
    """Return what is less for the more important of two pods: higher priority, then started earlier, then by name."""
    return (-pod.priority, _start_of(pod), pod.key)


@attrs.frozen
class Incoming:
    """
    The pod that needs room, its profile, and what the budgets of the other pods allow.

    Attributes:
        units: which pods leave together; None if each leaves alone.
        spared: uids of pods of lower priority that cannot be evicted.

    The methods are the rules of preemption; another search for pods that must leave has rules of its own.
    """

    pod: Pod
    profile: Profile
    disruption_allowance: DisruptionAllowance
    units: Units | None = None
    spared: frozenset[str] = frozenset()

    def leavers(self, node_info: NodeInfo) -> Sequence[Pod]:
        """Return the pods that may leave a node, the most important first."""
        lower = evictable(node_info, self.pod.priority)
        pods = by_importance(node_info.pod_infos[uid].pod for uid in lower if uid not in self.spared)
        units, priority = self.units, self.pod.priority
        return pods if units is None else [pod for pod in pods if units.may_leave(pod, priority)]

    def victims(self, gone: Sequence[Pod], leavers: Sequence[Pod]) -> Victims:
        """Return some leavers as victims, with those that leave with them, if no other pod leaves."""
        units = () if self.units is None else self.units.lost_by(gone)
        if self.units is None or not units:
            return Victims(tuple(gone), len(self.disruption_allowance.violating_uids(gone)))
        keys, uids = {unit.key for unit in units}, {pod.uid for pod in gone}
        lost = {pod.uid for pod in leavers if pod.group is not None and pod.group.key in keys}
        violations = len(self.disruption_allowance.violating_uids([pod for pod in gone if pod.uid not in lost]))
        pods = tuple([pod for pod in leavers if pod.uid in uids | lost])
        return Victims(pods, violations + sum(self.units.violations_of(unit.key) for unit in units), units)

    def cost(self, victims: Victims) -> Cost:
        return victims.cost

    def reprieves(self, leavers: Sequence[Pod], must: Sequence[Pod], remaining: Sequence[Pod]) -> list[Sequence[Pod]]:
        """
        Return the orders in which the remaining pods are reprieved if some must leave; the cheapest result counts.

        First as upstream does, which may spare a pod because of pods that stay, and then with the least important
        pods, which leave first, using up the budgets.
        """
        allowance = self.disruption_allowance
        spared = (allowance.violating_uids(leavers), allowance.uids_to_spare(must, reversed(remaining)))
        return [sorted(remaining, key=lambda pod: pod.uid not in first) for first in dict.fromkeys(spared)]


def victims_on(
    cluster: Cluster, slot: Slot, incoming: Incoming, *, below: int, limit: Cost | None = None
) -> Generator[None, None, Victims | list[Refusal] | None]:
    """
    Return the cheapest pods that must leave a node for a pod, or the refusals that remain if all lower pods left.

    It yields when other tasks may run; it must not be continued once the node's row or slot is another one.

    None if the victims cost the limit or more. It is known that the pod fits if all pods of a priority under `below`
    leave, as far as the node alone decides. So blocks that need a pod of a higher priority to leave are looked at only
    if no victims within the budgets were found without them.
    """
    node_info, pod = cluster.view.row(slot), incoming.pod
    if asks_much(pod):
        return []  # it would be compared with all other pods again for each that might stay

    def by_filters(gone: Sequence[Pod]) -> ByFilters:
        left = without_pods(node_info, [victim.uid for victim in gone])
        return ByFilters(cluster, slot, pod, profile, left, keepers)

    lower = incoming.leavers(node_info)
    victims = yield from victims_by_counting(node_info, incoming, lower, below, limit)
    if victims is None and limit is not None:
        return None
    profile, keepers, kept_away = _keepers(cluster, slot, incoming, lower)
    if victims is not None and not kept_away and by_filters(victims.pods).fits():
        return victims
    refusals = by_filters(lower).refusals() or kept_away
    if refusals:
        return refusals
    return (yield from _DryRun(incoming, lower, by_filters).cheapest(_forced_groups(node_info, pod, lower), limit))


def _keepers(
    cluster: Cluster, slot: Slot, incoming: Incoming, lower: Sequence[Pod]
) -> tuple[Profile, set[str], list[Refusal]]:
    """
    Return whose terms keep a pod away from a node: uids of lower pods, and the refusal if those of other pods do.

    That needs one question, however many pods may stay: the profile that is returned does not ask it again.
    """
    profile = incoming.profile.without(inter_pod_affinity.BY_PLACED_PODS)
    if profile is incoming.profile:
        return profile, set(), []
    with cluster.row_replaced(slot, cluster.view.row(slot).with_nominated(incoming.pod.priority)):
        found, others_do = inter_pod_affinity.keepers(cluster.view, slot, incoming.pod, lower)
    kept_away = Refusal(inter_pod_affinity.NAME, inter_pod_affinity.KEPT_AWAY, 1 << slot)
    return profile, found, [kept_away] if others_do else []


def has_none_cheaper(priority: int, cost: Cost) -> bool:
    """Return whether any victims cost more than this if one of them has this priority or a higher one."""
    violations, highest, *_ = cost
    return not violations and highest < priority


def victims_by_counting(
    node_info: NodeInfo, incoming: Incoming, lower: Sequence[Pod], below: int, limit: Cost | None = None
) -> Generator[None, None, Victims | None]:
    """Return the cheapest victims by counting; None if they cost the limit or more."""
    dry_run = _DryRun(incoming, lower, partial(ByCounting.without, node_info=node_info, pod=incoming.pod))
    groups = _forced_groups(node_info, incoming.pod, [pod for pod in lower if pod.priority < below])
    victims = yield from dry_run.cheapest(groups, limit)
    best = limit if victims is None else incoming.cost(victims)
    if not lower or lower[0].priority < below or (best is not None and has_none_cheaper(below, best)):
        return victims
    more = [group for group in _forced_groups(node_info, incoming.pod, lower) if group and group[0].priority >= below]
    return (yield from dry_run.cheapest(more, best)) or victims


@attrs.frozen
class _DryRun:
    """
    The dry run of a preemption on one node: which pods can stay is tried.

    Attributes:
        lower: all pods that may leave, the most important first.
        trial: returns a trial of the node without some of them.
    """

    incoming: Incoming
    lower: Sequence[Pod]
    trial: Callable[[Sequence[Pod]], ByCounting | ByFilters]

    def cheapest(self, forced: Iterable[tuple[Pod, ...]], limit: Cost | None) -> Generator[None, None, Victims | None]:
        """
        Return the cheapest victims if one of these groups has to leave; others may have to leave with it.

        None if there is no group, or if none costs less than the limit.
        """
        best: Victims | None = None
        cost_of = self.incoming.cost
        for group in sorted(map(self._victims, forced), key=cost_of):
            if limit is not None and cost_of(group) >= limit:
                break  # more victims never cost less
            victims = yield from self._with(group)
            cost = cost_of(victims)
            if limit is None or cost < limit:
                best, limit = victims, cost
        return best

    def _with(self, group: Victims) -> Generator[None, None, Victims]:
        """
        Return the victims if a group must leave: the group alone, or more where something other than cores is scarce.

        The remaining pods are reprieved in each of the orders of `Incoming`, and the cheapest result counts.
        """
        if group.pods and self.trial(group.pods).fits():
            return group
        must = {pod.uid for pod in group.pods}
        remaining = [pod for pod in self.lower if pod.uid not in must]
        orders = self.incoming.reprieves(self.lower, group.pods, remaining)
        tries = list[Victims]()
        for order in orders:
            trial, gone = self.trial(self.lower), set(must)
            for first in range(0, len(order), _AT_ONCE):
                gone |= trial.without_reprieve(order[first : first + _AT_ONCE])
                yield
            victims = self._victims([pod for pod in self.lower if pod.uid in gone])
            if len(victims.pods) > len(gone):  # with those that leave with them, others may stay
                victims = yield from self._with(victims)
            tries.append(victims)
        return min(tries, key=self.incoming.cost)

    def _victims(self, pods: Sequence[Pod]) -> Victims:
        return self.incoming.victims(pods, self.lower)


def _forced_groups(node_info: NodeInfo, pod: Pod, lower: Sequence[Pod]) -> Collection[tuple[Pod, ...]]:
    """
    Return the pods that have to leave, for each legal block that could come free.

    One empty group where the pod asks for no Neuron or the blocks are not listed: then no pod in particular has to.
    """
    if pod.neuron is None or node_info.machine is None:
        return [()]
    going = {other.uid for other in lower}
    kept = reduce(
        or_, (pod_info.cores or NO_CORES for uid, pod_info in node_info.pod_infos.items() if uid not in going), NO_CORES
    )
    for nomination in node_info.nominations:
        kept |= nomination.cores if nomination.pod.priority >= pod.priority else NO_CORES
    cores = tuple(node_info.pod_infos[other.uid].cores or NO_CORES for other in lower)
    groups = _in_the_way(node_info.machine, pod.neuron, node_info.machine.all_cores & ~kept, cores)
    return [()] if groups is None else [tuple(lower[i] for i in group) for group in groups]


@lru_cache(maxsize=MOST_REMEMBERED)
def _in_the_way(
    machine: Machine, request: NeuronRequest, free: CoreMask, cores_of: tuple[CoreMask, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """
    Return the groups of pods on the legal blocks within the free cores, each group once; None if blocks are not listed.

    A pod is its index in `cores_of`, the cores that the pods hold.
    """
    blocks = legal_sets(machine, request)
    if blocks is None:
        return None
    free_blocks = [block for block in blocks if not block & ~free]
    return tuple({tuple(i for i, cores in enumerate(cores_of) if cores & block): None for block in free_blocks})


def _start_of(pod: Pod) -> float:
    return inf if pod.started is None else pod.started
