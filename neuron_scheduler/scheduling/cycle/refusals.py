"""
Why nodes refuse a pod: what `why`, the message, the log and the metrics are made of, so that they cannot differ.

A decision asks for reasons only if no node is left. All nodes are asked at once, with the nominated pods first: a node
is refused for what it lacks with them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, less, slots_of
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.filters import nodes_that_pass, nodes_with_nominations, nominated_overlay, walk
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins import node_resources_fit
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import PodRefusal, Refusal
from neuron_scheduler.scheduling.plugins.node_resources_fit import INSUFFICIENT_NEURON
from neuron_scheduler.scheduling.plugins.registry import PLUGINS

_MOST_ASKED_ONE_BY_ONE: Final = 100  # nodes: an explanation must not cost more in a larger fleet
_NEVER_ENOUGH: Final = -1.0
_PLACES: Final = {plugin.name: float(place) for place, plugin in enumerate(PLUGINS)}
_RESOURCES: Final = _PLACES[node_resources_fit.NAME]
_CAUSES: Final = {plugin.name: plugin.cause for plugin in PLUGINS}
_BARS: Final = frozenset(plugin.name for plugin in PLUGINS if plugin.cause is Cause.TAINTS)
_CAUSES_BY_REASON: Final = {
    (plugin.name, reason): cause for plugin in PLUGINS for reason, cause in plugin.causes.items()
}
_CAUSES_OF_PODS: Final = {
    plugin.name: plugin.pre_filter.cause or plugin.cause for plugin in PLUGINS if plugin.pre_filter is not None
}


def refusal_of_pod(view: View, pod: Pod, profile: Profile) -> PodRefusal | None:
    """Return why the pod itself is refused, whatever the nodes are; None if it is not."""
    refusals = (pre_filter.refuse(view, pod) for pre_filter in profile.steps_for(pod).pre_filters)
    return next(filter(None, refusals), None)


def resolvable_nodes(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[NodeSet, frozenset[str]]:
    """
    Return the nodes where evictions could help, and the plugins that refuse the others.

    These answer `UnschedulableAndUnresolvable`. They are also asked about nodes that lack room now: upstream asks them
    there when it tries the evictions. The nodes may have changed since the pod was refused.
    """
    nodes, plugins = cluster.view.live, set[str]()
    for step in profile.steps_for(pod).filters:
        for refusal in step.refuse(cluster.view, pod, nodes) if nodes else ():
            if refusal.unresolvable and refusal.nodes:
                nodes &= ~refusal.nodes
                plugins.add(refusal.plugin)
    return nodes, frozenset(plugins)


def refusals(cluster: Cluster, pod: Pod, profile: Profile, known: Sequence[Refusal] = ()) -> list[Refusal]:
    """
    Return the refusals of all nodes that do not take a pod, in the order of the filters.

    Of the nodes with nominations of other pods, some are asked one by one, as the decision does; `known` is what
    it has heard from these. The pod's own nomination counts, unless the caller has put it aside.
    """
    live = cluster.view.live
    found = [*refusals_among(cluster, pod, profile, live), *known]
    left = nodes_not_refused(live, found)
    if left:
        doubtful = nodes_with_nominations(cluster, pod.priority) & left
        for slot in islice(slots_of(doubtful), _MOST_ASKED_ONE_BY_ONE):
            found += refusals_on(cluster, slot, pod, profile)
    return found


def refusals_among(cluster: Cluster, pod: Pod, profile: Profile, among: NodeSet) -> list[Refusal]:
    """Return the refusals of some nodes, which are all asked at once: those that are not refused may pass."""
    overlay = nominated_overlay(cluster, pod.priority)
    doubtful = cluster.view.changed_nodes(overlay) & among if overlay is not None else NO_NODES
    if overlay is None or not doubtful:
        return walk(cluster.view, pod, profile, among)[1]
    candidates, found = walk(cluster.view.with_overlay(overlay), pod, profile, doubtful)
    return found + walk(cluster.view, pod, profile, less(among, doubtful) | candidates)[1]


def refusals_on(
    cluster: Cluster, slot: Slot, pod: Pod, profile: Profile, *, every_filter: bool = False
) -> list[Refusal]:
    """
    Return why one node refuses a pod, with the nominated pods or without them; empty if it passes.

    Exact where `refusals_among` is not: here, topology spread and pod affinity count the nominated pods too. With
    `every_filter` those after the first refusal are asked, too, and once more without the nominated pods.
    """
    node_info, found = cluster.view.row(slot), list[Refusal]()
    with_nominated = node_info.with_nominated(pod.priority)
    if with_nominated is not node_info:
        with cluster.row_replaced(slot, with_nominated):
            found = walk(cluster.view, pod, profile, 1 << slot, every_filter=every_filter)[1]
    if found and not every_filter:
        return found
    return found + walk(cluster.view, pod, profile, 1 << slot, every_filter=every_filter)[1]


def first_reasons(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[NodeSet, dict[str, NodeSet]]:
    """Return the nodes that pass every filter, and the others by their first reason."""
    live = cluster.view.live
    pod_refusal = refusal_of_pod(cluster.view, pod, profile)
    if pod_refusal is not None:
        return NO_NODES, {pod_refusal.reason: live} if live else {}
    with cluster.without_nomination(pod.uid):
        found = refusals(cluster, pod, profile)
    reasons: dict[str, NodeSet] = {}
    left = live
    for refusal in found:
        new = refusal.nodes & left
        if new:
            reasons[refusal.reason] = reasons.get(refusal.reason, NO_NODES) | new
            left = less(left, new)
    return left, reasons


def nodes_not_refused(nodes: NodeSet, refusals: Iterable[Refusal]) -> NodeSet:
    for refusal in refusals:
        nodes &= ~refusal.nodes
    return nodes


def kept_for_others(cluster: Cluster, pod: Pod, profile: Profile) -> NodeSet:
    """Return the nodes with nominations that would take the pod if the nominated pods never came; for refused pods."""
    return nodes_that_pass(
        cluster.view, pod, profile.steps_for(pod).accepts, nodes_with_nominations(cluster, pod.priority)
    )


def counts_by_reason(refusals: Iterable[Refusal]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for refusal in refusals:
        counts[refusal.reason] += refusal.nodes.bit_count()
    return counts


def nodes_meant(view: View, pod: Pod, profile: Profile) -> NodeSet:
    """Return the nodes that no rule excludes: selector, affinity, topology spread, and the rules of other pods."""
    return nodes_that_pass(view, pod, profile.steps_for(pod).rules, view.live)


def cause_among(view: View, meant: NodeSet, pod: Pod, refusals: Sequence[Refusal]) -> Cause:
    """
    Return why a pod is pending, in one word for the metrics (`neuron_scheduler_pods_waiting`).

    Only the nodes that it means count (`nodes_meant`). If its rules leave none of the nodes, they are the cause. Those
    that are too small even when they are empty count only if there are no others. Taints and cordons count only if one
    of their nodes has the resources.
    """
    if refusals and not meant:
        return Cause.AFFINITY
    barred = NO_NODES
    for refusal in refusals:
        barred |= refusal.nodes & meant if refusal.plugin in _BARS else NO_NODES
    if barred and not node_resources_fit.fitting_nodes(view, pod, barred):
        beside = [refusal for refusal in refusals if refusal.plugin not in _BARS and refusal.nodes & meant]
        refusals = beside or node_resources_fit.filter_nodes(view, pod, barred)
    of_resources = [refusal for refusal in refusals if refusal.plugin == node_resources_fit.NAME]
    too_small = [refusal for refusal in of_resources if refusal.unresolvable and refusal.nodes & meant]
    others = nodes_not_refused(meant, too_small)
    return cause_of(pod, [refusal for refusal in refusals if refusal.nodes & others] or too_small or refusals)


def cause_of(pod: Pod, refusals: Iterable[Refusal]) -> Cause:
    """
    Return what nodes with these refusals lack.

    Of several refusals, that of the nodes that passed the most filters counts, because they lack least. Nodes that are
    too small even when they are empty count only if there are no others. Without any node, the pod lacks capacity.
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
