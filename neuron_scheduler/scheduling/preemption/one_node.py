"""
Which pods one node would have to lose for a pod, if another scheduler has already proposed some by counting.

kube-scheduler evicts as many devices as the pod asks for; whether they are a legal block is chance. The proposal stays
where it frees one and no cheaper victims would. Otherwise other pods are chosen, by the criteria of our own search and
with all filters. Where these refuse what kube-scheduler accepts, whose settings we do not know, victims that free a
block are added to the proposal.
"""

from collections.abc import Generator, Set as AbstractSet

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo, evictable, without_pods
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import refusals_on
from neuron_scheduler.scheduling.preemption.victims import ByFilters, Incoming, Victims, by_importance, victims_on


def victims_instead(
    cluster: Cluster, node_name: str, incoming: Incoming, beside: Profile, proposed: AbstractSet[str]
) -> Generator[None, None, Victims | None]:
    """
    Return the pods that should leave a node in place of those proposed; None if the node cannot be made to fit.

    None also where no pod has to leave: the proposal is out of date. The cluster must not change before the end.

    Args:
        cluster: as it is now.
        node_name: the node.
        incoming: the pod, and the profile with all filters (`preemption_profile`).
        beside: the profile with the filters that kube-scheduler does not have (`extender_profile`).
        proposed: uids of the pods that kube-scheduler would evict; those that are not on the node are ignored.
    """
    slot = cluster.view.slot(node_name)
    if slot is None:
        return None
    incoming = attrs.evolve(incoming, pod=with_offered_requests(incoming.pod, cluster.view.row(slot).node))
    ours, pod = attrs.evolve(incoming, profile=beside), incoming.pod
    with cluster.without_nomination(pod.uid):
        if not refusals_on(cluster, slot, pod, beside):
            return None
        kept = _if_enough(cluster, slot, ours, proposed)
        if kept is not None and _is_more_than_the_count(cluster.view.row(slot), pod, kept):
            # kube-scheduler knows of a pod there that we do not, such as one for which it has just evicted pods.
            # Cheaper victims would be the ones already evicted for that pod.
            return kept
        found = yield from victims_on(
            cluster, slot, incoming, below=pod.priority, limit=None if kept is None else kept.cost
        )
        if isinstance(found, Victims):
            return found
        return kept if kept is not None else (yield from _with_more(cluster, slot, ours, proposed))


def with_offered_requests(pod: Pod, node: Node) -> Pod:
    """Return a pod without requests for what the node does not offer: a driver provides it, or nobody counts it."""
    requests = {name: amount for name, amount in pod.requests.items() if name in node.allocatable}
    return pod if len(requests) == len(pod.requests) else attrs.evolve(pod, requests=requests)


def _with_more(
    cluster: Cluster, slot: Slot, incoming: Incoming, proposed: AbstractSet[str]
) -> Generator[None, None, Victims | None]:
    """Return the proposal with the victims that free a block; None if there are none."""
    more = yield from victims_on(cluster, slot, incoming, below=incoming.pod.priority)
    if not isinstance(more, Victims):
        return None
    return _if_enough(cluster, slot, incoming, proposed | {victim.uid for victim in more.pods})


def _is_more_than_the_count(node_info: NodeInfo, pod: Pod, victims: Victims) -> bool:
    """Return whether one of the victims could stay if the numbers of devices and cores were all that counts."""
    remaining = without_pods(node_info, {victim.uid for victim in victims.pods})
    to_spare = {
        name: remaining.free(name) - pod.requests[name] for name in NEURON_NAMES if pod.requests.get(name, 0) > 0
    }
    return any(
        all(victim.requests.get(name, 0) <= spare for name, spare in to_spare.items()) for victim in victims.pods
    )


def _if_enough(cluster: Cluster, slot: Slot, incoming: Incoming, uids: AbstractSet[str]) -> Victims | None:
    """Return those of the pods that may be evicted, if the incoming pod fits without them; None if it does not."""
    node_info, pod = cluster.view.row(slot), incoming.pod
    leaving = (evictable(node_info, pod.priority) & uids) - incoming.spared
    if not ByFilters(cluster, slot, pod, incoming.profile, without_pods(node_info, leaving)).fits():
        return None
    victims = by_importance(node_info.pod_infos[uid].pod for uid in leaving)
    return Victims(victims, len(incoming.disruption_allowance.violating_uids(victims)))
