"""
Whom one node would have to let go for a pod, and what that costs.

Upstream: `SelectVictimsOnNode` and `pickOneNodeForPreemption` (`plugins/defaultpreemption`, `framework/preemption`).
What is different is the silicon: which cores come free depends on who leaves, and a reprieve in order of importance
leaves any block, not the cheapest. So a candidate is a node *and* a legal block: the tenants on the block's cores must
leave, all others are reprieved in upstream's order, and blocks are compared by upstream's criteria, as nodes are.

A dry run that asks every filter about every pod that could stay takes a millisecond or more for a node. So it is made
by counting first, which takes a hundredth of that, and the filters confirm what was found if it is cheaper than what is
known from other nodes. Counting sees resources and silicon; where the filters see more, they make the dry run anew.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, reduce
from math import inf
from operator import attrgetter, or_
from typing import Protocol, Self

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo, evictable, with_pod, without_pods
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.topology import MOST_REMEMBERED, legal_sets
from neuron_scheduler.scheduling.cycle.filters import refusals_of
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.contract import Refusal
from neuron_scheduler.scheduling.preemption.disruption_allowance import Allowance

_TO_POSITIVE = 1 << 31
"""Added to every priority, so that a few pods of negative priority are cheaper than many."""

Cost = tuple[int, float, int, int, float]


@attrs.frozen
class Victims:
    """
    Pods of one node that would have to leave.

    Attributes:
        pods: the most important first.
        violations: how many of them go beyond what their budgets allow.
    """

    pods: tuple[Pod, ...]
    violations: int

    @property
    def cost(self) -> Cost:
        """
        What candidates are compared by, the smaller the better.

        Budget violations, the highest priority, the sum of the priorities, the number of pods, and how early the first
        of the highest priority was started: the least work lost. One that was not started counts as started now.
        """
        if not self.pods:
            return (self.violations, -inf, 0, 0, -inf)
        highest = self.pods[0].priority
        earliest = min(_started(pod) for pod in self.pods if pod.priority == highest)
        total = sum(pod.priority + _TO_POSITIVE for pod in self.pods)
        return (self.violations, highest, total, len(self.pods), -earliest)


def has_room(node_info: NodeInfo, pod: Pod) -> bool:
    """Tell whether a node has enough left of everything that a pod asks for, by count."""
    return _ByCounting.without((), node_info, pod).suffices()


def by_importance(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods from the most to the least important: higher priority, then started earlier, then by name."""
    return tuple(sorted(pods, key=lambda pod: (-pod.priority, _started(pod), pod.key)))


@attrs.frozen
class Incoming:
    """The pod that others may have to leave for, with what decides about that."""

    pod: Pod
    profile: Profile
    allowance: Allowance


def victims_on(
    cluster: Cluster, slot: Slot, incoming: Incoming, *, below: int, limit: Cost | None = None
) -> Victims | list[Refusal] | None:
    """
    Return the cheapest pods that must leave a node for a pod; the refusals that would stand if all lower left.

    None if they cost the limit or more. `below` is a priority below which there are enough of them, as far as the node
    alone tells: blocks that others stand on are looked at only where nothing within the budgets was found.
    """
    node_info = cluster.view.row(slot)
    lower = by_importance(node_info.pod_infos[uid].pod for uid in evictable(node_info, incoming.pod.priority))
    found = _counted(node_info, incoming, lower, below, limit)
    if found is None and limit is not None:
        return None
    if found is not None and not _refusals_as(cluster, slot, _without(node_info, found.pods), incoming):
        return found
    refusals = _refusals_as(cluster, slot, _without(node_info, lower), incoming)
    if refusals:
        return refusals

    def filtered(gone: Sequence[Pod]) -> _ByFilters:
        return _ByFilters(cluster, slot, incoming, _without(node_info, gone))

    return _DryRun(incoming.allowance, lower, filtered).cheapest(_forced(node_info, incoming.pod, lower), limit)


def none_cheaper_from(priority: int, cost: Cost) -> bool:
    """Tell whether any victims cost more than this if one of them has this priority or a higher one."""
    violations, highest, *_ = cost
    return not violations and highest < priority


def _counted(
    node_info: NodeInfo, incoming: Incoming, lower: Sequence[Pod], below: int, limit: Cost | None
) -> Victims | None:
    """Return the cheapest victims as far as counting tells; None if they are not below the limit."""

    def counting(gone: Sequence[Pod]) -> _ByCounting:
        return _ByCounting.without(gone, node_info, incoming.pod)

    dry_run = _DryRun(incoming.allowance, lower, counting)
    groups = _forced(node_info, incoming.pod, [pod for pod in lower if pod.priority < below])
    found = dry_run.cheapest(groups, limit)
    best = limit if found is None else found.cost
    if not lower or lower[0].priority < below or (best is not None and none_cheaper_from(below, best)):
        return found
    more = [group for group in _forced(node_info, incoming.pod, lower) if group and group[0].priority >= below]
    return dry_run.cheapest(more, best) or found


@attrs.frozen
class _DryRun:
    """
    One node on which it is tried who can stay.

    Attributes:
        lower: all who could be asked to leave, the most important first.
        ground: the node as it is when some of them are gone.
    """

    allowance: Allowance
    lower: Sequence[Pod]
    trial: Callable[[Sequence[Pod]], "_Ground"]

    def cheapest(self, forced: Iterable[tuple[Pod, ...]], limit: Cost | None) -> Victims | None:
        """
        Return the cheapest victims if one of these groups has to leave; others may have to leave with it.

        None if there is no group, or if none costs less than the limit.
        """
        best: Victims | None = None
        for bound in sorted(map(self._victims, forced), key=_cost):
            if limit is not None and bound.cost >= limit:
                break  # more victims never cost less
            found = self._beside(bound)
            if limit is None or found.cost < limit:
                best, limit = found, found.cost
        return best

    def _beside(self, bound: Victims) -> Victims:
        """
        Return the victims if these must leave: they alone, or more for want of something other than silicon.

        The others are reprieved as upstream does, and once more with the budgets used up by the least important, who
        leave first: upstream spares a pod because of others that do not leave in the end.
        """
        if bound.pods and self.trial(bound.pods).suffices():
            return bound
        must = {pod.uid for pod in bound.pods}
        others = [pod for pod in self.lower if pod.uid not in must]
        spared = (self.allowance.violating(self.lower), self.allowance.spared(bound.pods, reversed(others)))
        tries = [must | self._without_reprieve(others, first) for first in dict.fromkeys(spared)]
        return min((self._victims(tuple(pod for pod in self.lower if pod.uid in gone)) for gone in tries), key=_cost)

    def _without_reprieve(self, pods: Sequence[Pod], first: Collection[str]) -> set[str]:
        """Reprieve pods, certain ones first; return the uids of those beside whom ours does not fit."""
        trial = self.trial(self.lower)
        return {pod.uid for pod in sorted(pods, key=lambda pod: pod.uid not in first) if not trial.takes_back(pod)}

    def _victims(self, pods: tuple[Pod, ...]) -> Victims:
        """Return these as victims, with the violations that they cause if nobody else leaves."""
        return Victims(pods, len(self.allowance.violating(pods)))


_cost = attrgetter("cost")


class _Ground(Protocol):
    """A node from which pods are gone, as the pod would find it that they left for."""

    def suffices(self) -> bool:
        """Tell whether the pod fits."""

    def takes_back(self, other: Pod) -> bool:
        """Let another pod return if ours fits beside it; tell whether it does."""


@attrs.define(eq=False)
class _ByCounting:
    """
    The ground as far as resources tell.

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

    def suffices(self) -> bool:
        return min(self.left.values()) >= 0

    def takes_back(self, other: Pod) -> bool:
        left, requests = self.left, other.requests
        if left[PODS] < 1 or any(amount > left.get(name, amount) for name, amount in requests.items()):
            return False
        left[PODS] -= 1
        for name, amount in requests.items():
            if name in left:
                left[name] -= amount
        return True


@attrs.define(eq=False)
class _ByFilters:
    """The ground as the filters see it."""

    cluster: Cluster
    slot: Slot
    incoming: Incoming
    node_info: NodeInfo

    def suffices(self) -> bool:
        return not _refusals_as(self.cluster, self.slot, self.node_info, self.incoming)

    def takes_back(self, other: Pod) -> bool:
        before = self.node_info
        self.node_info = with_pod(before, self.cluster.view.row(self.slot).pod_infos[other.uid])
        if not self.suffices():
            self.node_info = before
        return self.node_info is not before


def _forced(node_info: NodeInfo, pod: Pod, lower: Sequence[Pod]) -> Collection[tuple[Pod, ...]]:
    """
    Return who has to leave, for each legal block that could come free.

    Where blocks are not listed, or matter to nobody, that is nobody in particular.
    """
    if pod.neuron is None or node_info.machine is None:
        return [()]
    going = {other.uid for other in lower}
    kept = reduce(
        or_, (pod_info.cores or NO_CORES for uid, pod_info in node_info.pod_infos.items() if uid not in going), NO_CORES
    )
    for promise in node_info.nominated:
        kept |= promise.cores if promise.pod.priority >= pod.priority else NO_CORES
    held = tuple(node_info.pod_infos[other.uid].cores or NO_CORES for other in lower)
    groups = _in_the_way(node_info.machine, pod.neuron, node_info.machine.all_cores & ~kept, held)
    return [()] if groups is None else [tuple(lower[i] for i in group) for group in groups]


@lru_cache(maxsize=MOST_REMEMBERED)
def _in_the_way(
    machine: Machine, request: NeuronRequest, free: CoreMask, held: tuple[CoreMask, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """Return who of those that hold cores stands on each legal block within the free ones; None if not listed."""
    blocks = legal_sets(machine, request)
    if blocks is None:
        return None
    groups = {tuple(i for i, cores in enumerate(held) if cores & block): None for block in blocks if not block & ~free}
    return tuple(groups)


def _without(node_info: NodeInfo, pods: Iterable[Pod]) -> NodeInfo:
    return without_pods(node_info, [pod.uid for pod in pods])


def _refusals_as(cluster: Cluster, slot: Slot, node_info: NodeInfo, incoming: Incoming) -> list[Refusal]:
    with cluster.what_if(slot, node_info):
        return refusals_of(cluster, slot, incoming.pod, incoming.profile)


def _started(pod: Pod) -> float:
    return inf if pod.started is None else pod.started
