"""
The filters of a profile, asked about a set of nodes: with the pods that are there, and with those nominated too.

Upstream: `RunFilterPluginsWithNominatedPods` in `pkg/scheduler/framework/runtime/framework.go`. A node on which space
is nominated for a pod of equal or higher priority must pass with that pod and without it: it may never be bound there.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import cast

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile, ProfileSteps
from neuron_scheduler.scheduling.plugins.contract import Accept, Refusal

FilterResult = tuple[NodeSet, list[Refusal]]
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
        return nomination_priorities

    def changes(self, mark: Hashable) -> bool:
        return cast(int, mark) >= self.priority

    def __call__(self, node_info: NodeInfo) -> NodeInfo:
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


def view_with_nominated(cluster: Cluster, priority: int) -> View:
    """Return the view in which nominated pods that precede a pod of this priority use what is kept for them."""
    overlay = nominated_overlay(cluster, priority)
    return cluster.view if overlay is None else cluster.view.with_overlay(overlay)


def nodes_with_nominations(cluster: Cluster, priority: int) -> NodeSet:
    overlay = nominated_overlay(cluster, priority)
    return NO_NODES if overlay is None else cluster.view.changed_nodes(overlay)


def walk(
    view: View,
    pod: Pod,
    profile: Profile,
    among: NodeSet,
    *,
    ignored_plugins: Collection[str] = frozenset(),
    every_filter: bool = False,
) -> FilterResult:
    """
    Ask each filter about the nodes that all before it accepted, or, with `every_filter`, about all of them.

    Refusals of `ignored_plugins` do not count.
    """
    refusals: list[Refusal] = []
    left = among
    for step in profile.steps_for(pod).filters:
        for refusal in step.refuse(view, pod, among if every_filter else left):
            if refusal.nodes and refusal.plugin not in ignored_plugins:
                refusals.append(refusal)
                left = less(left, refusal.nodes)
        if not (left or every_filter):
            break
    return left, refusals


def nodes_that_fit(cluster: Cluster, pod: Pod, steps: ProfileSteps, among: NodeSet) -> NodeSet:
    """Return the nodes that pass with the nominated pods and without them; much faster than `refusals_among`."""
    accepts = steps.accepts
    among = nodes_that_pass(cluster.view, pod, accepts, among)
    overlay = nominated_overlay(cluster, pod.priority)
    if overlay is None:
        return among
    doubtful = cluster.view.changed_nodes(overlay) & among
    return less(among, doubtful) | nodes_that_pass(cluster.view.with_overlay(overlay), pod, accepts, doubtful)


def nodes_that_pass(view: View, pod: Pod, accepts: Iterable[Accept], among: NodeSet) -> NodeSet:
    for accept in accepts:
        if not among:
            break
        among = accept(view, pod, among)
    return among
