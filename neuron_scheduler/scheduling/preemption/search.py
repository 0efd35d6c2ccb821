"""
DefaultPreemption: whom to ask to leave, so that a pod that fits nowhere gets a node.

    which nodes refused for a reason that fewer pods could change?               (the filters' own answer)
    would they do if all pods up to some priority left?                          (one question to all: `Emptied`)
    on those, by the lowest such priority: whom exactly, at what cost?           (`victims`)
    the cheapest by kube-scheduler's criteria

Upstream: `plugins/defaultpreemption/default_preemption.go`, `framework/preemption/preemption.go`. The search pauses
between nodes, so that whoever runs it can let others run; what it found must be confirmed in the step that acts on it.
Refuses to act: `preemptor` does.
"""

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from typing import cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination, evictable, without_pods
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import place
from neuron_scheduler.scheduling.cycle.filters import accepted, counted, nomination_priorities, refusals_of, walk
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.plugins.contract import Refusal
from neuron_scheduler.scheduling.plugins.registry import COUNTING_PODS
from neuron_scheduler.scheduling.preemption.disruption_allowance import Allowance
from neuron_scheduler.scheduling.preemption.victims import (
    Cost,
    Incoming,
    Victims,
    has_room,
    none_cheaper_from,
    victims_on,
)

NEVER = "not eligible due to preemptionPolicy=Never."
WAITING = "not eligible due to a terminating pod on the nominated node."
NO_VICTIMS = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"

FEWEST_CANDIDATES = 100
PERCENT_OF_NODES = 10
"""Of the nodes that might do, so many candidates are compared, at least the fewest (upstream's defaults)."""
MOST_ROUNDS = 4
"""Questions to all nodes; where there are more priorities than that, several are taken together."""

_AT_ONCE = 16
"""Nodes after which a look at their pods' budgets lets others run."""


@attrs.frozen
class Preemption:
    """Pods of one node are to leave for a pod."""

    node_name: str
    victims: Victims


@attrs.frozen
class NoPreemption:
    """
    Nobody is asked to leave.

    Attributes:
        text: why, as it is appended to the message about the refused pod.
        gives_up: no node can be made to fit, so what the pod was promised before is void.
        plugins: who would refuse the pod although others left.
    """

    text: str
    gives_up: bool = False
    plugins: frozenset[str] = frozenset()


def _priorities(node_info: NodeInfo) -> Values:
    return tuple(node_info.priorities)


@attrs.frozen(cache_hash=True)
class WithoutLowerPriority:
    """Lens: rows without the pods below a priority."""

    below: int

    @property
    def marks(self) -> Callable[[NodeInfo], Values]:
        """The priorities of a row's pods."""
        return _priorities

    def changes(self, mark: Hashable) -> bool:
        """Tell whether pods of this priority are gone."""
        return cast(int, mark) < self.below

    def __call__(self, node_info: NodeInfo) -> NodeInfo:
        """Return the row as it would be."""
        return node_info.without_lower_priority(self.below)


def search(
    cluster: Cluster, pod: Pod, profile: Profile, *, refused: FitError, budgets: Sequence[DisruptionBudget]
) -> Iterator[Preemption | NoPreemption | None]:
    """
    Look for the cheapest pods to ask to leave; yields None whenever others may run, and the answer last.

    The cluster may change in between; node sets do not outlive such a pause, names do.
    """
    nomination = cluster.nomination(pod.uid)
    with cluster.without_nomination(pod.uid):
        helpful = NO_NODES if refused.pod_reason else _resolvable(cluster, pod, profile)
    reason = _not_eligible(cluster, pod, nomination, helpful)
    if reason:
        yield NoPreemption(f"preemption: {reason}")
        return
    yield from cluster.view.prepared(lambda view: (view.postings(_priorities), view.postings(nomination_priorities)))
    comparison, incoming = _Comparison(helpful.bit_count()), Incoming(pod, profile, Allowance(budgets))
    bounds = _bounds(cluster, pod.priority) if helpful else ()
    for below in bounds:
        yield from cluster.view.with_overlay(WithoutLowerPriority(below)).prepared(
            lambda view: _warm_up(view, pod, profile)
        )
        names = _with_room(cluster, pod, profile, below, comparison)
        yield None
        for name in names:
            if comparison.spare is None and comparison.plenty and not comparison.enough:
                comparison.spare = yield from _with_spare_pods(cluster, incoming)
            if comparison.wants(name):
                comparison.add(name, _victims_on(cluster, name, incoming, below=below, limit=comparison.limit))
                yield None
        if comparison.decided(below):
            break
    yield comparison.best or NoPreemption(
        f"preemption: {comparison.told(refused.nodes)}", gives_up=True, plugins=frozenset(comparison.plugins)
    )


def confirmed(cluster: Cluster, pod: Pod, profile: Profile, found: Preemption) -> Nomination | None:
    """Return what to promise the pod if all is still as it was found; None means that nobody must be asked to leave."""
    slot = cluster.view.slot(found.node_name)
    if slot is None:
        return None
    victims = frozenset(victim.uid for victim in found.victims.pods)
    with cluster.without_nomination(pod.uid):
        node_info = cluster.view.row(slot)
        if not victims <= evictable(node_info, pod.priority) or not refusals_of(cluster, slot, pod, profile):
            return None
        return _room_made(cluster, slot, pod, profile, victims)


def rebuilt(cluster: Cluster, pod: Pod, profile: Profile) -> Nomination | None:
    """
    Return what a pod was promised before a restart, by its status; None if it has to look anew.

    Which cores it was is written nowhere, so they are chosen again: out of what is free once those are gone that were
    asked to leave.
    """
    slot = cluster.view.slot(pod.nominated_node_name)
    if slot is None:
        return None
    pod_infos = cluster.view.row(slot).pod_infos
    leaving = {uid for uid in evictable(cluster.view.row(slot), pod.priority) if _is_leaving(pod_infos[uid].pod)}
    return _room_made(cluster, slot, pod, profile, frozenset(leaving))


def can_be_kept(node_info: NodeInfo, promise: Nomination) -> bool:
    """Tell whether a node has what was promised once the victims are gone: its cores, and enough of all else."""
    left = without_pods(node_info, promise.victims & node_info.pod_infos.keys())
    return not promise.cores & ~left.free_cores and has_room(left, promise.pod)


@attrs.define(eq=False)
class _Comparison:
    """
    The best candidate so far, and why other nodes are none.

    Attributes:
        helpful: number of nodes that refused for a reason that fewer pods could change.
        spare: once there are plenty of candidates, all beyond the budgets: on which nodes others could be better.
        reasons: node counts, of those that would refuse although all lower pods left.
        plugins: who refused on those.
    """

    helpful: int
    best: Preemption | None = None
    candidates: int = 0
    asked: set[str] = attrs.field(factory=set)
    spare: set[str] | None = None
    without_victims: int = 0
    reasons: Counter[str] = attrs.field(factory=Counter)
    asked_reasons: Counter[str] = attrs.field(factory=Counter)
    plugins: set[str] = attrs.field(factory=set)

    @property
    def limit(self) -> Cost | None:
        """What another candidate must cost less than; None as long as there is none."""
        return None if self.best is None else self.best.victims.cost

    @property
    def plenty(self) -> bool:
        """Whether as many candidates were found as have to be compared."""
        return self.candidates >= max(FEWEST_CANDIDATES, self.helpful * PERCENT_OF_NODES // 100)

    @property
    def enough(self) -> bool:
        """Whether there are plenty of candidates, and the best is within the budgets, or no other can be."""
        if not self.plenty or self.best is None:
            return False
        return not self.best.victims.violations or (self.spare is not None and self.spare <= self.asked)

    def wants(self, name: str) -> bool:
        """Tell whether a node is to be asked."""
        return name not in self.asked and (self.spare is None or name in self.spare) and not self.enough

    def decided(self, below: int) -> bool:
        """Tell whether further nodes cannot be better: on each, a pod of this priority or a higher one must leave."""
        return self.enough or (self.best is not None and none_cheaper_from(below, self.best.victims.cost))

    def add(self, name: str, found: Victims | list[Refusal] | None) -> None:
        """Take what was found on a node: cheaper victims than before, none that are cheaper, or why there are none."""
        self.asked.add(name)
        if isinstance(found, list):
            self.asked_reasons += counted(found)
            self.plugins.update(refusal.plugin for refusal in found)
            return
        self.candidates += 1
        if found is not None:
            self.best = Preemption(name, found)

    def told(self, nodes: int) -> str:
        """Return why there is no candidate among so many nodes."""
        counts = self.reasons + self.asked_reasons
        counts += Counter({NOT_HELPFUL: nodes - self.helpful, NO_VICTIMS: self.without_victims})
        return FitError(nodes, tuple(counts.items())).text


def _not_eligible(cluster: Cluster, pod: Pod, nomination: tuple[str, Nomination] | None, helpful: NodeSet) -> str:
    """Return why the pod may not ask anybody to leave now; empty if it may."""
    if pod.never_preempts:
        return NEVER
    slot = cluster.view.slot(nomination[0]) if nomination is not None else None
    if nomination is None or slot is None or not helpful >> slot & 1:
        return ""  # also where the promised node has become one that no departure would open
    node_info = cluster.view.row(slot)
    waiting = any(
        uid in nomination[1].victims or _is_leaving(node_info.pod_infos[uid].pod)
        for uid in evictable(node_info, pod.priority)
    )
    return WAITING if waiting else ""


def _is_leaving(victim: Pod) -> bool:
    return victim.terminating and victim.preempted


def _resolvable(cluster: Cluster, pod: Pod, profile: Profile) -> NodeSet:
    """Return the nodes where fewer pods could make room: none of the reasons is `UnschedulableAndUnresolvable`."""
    nodes = cluster.view.live
    for refusal in accepted(cluster, pod, profile, nodes)[1]:
        if refusal.unresolvable:
            nodes &= ~refusal.nodes
    return nodes


def _lower(cluster: Cluster, priority: int) -> list[int]:
    values = cluster.view.postings(_priorities).values
    return sorted(value for value in values if isinstance(value, int) and value < priority)


def _bounds(cluster: Cluster, priority: int) -> list[int]:
    """Return the bounds below which all pods are to be gone, round by round; the same for all who may ask for them."""
    bounds = [value + 1 for value in _lower(cluster, priority)] or [priority]
    step = -(-len(bounds) // MOST_ROUNDS)
    return bounds[::-1][::step][::-1]


def _warm_up(view: View, pod: Pod, profile: Profile) -> None:
    """Ask every filter, whatever the others say."""
    for filter_nodes in profile.filters:
        filter_nodes(view, pod, view.live)


def _with_room(cluster: Cluster, pod: Pod, profile: Profile, below: int, comparison: _Comparison) -> list[str]:
    """Return the nodes that would do if all pods below a priority left, and note why the others would not."""
    with cluster.without_nomination(pod.uid):
        helpful = _resolvable(cluster, pod, profile)
        among = helpful & cluster.view.postings(_priorities).any_of(_lower(cluster, pod.priority))
        # Plugins that count pods are asked node by node only: the pods of other nodes stay.
        nodes, refusals = walk(
            cluster.view.with_overlay(WithoutLowerPriority(below)), pod, profile, among, overlooking=COUNTING_PODS
        )
        comparison.reasons = counted(refusals)
        comparison.plugins.update(refusal.plugin for refusal in refusals)
        comparison.without_victims = (helpful & ~among).bit_count()
        return [cluster.view.row(slot).node.name for slot in cluster.view.oldest_first(nodes)]


def _with_spare_pods(cluster: Cluster, incoming: Incoming) -> Generator[None, None, set[str]]:
    """Return the nodes where a pod could be asked to leave within the budgets; yields whenever others may run."""
    names, found = [node_info.node.name for node_info in cluster.view.rows()], set[str]()
    for number, name in enumerate(names):
        node_info = cluster.node(name)
        if node_info is not None and any(
            incoming.allowance.allows(pod_info.pod)
            for pod_info in node_info.pod_infos.values()
            if pod_info.pod.priority < incoming.pod.priority and not pod_info.unreadable
        ):
            found.add(name)
        if number % _AT_ONCE == 0:
            yield None
    return found


def _victims_on(
    cluster: Cluster, name: str, incoming: Incoming, *, below: int, limit: Cost | None
) -> Victims | list[Refusal] | None:
    slot = cluster.view.slot(name)
    if slot is None:
        return []
    with cluster.without_nomination(incoming.pod.uid):
        return victims_on(cluster, slot, incoming, below=below, limit=limit)


def _room_made(cluster: Cluster, slot: Slot, pod: Pod, profile: Profile, victims: frozenset[str]) -> Nomination | None:
    """Return the promise of the room that these leave; None if it does not do."""
    node_info = without_pods(cluster.view.row(slot), victims)
    with cluster.what_if(slot, node_info):
        if refusals_of(cluster, slot, pod, profile):
            return None
    if pod.neuron is None or node_info.machine is None:
        return Nomination(pod, victims=victims)
    placement = place(node_info.machine, node_info.with_nominated(pod.priority).free_cores, pod.neuron)
    return None if placement is None else Nomination(pod, placement.cores, victims)
