"""
The decision: which node a pod gets, and which of its devices and cores, or why no node takes it.

    candidates = every live node
    for each filter:      candidates less those it refuses      (reasons are asked for only if none is left)
    for each preference:  candidates = its best non-empty subset
    node = the oldest of the candidates

A pure function of cluster, pod and profile: the same input gives the same answer on every replica. A pod that fits
nowhere is a value, `FitError`, and not an exception.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less, slots_of
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_DEVICE, NEURON_DEVICE_ALIAS
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.filters import (
    accepted,
    counted,
    fitting,
    kept_for_others,
    nodes_with_nominations,
    nominated_overlay,
    refusals_of,
)
from neuron_scheduler.scheduling.cycle.neuron_shortage import neuron_shortage, new_node_could_help, unknown_holders
from neuron_scheduler.scheduling.cycle.profile import Plan, Profile
from neuron_scheduler.scheduling.plugins import node_resources_fit
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PodRefusal, Prefer, Refusal
from neuron_scheduler.scheduling.plugins.node_rejections import place_on
from neuron_scheduler.scheduling.plugins.node_resources_fit import INSUFFICIENT_NEURON, insufficient
from neuron_scheduler.scheduling.plugins.registry import PLUGINS

NO_NODES_AVAILABLE = "no nodes available to schedule pods"
_MOST_ASKED_ONE_BY_ONE: Final = 100  # nodes: an explanation must not cost more in a larger fleet
OTHERS: Final = "pods of the same or a higher priority"
ALIAS_HINT = f"{NEURON_DEVICE_ALIAS} is an old name; ask for {NEURON_DEVICE}."


@attrs.frozen
class Decision:
    """
    The node a pod gets.

    Attributes:
        placement: the pod's ids on the node; None for a pod without Neuron.
        evaluated: number of nodes that were looked at: all, or only the one that was nominated.
        feasible: number of nodes that the pod fits on.
    """

    node_name: str
    placement: Placement | None
    evaluated: int
    feasible: int

    @property
    def ids(self) -> tuple[int, ...]:
        """The devices or cores that the pod gets; none without Neuron."""
        return () if self.placement is None else self.placement.ids

    @property
    def cores(self) -> CoreMask:
        """The cores that the pod gets; none without Neuron."""
        return NO_CORES if self.placement is None else self.placement.cores


@attrs.frozen
class FitError:
    """
    Why no node can take a pod now.

    Attributes:
        nodes: number of nodes in the cluster.
        reasons: count by reason; a node with two reasons counts under both.
        plugins: names of the plugins that refused: only events that concern them can change the answer.
        pod_reason: set if the pod itself was refused, whatever the nodes are.
        hint: what it lacks of devices or cores, with figures, and what its owner can do; empty if nothing is known.
        new_node_cannot_help: the condition's reason is then not `Unschedulable`, or autoscalers would buy nodes in a
            loop.
        preemption: why no pods were evicted for it; empty if some were.
        blocked: the sentence that names pods with unknown ids because of which it waits; empty if there are none.
        cause: what it waits for.
        group: how many members of its group fit at once; the rest is then about the next one.
    """

    nodes: int
    reasons: tuple[tuple[str, int], ...] = ()
    plugins: frozenset[str] = frozenset()
    pod_reason: str = ""
    hint: str = ""
    new_node_cannot_help: bool = False
    preemption: str = ""
    blocked: str = ""
    cause: Cause = Cause.OTHER
    group: str = ""

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """Count by reason, also where the pod itself was refused: then all nodes count."""
        return ((self.pod_reason, self.nodes),) if self.pod_reason else self.reasons

    @property
    def text(self) -> str:
        """The message in kube-scheduler's form (`FitError.Error` in `pkg/scheduler/framework/types.go`)."""
        if not self.nodes and not self.pod_reason:
            return " ".join(filter(None, (self.group, NO_NODES_AVAILABLE)))
        reasons = self.pod_reason or ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons))
        counts = f"0/{self.nodes} nodes are available: {reasons}."
        sentences = (self.group, counts, self.hint, self.preemption, self.blocked)
        return " ".join(filter(None, sentences))


@attrs.frozen
class Diagnosis:
    """
    Why no node was found for a pod, with the refusals from which every figure in it comes.

    Attributes:
        refusals: in the order of the filters; where nodes are nominated, first with the nominated pods, then without.
    """

    fit_error: FitError
    refusals: tuple[Refusal, ...] = ()


@attrs.frozen
class NoNode:
    """
    No node was found for a pod.

    Attributes:
        pod_refusal: set if the pod itself was refused, whatever the nodes are.
        too_late: refusals by nodes that all filters had accepted in the question to all nodes.
    """

    pod_refusal: PodRefusal | None = None
    too_late: tuple[Refusal, ...] = ()


def schedule_pod(cluster: Cluster, pod: Pod, profile: Profile) -> Decision | FitError:
    """Return the best node for a pod and its placement there, or why there is none."""
    result = select_node(cluster, pod, profile)
    return result if isinstance(result, Decision) else fit_error(cluster, pod, profile, result)


def select_node(cluster: Cluster, pod: Pod, profile: Profile, among: NodeSet | None = None) -> Decision | NoNode:
    """
    Return the best node for a pod and its placement there, if there is one; out of `among`, if that is given.

    The node that was nominated for the pod is tried first and alone, since pods were evicted there for it
    (upstream: `evaluateNominatedNode`).
    """
    among = cluster.view.live if among is None else among
    plan = profile.plan(pod)
    for pre_filter in plan.pre_filters:
        pod_refusal = pre_filter.refuse(cluster.view, pod)
        if pod_refusal is not None:
            return NoNode(pod_refusal)
    nomination = cluster.nomination(pod.uid)
    slot = cluster.view.slot(nomination[0]) if nomination is not None else None
    if slot is None:
        return _choose(cluster, pod, profile, plan, among)
    with cluster.without_nomination(pod.uid):
        result = _choose(cluster, pod, profile, plan, among & 1 << slot)
        return result if isinstance(result, Decision) else _choose(cluster, pod, profile, plan, among)


def decide_on(cluster: Cluster, pod: Pod, profile: Profile, node_name: str) -> Decision | tuple[str, ...]:
    """
    Return the placement of a pod on the node that another scheduler has chosen, or why it does not fit there.

    The node must take the pod with and without the pods that are nominated there, as in every decision.
    """
    slot = cluster.view.slot(node_name)
    if slot is None:
        return (f'node "{node_name}" not found',)
    pod_refusal = refusal_of_pod(cluster.view, pod, profile)
    if pod_refusal is not None:
        return (pod_refusal.reason,)
    with cluster.without_nomination(pod.uid):
        refusals = refusals_of(cluster, slot, pod, profile)
        if refusals:
            return tuple(dict.fromkeys(refusal.reason for refusal in refusals))
        node_info = cluster.view.row(slot).with_nominated(pod.priority)
        placement = None if pod.neuron is None else place_on(node_info, pod.neuron)
    return Decision(node_name, placement, evaluated=1, feasible=1)


def refusal_of_pod(view: View, pod: Pod, profile: Profile) -> PodRefusal | None:
    """Return why the pod itself is refused, whatever the nodes are; None if it is not."""
    refusals = (pre_filter.refuse(view, pod) for pre_filter in profile.plan(pod).pre_filters)
    return next(filter(None, refusals), None)


def fit_error(cluster: Cluster, pod: Pod, profile: Profile, no_node: NoNode) -> FitError:
    """Return why no node was found for a pod; the cluster must be as it was then."""
    return diagnosis(cluster, pod, profile, no_node).fit_error


def diagnosis(cluster: Cluster, pod: Pod, profile: Profile, no_node: NoNode) -> Diagnosis:
    """Return the same with the refusals; their node sets are valid until the cluster changes."""
    if no_node.pod_refusal is not None:
        return Diagnosis(_refused_pod(cluster, no_node.pod_refusal))
    if cluster.nomination(pod.uid) is None:
        return _no_fit(cluster, pod, profile, no_node.too_late)
    with cluster.without_nomination(pod.uid):
        return _no_fit(cluster, pod, profile, no_node.too_late)


def _choose(cluster: Cluster, pod: Pod, profile: Profile, plan: Plan, among: NodeSet) -> Decision | NoNode:
    """Return the best of the nodes; those with nominations must take the pod with and without the nominated pods."""
    candidates = fitting(cluster, pod, plan, among)
    overlay = nominated_overlay(cluster, pod.priority)
    view = cluster.view if overlay is None else cluster.view.with_overlay(overlay)
    too_late: list[Refusal] = []
    while candidates:
        slot = cluster.view.oldest(_best(view, pod, plan.preferences, candidates))
        late = refusals_of(cluster, slot, pod, profile) if overlay is not None else ()
        if not late:
            node_info = view.row(slot)
            placement = None if pod.neuron is None else place_on(node_info, pod.neuron)
            evaluated = cluster.view.node_count if among == cluster.view.live else among.bit_count()
            return Decision(node_info.node.name, placement, evaluated=evaluated, feasible=candidates.bit_count())
        too_late += late
        candidates = less(candidates, 1 << slot)
    return NoNode(too_late=tuple(too_late))


def _best(view: View, pod: Pod, preferences: Iterable[Prefer], candidates: NodeSet) -> NodeSet:
    """Return the candidates to which the preferences, in their order, prefer no other."""
    best = candidates
    for prefer in preferences:
        preferred = prefer(view, pod, best)
        if preferred is not best and preferred.bit_count() < 2:
            return preferred  # one node left: nothing to prefer
        best = preferred
    return best


def explain(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[NodeSet, dict[str, NodeSet]]:
    """
    Return the nodes that pass every filter, and the others by their first reason. It is for the log: no decision
    calls it.
    """
    live = cluster.view.live
    pod_refusal = refusal_of_pod(cluster.view, pod, profile)
    if pod_refusal is not None:
        return NO_NODES, {pod_refusal.reason: live} if live else {}
    with cluster.without_nomination(pod.uid):
        found = refusals(cluster, pod, profile)
    reasons: dict[str, NodeSet] = {}
    passing = live
    for refusal in found:
        new = refusal.nodes & passing
        if new:
            reasons[refusal.reason] = reasons.get(refusal.reason, NO_NODES) | new
            passing = less(passing, new)
    return passing, reasons


def refusals(cluster: Cluster, pod: Pod, profile: Profile) -> list[Refusal]:
    """
    Return the refusals of all nodes that do not take a pod, in the order of the filters.

    Of the nodes with nominations of other pods, the oldest are asked one by one, as the decision does with the node
    that it chooses. The pod's own nomination counts, unless the caller has put it aside.
    """
    candidates, found = accepted(cluster, pod, profile, cluster.view.live)
    doubtful = nodes_with_nominations(cluster, pod.priority) & candidates
    for slot in islice(slots_of(doubtful), _MOST_ASKED_ONE_BY_ONE):
        found += refusals_of(cluster, slot, pod, profile)
    return found


def _refused_pod(cluster: Cluster, refusal: PodRefusal) -> FitError:
    return FitError(
        nodes=cluster.view.node_count,
        plugins=frozenset((refusal.plugin,)),
        pod_reason=refusal.reason,
        new_node_cannot_help=refusal.new_node_cannot_help,
        cause=cause_of_pod(refusal),
    )


def _no_fit(cluster: Cluster, pod: Pod, profile: Profile, too_late: Sequence[Refusal]) -> Diagnosis:
    refusals = (*accepted(cluster, pod, profile, cluster.view.live)[1], *too_late)
    counts = counted(refusals)
    alias = ALIAS_HINT if insufficient(NEURON_DEVICE_ALIAS) in counts else ""
    blocked = unknown_holders(cluster, pod, refusals)
    cause, sentence = _cause(cluster, pod, profile, refusals, blocked=bool(blocked))
    error = FitError(
        nodes=cluster.view.node_count,
        reasons=tuple(sorted(counts.items())),
        plugins=frozenset(refusal.plugin for refusal in refusals),
        hint=" ".join(filter(None, (sentence, alias))),
        new_node_cannot_help=not new_node_could_help(pod) or any(refusal.new_node_cannot_help for refusal in refusals),
        blocked=blocked,
        cause=cause,
    )
    return Diagnosis(error, refusals)


def _cause(
    cluster: Cluster, pod: Pod, profile: Profile, refusals: Sequence[Refusal], *, blocked: bool
) -> tuple[Cause, str]:
    """Return what a pod with these refusals waits for, and the sentence about it; empty if there is none."""
    kept = kept_for_others(cluster, pod, profile).bit_count()
    if kept:
        nodes = f"{kept} node{'' if kept == 1 else 's'}"
        return Cause.NOMINATED, f"Nominated: {nodes} would take the pod without the space kept for {OTHERS}."
    shortage = neuron_shortage(cluster, pod, profile, refusals)
    if shortage is None:
        return Cause.UNKNOWN_HOLDER if blocked else cause_of(pod, refusals), ""
    return Cause.UNKNOWN_HOLDER if blocked else shortage.cause, shortage.sentence


_NEVER_ENOUGH: Final = -1.0
_PLACES: Final = {plugin.name: float(place) for place, plugin in enumerate(PLUGINS)}
_RESOURCES: Final = _PLACES[node_resources_fit.NAME]
_CAUSES: Final = {plugin.name: plugin.cause for plugin in PLUGINS}
_CAUSES_BY_REASON: Final = {
    (plugin.name, reason): cause for plugin in PLUGINS for reason, cause in plugin.causes.items()
}
_CAUSES_OF_PODS: Final = {
    plugin.name: plugin.pre_filter.cause or plugin.cause for plugin in PLUGINS if plugin.pre_filter is not None
}


def cause_of(pod: Pod, refusals: Iterable[Refusal]) -> Cause:
    """
    Return why a pod waits, in one word for the metrics (`neuron_scheduler_pods_waiting`).

    Of several refusals, that of the nodes that passed the most filters counts, because they lack least. Nodes that are
    too small even when they are empty, such as nodes without Neuron for a pod that asks for it, count only if there are
    no others. Without any node, the pod lacks capacity.
    """
    lacking = Cause.RESOURCES if pod.neuron is None else Cause.CAPACITY
    return max((stage(pod, refusal) for refusal in refusals), key=lambda stage: stage[0], default=(0.0, lacking))[1]


def cause_of_pod(refusal: PodRefusal) -> Cause:
    """Return what a pod waits for that was refused whatever the nodes are."""
    return _CAUSES_OF_PODS.get(refusal.plugin, Cause.POD)


def stage(pod: Pod, refusal: Refusal) -> tuple[float, Cause]:
    """Return how far the refused nodes came, and the cause if no nodes came further."""
    lacks_neuron = pod.neuron is not None and refusal.reason in INSUFFICIENT_NEURON
    if lacks_neuron:
        cause = Cause.CAPACITY
    else:
        cause = _CAUSES_BY_REASON.get((refusal.plugin, refusal.reason)) or _CAUSES.get(refusal.plugin, Cause.OTHER)
    if refusal.plugin == node_resources_fit.NAME:
        # If the nodes lack other resources too, free Neuron devices alone would not help.
        return (_NEVER_ENOUGH if refusal.unresolvable else _RESOURCES) + 0.5 * (not lacks_neuron), cause
    if cause is Cause.INVALID_COUNT:
        return _RESOURCES - 0.5, cause  # the filter of counts comes just before that of resources
    return _PLACES.get(refusal.plugin, float(len(_PLACES))), cause
