"""
The filters of a profile, asked about a set of nodes: with the pods that are there, and with those nominated too.

Upstream: `RunFilterPluginsWithNominatedPods` in `pkg/scheduler/framework/runtime/framework.go`. A node on which space
is nominated for a pod of equal or higher priority must pass with that pod and without it: it may never be bound there.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Plan, Profile
from neuron_scheduler.scheduling.plugins.contract import Accept, Refusal

Filtered = tuple[NodeSet, list[Refusal]]
"""The nodes that passed, and why the others did not."""


def nomination_priorities(node_info: NodeInfo) -> Values:
    """Index definition: the priorities of the pods with a nomination on a node."""
    if not node_info.nominations:
        return ()
    return tuple({nomination.pod.priority for nomination in node_info.nominations})


@attrs.frozen(cache_hash=True)
class WithNominated:
    """Overlay: rows on which the nominated pods of this priority or a higher one are pods of the node."""

    priority: int

    @property
    def marks(self) -> Callable[[NodeInfo], Values]:
        """The priorities of a row's nominated pods."""
        return nomination_priorities

    def changes(self, mark: Hashable) -> bool:
        """Return whether a nominated pod of this priority counts."""
        return cast(int, mark) >= self.priority

    def __call__(self, node_info: NodeInfo) -> NodeInfo:
        """Return the row as it is with those pods."""
        return node_info.with_nominated(self.priority)


def nominated_overlay(cluster: Cluster, priority: int) -> WithNominated | None:
    """
    Return the overlay with the nominated pods that precede a pod of this priority; None if there are none.

    Pods of all priorities between those of two nominated pods get the same overlay, and share its indexes.
    """
    if not cluster.has_nominations:
        return None
    priorities = cast(Collection[int], cluster.view.postings(nomination_priorities).values)
    lowest = min((value for value in priorities if value >= priority), default=None)
    return None if lowest is None else WithNominated(lowest)


def nodes_with_nominations(cluster: Cluster, priority: int) -> NodeSet:
    """Return the nodes with a nomination of this priority or a higher one."""
    overlay = nominated_overlay(cluster, priority)
    return NO_NODES if overlay is None else cluster.view.changed(overlay)


def walk(
    view: View, pod: Pod, profile: Profile, among: NodeSet, *, ignored_plugins: Collection[str] = frozenset()
) -> Filtered:
    """Ask each filter about the nodes that all before it accepted; refusals of `ignored_plugins` do not count."""
    refusals: list[Refusal] = []
    for step in profile.plan(pod).filters:
        for refusal in step.refuse(view, pod, among):
            if refusal.nodes and refusal.plugin not in ignored_plugins:
                refusals.append(refusal)
                among = less(among, refusal.nodes)
        if not among:
            break
    return among, refusals


def fitting(cluster: Cluster, pod: Pod, plan: Plan, among: NodeSet) -> NodeSet:
    """Return the nodes that `accepted` returns, without the reasons of the others: this takes much less time."""
    accepts = plan.accepts
    among = _passing(cluster.view, pod, accepts, among)
    overlay = nominated_overlay(cluster, pod.priority)
    if overlay is None:
        return among
    doubtful = cluster.view.changed(overlay) & among
    return less(among, doubtful) | _passing(cluster.view.with_overlay(overlay), pod, accepts, doubtful)


def _passing(view: View, pod: Pod, accepts: Iterable[Accept], among: NodeSet) -> NodeSet:
    for accept in accepts:
        if not among:
            break
        among = accept(view, pod, among)
    return among


def accepted(cluster: Cluster, pod: Pod, profile: Profile, among: NodeSet) -> Filtered:
    """
    Return the nodes that pass with the nominated pods and without them, and why the others do not.

    The filters are asked about all nodes at once, with the nominated pods first, as kube-scheduler does: a node is
    refused for what it lacks with them.
    """
    overlay = nominated_overlay(cluster, pod.priority)
    doubtful = cluster.view.changed(overlay) & among if overlay is not None else NO_NODES
    if overlay is None or not doubtful:
        return walk(cluster.view, pod, profile, among)
    passing, refusals = walk(cluster.view.with_overlay(overlay), pod, profile, doubtful)
    candidates, more = walk(cluster.view, pod, profile, less(among, doubtful) | passing)
    return candidates, refusals + more


def kept_for_others(cluster: Cluster, pod: Pod, profile: Profile) -> NodeSet:
    """Return the nodes with nominations that would take the pod if the nominated pods never came; for refused pods."""
    doubtful = nodes_with_nominations(cluster, pod.priority)
    return _passing(cluster.view, pod, profile.plan(pod).accepts, doubtful)


def refusals_of(cluster: Cluster, slot: Slot, pod: Pod, profile: Profile) -> list[Refusal]:
    """
    Return why one node refuses a pod, with the nominated pods or without them; empty if it passes.

    Exact where `accepted` is not: here, topology spread and pod affinity count the nominated pods too.
    """
    node_info = cluster.view.row(slot)
    with_nominated = node_info.with_nominated(pod.priority)
    if with_nominated is not node_info:
        with cluster.row_replaced(slot, with_nominated):
            refusals = walk(cluster.view, pod, profile, 1 << slot)[1]
        if refusals:
            return refusals
    return walk(cluster.view, pod, profile, 1 << slot)[1]


def counted(refusals: Sequence[Refusal]) -> Counter[str]:
    """Return how many nodes were refused for each reason."""
    counts: Counter[str] = Counter()
    for refusal in refusals:
        counts[refusal.reason] += refusal.nodes.bit_count()
    return counts
