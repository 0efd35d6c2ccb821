"""
Whom one node would have to let go for a pod, and what that costs.

Upstream: `SelectVictimsOnNode` and `pickOneNodeForPreemption` (`plugins/defaultpreemption`, `framework/preemption`).
What is different is the silicon: which cores come free depends on who leaves, and a reprieve in order of importance
leaves any block, not the cheapest. So a candidate is a node *and* a legal block: the tenants on the block's cores must
leave, all others are reprieved in upstream's order, and blocks are compared by upstream's criteria, as nodes are.
"""

from collections.abc import Collection, Iterable, Sequence
from math import inf

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.node_state import NodeState, evictable, with_tenant, without_tenants
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import legal_sets
from neuron_scheduler.scheduling.filtering import refusals_of
from neuron_scheduler.scheduling.framework import Refusal
from neuron_scheduler.scheduling.profile import Profile

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


def victims_on(
    cluster: Cluster, slot: int, pod: Pod, profile: Profile, budgets: Sequence[DisruptionBudget]
) -> Victims | list[Refusal]:
    """Return the cheapest pods that must leave a node for a pod; the refusals that would stand if all lower left."""
    state = cluster.row(slot)
    lower = by_importance(state.tenants[uid].pod for uid in evictable(state, pod.priority))
    bare = state.above(pod.priority)
    refusals = _refusals_as(cluster, slot, bare, pod, profile)
    if refusals:
        return refusals
    dry_run = _DryRun(cluster, slot, pod, profile, budgets, lower)
    forced = _forced(state, bare, pod, lower)
    if not forced:
        return dry_run.reprieved(bare)
    return dry_run.cheapest(forced)


def by_importance(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the pods from the most to the least important: higher priority, then started earlier, then by name."""
    return tuple(sorted(pods, key=lambda pod: (-pod.priority, _started(pod), pod.key)))


def violating(pods: Iterable[Pod], budgets: Sequence[DisruptionBudget]) -> frozenset[str]:
    """
    Return the uids of those pods whose end goes beyond a budget, if all of them end in this order.

    Upstream: `filterPodsWithPDBViolation`. A pod uses up one disruption of each budget that counts it.
    """
    if not budgets:
        return frozenset()
    left = [budget.allowed for budget in budgets]
    beyond = set()
    for pod in pods:
        for number, budget in enumerate(budgets):
            if budget.counts(pod):
                left[number] -= 1
                if left[number] < 0:
                    beyond.add(pod.uid)
    return frozenset(beyond)


@attrs.frozen
class _DryRun:
    """One node on which a pod tries who can stay."""

    cluster: Cluster
    slot: int
    pod: Pod
    profile: Profile
    budgets: Sequence[DisruptionBudget]
    lower: tuple[Pod, ...]

    def cheapest(self, forced: Collection[frozenset[str]]) -> Victims:
        """Return the cheapest victims if one of these groups has to leave; others may have to leave with it."""
        best: Victims | None = None
        for bound in sorted((self._victims(group) for group in forced), key=lambda victims: victims.cost):
            if best is not None and bound.cost >= best.cost:
                break  # more victims never cost less
            found = self._beside(bound)
            if best is None or found.cost < best.cost:
                best = found
        if best is None:
            raise AssertionError("no group of victims was given")
        return best

    def reprieved(self, bare: NodeState) -> Victims:
        """Return the victims that upstream's reprieve leaves."""
        beyond = violating(self.lower, self.budgets)
        gone = self._without_reprieve(bare, self.lower, beyond)
        return Victims(tuple(pod for pod in self.lower if pod.uid in gone), len(beyond & gone))

    def _beside(self, bound: Victims) -> Victims:
        """Return the victims if these must leave: they alone, or more for want of something other than silicon."""
        state = self.cluster.row(self.slot)
        must = {pod.uid for pod in bound.pods}
        if must and not _refusals_as(self.cluster, self.slot, without_tenants(state, must), self.pod, self.profile):
            return bound
        others = [pod for pod in self.lower if pod.uid not in must]
        beyond = violating(self.lower, self.budgets)
        gone = self._without_reprieve(state.above(self.pod.priority), others, beyond)
        return self._victims(must | gone)

    def _without_reprieve(self, bare: NodeState, pods: Sequence[Pod], beyond: Collection[str]) -> frozenset[str]:
        """Put the pods back one by one, the violating first; return the uids of those beside whom ours does not fit."""
        state, tenants = bare, self.cluster.row(self.slot).tenants
        gone = set()
        for returning in sorted(pods, key=lambda pod: pod.uid not in beyond):
            trial = with_tenant(state, tenants[returning.uid])
            if _refusals_as(self.cluster, self.slot, trial, self.pod, self.profile):
                gone.add(returning.uid)
            else:
                state = trial
        return frozenset(gone)

    def _victims(self, uids: Collection[str]) -> Victims:
        """Return these as victims, with the violations that they alone cause."""
        pods = tuple(pod for pod in self.lower if pod.uid in uids)
        return Victims(pods, len(violating(pods, self.budgets)))


def _forced(state: NodeState, bare: NodeState, pod: Pod, lower: Sequence[Pod]) -> set[frozenset[str]]:
    """Return, for each legal block that could come free, who has to leave; nothing where blocks are not listed."""
    blocks = legal_sets(state.machine, pod.neuron) if pod.neuron is not None and state.machine is not None else None
    if not blocks:
        return set()
    free = bare.claimed(pod.priority).free_cores
    held = [(other.uid, state.tenants[other.uid].cores or 0) for other in lower]
    return {frozenset(uid for uid, cores in held if cores & block) for block in blocks if not block & ~free}


def _refusals_as(cluster: Cluster, slot: int, state: NodeState, pod: Pod, profile: Profile) -> list[Refusal]:
    with cluster.what_if(slot, state):
        return refusals_of(cluster, slot, pod, profile)


def _started(pod: Pod) -> float:
    return inf if pod.started is None else pod.started
