"""
The decision: which node a pod gets, and which part of its silicon, or why none.

    candidates = every live node
    for each filter:      candidates less those it refuses      (why is asked only if none is left)
    for each preference:  candidates = its best non-empty subset
    node = the oldest of the candidates

A pure function of cluster, pod and profile: same input, same answer, on any replica. Not fitting is a value,
`FitError`.
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
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.autoscaler_outlook import new_node_could_help
from neuron_scheduler.scheduling.cycle.filters import (
    accepted,
    counted,
    fitting,
    nodes_with_nominations,
    nominated_overlay,
    refusals_of,
)
from neuron_scheduler.scheduling.cycle.neuron_shortage import shortage, unknown_holders
from neuron_scheduler.scheduling.cycle.profile import Plan, Profile
from neuron_scheduler.scheduling.cycle.waiting_cause import cause_of, cause_of_pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PodRefusal, Prefer, Refusal
from neuron_scheduler.scheduling.plugins.node_rejections import place_on
from neuron_scheduler.scheduling.plugins.node_resources_fit import insufficient

NO_NODES_AVAILABLE = "no nodes available to schedule pods"
_ASKED_AGAIN: Final = 100  # nodes: an explanation must not cost more in a larger fleet
ALIAS_HINT = f"{NEURON_DEVICE_ALIAS} is an old name; ask for {NEURON_DEVICE}."


@attrs.frozen
class Decision:
    """
    The node a pod gets.

    Attributes:
        placement: its ids there; None for a pod without Neuron.
        evaluated: how many nodes were looked at: all of them, or the one that was promised to the pod.
        feasible: how many would have done.
    """

    node_name: str
    placement: Placement | None
    evaluated: int
    feasible: int


@attrs.frozen
class FitError:
    """
    Why no node can take a pod now.

    Attributes:
        nodes: how many nodes there are.
        reasons: count by reason; a node with two reasons counts under both.
        plugins: names of the plugins that refused: only what concerns them can change the answer.
        pod_reason: set if the pod itself was refused, whatever the nodes.
        hint: the arithmetic of its silicon, and what its owner could do about it; empty if nothing is known.
        hopeless: no new node could help; the condition's reason is then not `Unschedulable`, or autoscalers would
            buy nodes in a loop.
        preemption: why no pods were asked to leave for it; empty if some were.
        blocked: names of pods with unknown ids because of which it waits; empty if there are none.
        cause: what it waits for, in one word.
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

    @property
    def text(self) -> str:
        """The message in kube-scheduler's form (`FitError.Error` in `pkg/scheduler/framework/types.go`)."""
        if not self.nodes and not self.pod_reason:
            return NO_NODES_AVAILABLE
        reasons = self.pod_reason or ", ".join(sorted(f"{count} {reason}" for reason, count in self.reasons))
        sentences = (f"0/{self.nodes} nodes are available: {reasons}.", self.hint, self.preemption, self.blocked)
        return " ".join(filter(None, sentences))


@attrs.frozen
class NoNode:
    """
    No node was found for a pod.

    Attributes:
        pod_refusal: set if the pod itself was refused, whatever the nodes.
        too_late: refusals by nodes that all filters had accepted, one by one.
    """

    pod_refusal: PodRefusal | None = None
    too_late: tuple[Refusal, ...] = ()


def schedule_pod(cluster: Cluster, pod: Pod, profile: Profile) -> Decision | FitError:
    """Return the best node for a pod and its placement there, or why there is none."""
    found = select_node(cluster, pod, profile)
    return found if isinstance(found, Decision) else fit_error(cluster, pod, profile, found)


def select_node(cluster: Cluster, pod: Pod, profile: Profile) -> Decision | NoNode:
    """
    Return the best node for a pod and its placement there, if there is one.

    A node that was promised to the pod is asked first, and alone, as others left for it (`evaluateNominatedNode`).
    """
    plan = profile.plan(pod)
    for pre_filter in plan.pre_filters:
        pod_refusal = pre_filter.refuse(cluster.view, pod)
        if pod_refusal is not None:
            return NoNode(pod_refusal)
    nomination = cluster.nomination(pod.uid)
    slot = cluster.view.slot(nomination[0]) if nomination is not None else None
    if slot is None:
        return _choose(cluster, pod, profile, plan, cluster.view.live)
    with cluster.without_nomination(pod.uid):
        found = _choose(cluster, pod, profile, plan, 1 << slot)
        return found if isinstance(found, Decision) else _choose(cluster, pod, profile, plan, cluster.view.live)


def fit_error(cluster: Cluster, pod: Pod, profile: Profile, found: NoNode) -> FitError:
    """Return why no node was found for a pod; nothing may have changed since."""
    if found.pod_refusal is not None:
        return _refused_pod(cluster, found.pod_refusal)
    if cluster.nomination(pod.uid) is None:
        return _no_fit(cluster, pod, profile, found.too_late)
    with cluster.without_nomination(pod.uid):
        return _no_fit(cluster, pod, profile, found.too_late)


def _choose(cluster: Cluster, pod: Pod, profile: Profile, plan: Plan, among: NodeSet) -> Decision | NoNode:
    """Return the best of the nodes, with the pods that were promised space there kept in mind."""
    candidates = fitting(cluster, pod, plan, among)
    overlay = nominated_overlay(cluster, pod.priority)
    view = cluster.view if overlay is None else cluster.view.with_overlay(overlay)
    too_late: list[Refusal] = []
    while candidates:
        slot = cluster.view.oldest(_best(view, pod, plan.preferences, candidates))
        late = refusals_of(cluster, slot, pod, profile) if overlay is not None else ()
        if not late:
            state = view.row(slot)
            placement = None if pod.neuron is None else place_on(state, pod.neuron)
            evaluated = cluster.view.node_count if among == cluster.view.live else among.bit_count()
            return Decision(state.node.name, placement, evaluated=evaluated, feasible=candidates.bit_count())
        too_late += late
        candidates = less(candidates, 1 << slot)
    return NoNode(too_late=tuple(too_late))


def _best(view: View, pod: Pod, preferences: Iterable[Prefer], candidates: NodeSet) -> NodeSet:
    """Return the candidates that no other is preferred to."""
    best = candidates
    for prefer in preferences:
        preferred = prefer(view, pod, best)
        if preferred is not best and preferred.bit_count() < 2:
            return preferred  # one node left: nothing to prefer
        best = preferred
    return best


def explain(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[NodeSet, dict[str, NodeSet]]:
    """
    Return the nodes that pass every filter, and the others by their first reason; for the log, no decision calls it.

    Of the nodes where space is promised to other pods, the oldest are asked as exactly as the decision asks the one
    that it chooses.
    """
    live = cluster.view.live
    for pre_filter in profile.plan(pod).pre_filters:
        pod_refusal = pre_filter.refuse(cluster.view, pod)
        if pod_refusal is not None:
            return NO_NODES, {pod_refusal.reason: live} if live else {}
    with cluster.without_nomination(pod.uid):
        candidates, refusals = accepted(cluster, pod, profile, live)
        for slot in islice(slots_of(nodes_with_nominations(cluster, pod.priority) & candidates), _ASKED_AGAIN):
            refusals += refusals_of(cluster, slot, pod, profile)
    reasons: dict[str, NodeSet] = {}
    fitting = live
    for refusal in refusals:
        new = refusal.nodes & fitting
        if new:
            reasons[refusal.reason] = reasons.get(refusal.reason, NO_NODES) | new
            fitting = less(fitting, new)
    return fitting, reasons


def _refused_pod(cluster: Cluster, refusal: PodRefusal) -> FitError:
    return FitError(
        nodes=cluster.view.node_count,
        plugins=frozenset((refusal.plugin,)),
        pod_reason=refusal.reason,
        new_node_cannot_help=refusal.new_node_cannot_help,
        cause=cause_of_pod(refusal),
    )


def _no_fit(cluster: Cluster, pod: Pod, profile: Profile, too_late: Sequence[Refusal]) -> FitError:
    refusals = [*accepted(cluster, pod, profile, cluster.view.live)[1], *too_late]
    counts = counted(refusals)
    alias = ALIAS_HINT if insufficient(NEURON_DEVICE_ALIAS) in counts else ""
    lacking, blocked = shortage(cluster, pod, profile, refusals), unknown_holders(cluster, pod, refusals)
    cause = lacking.cause if lacking is not None else cause_of(pod, refusals)
    return FitError(
        nodes=cluster.view.node_count,
        reasons=tuple(sorted(counts.items())),
        plugins=frozenset(refusal.plugin for refusal in refusals),
        hint=" ".join(filter(None, ("" if lacking is None else lacking.sentence, alias))),
        new_node_cannot_help=not new_node_could_help(pod) or any(refusal.new_node_cannot_help for refusal in refusals),
        blocked=blocked,
        cause=Cause.UNKNOWN_HOLDER if blocked else cause,
    )
