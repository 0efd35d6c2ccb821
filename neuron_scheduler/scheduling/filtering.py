"""
The filters of a profile, asked of a set of nodes: as things are, and with the pods that space was promised to.

Upstream: `RunFilterPluginsWithNominatedPods` in `pkg/scheduler/framework/runtime/framework.go`. A node on which space
is promised to a pod of equal or higher priority must do both ways: the pod may never come, or it may be in the way.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.node_state import NodeState
from neuron_scheduler.cluster.nodeset import NodeSet, less
from neuron_scheduler.cluster.postings import Values
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.framework import Accept, Refusal
from neuron_scheduler.scheduling.profile import Plan, Profile

Filtered = tuple[NodeSet, list[Refusal]]
"""The nodes that passed, and why the others did not."""


@attrs.frozen(cache_hash=True)
class Promised:
    """Lens: rows with those nominated pods as tenants that have this priority or a higher one."""

    priority: int

    def __call__(self, state: NodeState) -> NodeState:
        """Return the row as it will be once those pods have come."""
        return state.claimed(self.priority)


def _promises(state: NodeState) -> Values:
    if not state.nominated:
        return ()
    return tuple({nomination.pod.priority for nomination in state.nominated})


def promised(cluster: Cluster, priority: int) -> NodeSet:
    """Return the nodes on which space is promised to a pod of this priority or a higher one."""
    if not cluster.has_nominations:
        return 0
    promises = cluster.view.postings(_promises)
    if not promises.keyed:
        return 0
    return promises.any_of(value for value in promises.values if isinstance(value, int) and value >= priority)


def walk(
    view: View, pod: Pod, profile: Profile, among: NodeSet, *, overlooking: Collection[str] = frozenset()
) -> Filtered:
    """Ask each filter about the nodes that all before it accepted; what the `overlooking` plugins say is not heard."""
    refusals: list[Refusal] = []
    for plugin in profile.plan(pod).filters:
        for refusal in plugin.refuse(view, pod, among):
            if refusal.nodes and refusal.plugin not in overlooking:
                refusals.append(refusal)
                among = less(among, refusal.nodes)
        if not among:
            break
    return among, refusals


def fitting(cluster: Cluster, pod: Pod, plan: Plan, among: NodeSet) -> NodeSet:
    """Return the nodes that `accepted` returns, without the reasons of the others: that is known for much less."""
    accepts = plan.accepts
    among = _passing(cluster.view, pod, accepts, among)
    doubtful = promised(cluster, pod.priority) & among
    if not doubtful:
        return among
    still = _passing(cluster.view.seen(Promised(pod.priority)), pod, accepts, doubtful)
    return less(among, doubtful) | still


def _passing(view: View, pod: Pod, accepts: Iterable[Accept], among: NodeSet) -> NodeSet:
    for accept in accepts:
        among = accept(view, pod, among)
        if not among:
            break
    return among


def accepted(cluster: Cluster, pod: Pod, profile: Profile, among: NodeSet) -> Filtered:
    """
    Return the nodes that pass with those nominated and as they are, in one question each to all of them.

    With the nominated first, as kube-scheduler asks: a node is refused for what it will lack once they have come.
    """
    doubtful = promised(cluster, pod.priority) & among
    if not doubtful:
        return walk(cluster.view, pod, profile, among)
    still, refusals = walk(cluster.view.seen(Promised(pod.priority)), pod, profile, doubtful)
    candidates, more = walk(cluster.view, pod, profile, less(among, doubtful) | still)
    return candidates, refusals + more


def refusals_of(cluster: Cluster, slot: int, pod: Pod, profile: Profile) -> list[Refusal]:
    """
    Return why one node refuses a pod, with those nominated or as it is; empty if it takes it.

    Exact where `accepted` is not: the nominated count in what spreading and affinity look at, too.
    """
    state = cluster.view.row(slot)
    claimed = state.claimed(pod.priority)
    if claimed is not state:
        with cluster.what_if(slot, claimed):
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
