"""
The decision: which node a pod gets, and which of its devices and cores, or why no node takes it.

    candidates = every live node
    for each filter:      candidates less those it refuses      (reasons are asked for only if none is left)
    for each preference:  candidates = its best non-empty subset
    node = the one in the lowest slot

A pure function of cluster, pod and profile: the same input gives the same answer on every replica. A pod that fits
nowhere is a value, `FitError`, and not an exception.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, less, lowest_slot
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.devices import NO_CLASS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_DEVICE, NEURON_DEVICE_ALIAS, NEURON_NAMES
from neuron_scheduler.model.wording import clip, count_text
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.filters import nodes_that_fit, nominated_overlay
from neuron_scheduler.scheduling.cycle.neuron_shortage import neuron_shortage, new_node_could_help, unknown_holders
from neuron_scheduler.scheduling.cycle.profile import Profile, ProfileSteps
from neuron_scheduler.scheduling.cycle.refusals import (
    cause_among,
    cause_of_pod,
    counts_by_reason,
    kept_for_others,
    nodes_meant,
    refusal_of_pod,
    refusals,
    refusals_on,
)
from neuron_scheduler.scheduling.plugins.avoid_rejecting_nodes import place_on
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PodRefusal, Prefer, Refusal
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient

NO_NODES_AVAILABLE = "no nodes available to schedule pods"
OTHERS: Final = "pods of the same or a higher priority"
_ALIKE: Final = 0.8
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
        return () if self.placement is None else self.placement.ids

    @property
    def cores(self) -> CoreMask:
        return NO_CORES if self.placement is None else self.placement.cores


@attrs.frozen
class FitError:
    """
    Why no node can take a pod now.

    Attributes:
        reasons: count by reason; a node with two reasons counts under both.
        plugins: names of the plugins that refused: only events that concern them can change the answer.
        pod_reason: set if the pod itself was refused, whatever the nodes are.
        hint: what it lacks of devices or cores, with figures, and what its owner can do; empty if nothing is known.
        new_node_cannot_help: the condition's reason is not `Unschedulable`, or autoscalers would buy nodes in a loop.
        preemption: why no pods were evicted for it; empty if some were.
        blocked: the sentence that names pods with unknown ids because of which it waits; empty if there are none.
        group: how many members of its group fit at once, and the rest is about the next one; or that its group is
            complete without it.
        turn: which nodes are kept for it as they come free.
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
    turn: str = ""

    @property
    def text(self) -> str:
        """The message in kube-scheduler's form (`FitError.Error` in `pkg/scheduler/framework/types.go`)."""
        if not self.nodes and not self.pod_reason:
            return " ".join(filter(None, (self.group, NO_NODES_AVAILABLE, self.turn)))
        by_count = sorted(f"{count} {reason.removesuffix('.')}" for reason, count in self.reasons)
        reasons = self.pod_reason.removesuffix(".") or ", ".join(by_count)  # AWS's sentence has a full stop
        counts = f"0/{self.nodes} nodes are available: {reasons}."
        sentences = (self.group, counts, self.hint, self.preemption, self.blocked, self.turn)
        return " ".join(filter(None, sentences))


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
    steps = profile.steps_for(pod)
    for pre_filter in steps.pre_filters:
        pod_refusal = pre_filter.refuse(cluster.view, pod)
        if pod_refusal is not None:
            return NoNode(pod_refusal)
    nomination = cluster.nomination(pod.uid)
    slot = cluster.view.slot(nomination[0]) if nomination is not None else None
    if slot is None:
        return _choose(cluster, pod, profile, steps, among)
    with cluster.without_nomination(pod.uid):
        result = _choose(cluster, pod, profile, steps, among & 1 << slot)
        return result if isinstance(result, Decision) else _choose(cluster, pod, profile, steps, among)


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
        found = refusals_on(cluster, slot, pod, profile)
        if found:
            return tuple(dict.fromkeys(refusal.reason for refusal in found))
        node_info = cluster.view.row(slot).with_nominated(pod.priority)
        placement = None if pod.neuron is None else place_on(node_info, pod.neuron)
    return Decision(node_name, placement, evaluated=1, feasible=1)


def fit_error(cluster: Cluster, pod: Pod, profile: Profile, no_node: NoNode) -> FitError:
    """Return why no node was found for a pod; the cluster must be as it was then."""
    if no_node.pod_refusal is not None:
        return _refused_pod(cluster, no_node.pod_refusal)
    if cluster.nomination(pod.uid) is None:  # most have none, and each refusal passes here
        return _no_fit(cluster, pod, profile, no_node.too_late)
    with cluster.without_nomination(pod.uid):
        return _no_fit(cluster, pod, profile, no_node.too_late)


def _choose(cluster: Cluster, pod: Pod, profile: Profile, steps: ProfileSteps, among: NodeSet) -> Decision | NoNode:
    """Return the best of the nodes; those with nominations must take the pod with and without the nominated pods."""
    candidates = nodes_that_fit(cluster, pod, steps, among)
    overlay = nominated_overlay(cluster, pod.priority)
    view = cluster.view if overlay is None else cluster.view.with_overlay(overlay)
    too_late: list[Refusal] = []
    while candidates:
        slot = lowest_slot(best_nodes(view, pod, steps.preferences, candidates))
        late = refusals_on(cluster, slot, pod, profile) if overlay is not None else ()
        if not late:
            node_info = view.row(slot)
            placement = None if pod.neuron is None else place_on(node_info, pod.neuron)
            evaluated = cluster.view.node_count if among == cluster.view.live else among.bit_count()
            return Decision(node_info.node.name, placement, evaluated=evaluated, feasible=candidates.bit_count())
        too_late += late
        candidates = less(candidates, 1 << slot)
    return NoNode(too_late=tuple(too_late))


def best_nodes(view: View, pod: Pod, preferences: Iterable[Prefer], candidates: NodeSet) -> NodeSet:
    """Return the candidates to which the preferences, in their order, prefer no other."""
    best = candidates
    for prefer in preferences:
        preferred = prefer(view, pod, best)
        if preferred is not best and preferred.bit_count() < 2:
            return preferred  # one node left: nothing to prefer
        best = preferred
    return best


def _refused_pod(cluster: Cluster, refusal: PodRefusal) -> FitError:
    return FitError(
        nodes=cluster.view.node_count,
        plugins=frozenset((refusal.plugin,)),
        pod_reason=refusal.reason,
        new_node_cannot_help=not refusal.reason.endswith(NO_CLASS),
        cause=cause_of_pod(refusal),
    )


def _no_fit(cluster: Cluster, pod: Pod, profile: Profile, too_late: Sequence[Refusal]) -> FitError:
    found = refusals(cluster, pod, profile, too_late)
    counts = counts_by_reason(found)
    alias = ALIAS_HINT if insufficient(NEURON_DEVICE_ALIAS) in counts else ""
    mistyped = [_hint_on_name(name) for name in pod.requests if not cluster.view.offers(name)]
    meant = nodes_meant(cluster.view, pod, profile)
    blocked = unknown_holders(cluster, pod, found, meant)
    cause, sentence = _cause(cluster, pod, profile, found, meant, blocked=bool(blocked))
    return FitError(
        nodes=cluster.view.node_count,
        reasons=tuple(sorted(counts.items())),
        plugins=frozenset(refusal.plugin for refusal in found),
        hint=" ".join(filter(None, (sentence, alias, *mistyped))),
        new_node_cannot_help=not new_node_could_help(pod) or any(refusal.new_node_cannot_help for refusal in found),
        blocked=blocked,
        cause=cause,
        group=_beyond_the_count(cluster, pod),
    )


def _beyond_the_count(cluster: Cluster, pod: Pod) -> str:
    """Return that a pod's group is complete without it, if several controllers share it; else empty."""
    if pod.group is None:
        return ""
    group, title = cluster.groups.group(pod.group.key), cluster.groups.title(pod.group.key)
    is_shared = title != str(group.key) and cluster.groups.is_complete(group)
    return f"Group {title} has the {group.size} members that it needs; for one more:" if is_shared else ""


@lru_cache(maxsize=256)
def _hint_on_name(resource: str) -> str:
    """Return a question if a resource that no node has is called almost like one of Neuron; else empty."""
    names = {name.rpartition("/")[2]: name for name in NEURON_NAMES}
    meant = get_close_matches(resource.rpartition("/")[2], names, n=1, cutoff=_ALIKE)
    if resource in NEURON_NAMES or not meant:
        return ""
    return f"No node has {clip(resource)}; did you mean {names[meant[0]]}?"


def _cause(
    cluster: Cluster, pod: Pod, profile: Profile, found: Sequence[Refusal], meant: NodeSet, *, blocked: bool
) -> tuple[Cause, str]:
    """Return what a pod with these refusals waits for, and the sentence about it; empty if there is none."""
    kept = kept_for_others(cluster, pod, profile).bit_count()
    if kept:
        have = count_text(kept, "node has", "nodes have")
        return Cause.NOMINATED, f"Nominated: {have} room, but it is kept for {OTHERS}."
    shortage = neuron_shortage(cluster, pod, profile, found)
    if shortage is None:
        return Cause.UNKNOWN_HOLDER if blocked else cause_among(cluster.view, meant, pod, found), ""
    return Cause.UNKNOWN_HOLDER if blocked else shortage.cause, shortage.sentence
