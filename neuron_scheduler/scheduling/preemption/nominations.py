"""
The nomination of a node for a pod: the cores that it will get there, and the pods that leave for it.

It is made in the step that acts on a search, and again from the pod's status after a restart. It is dropped when
another pod takes the space or the node takes the pod no more.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination, evictable, with_pod, without_pods
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import count_text, few_names
from neuron_scheduler.neuron.topology import place
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.recheck import takes
from neuron_scheduler.scheduling.cycle.refusals import refusals_on
from neuron_scheduler.scheduling.plugins.node_resources_fit import without_other_resources
from neuron_scheduler.scheduling.preemption.search import Preemption, is_leaving

_KEPT: Final = "Kept for it as"
_KEPT_AT_THE_END: Final = re.compile(rf"(^|\. ){_KEPT} (it comes|they come) free: [^:;\"]+\.$")
"""The last sentence of a message; further ahead there are names that users choose, of claims for example."""


def confirm(cluster: Cluster, pod: Pod, profile: Profile, preemption: Preemption) -> Nomination | None:
    """Return the nomination if the result of a search still holds; None means that no pod must be evicted."""
    slot = cluster.view.slot(preemption.node_name)
    if slot is None:
        return None
    victims = frozenset(victim.uid for victim in preemption.victims.pods)
    with cluster.without_nomination(pod.uid):
        node_info = cluster.view.row(slot)
        if not victims <= evictable(node_info, pod.priority) or not refusals_on(cluster, slot, pod, profile):
            return None
        return nomination_without(cluster, slot, pod, profile, victims)


def is_still_possible(node_info: NodeInfo, nomination: Nomination) -> bool:
    """Return whether a node still takes a group's member in place of its victims, which a search has found."""
    present = nomination.victims & node_info.pod_infos.keys()
    return present <= evictable(node_info, nomination.pod.priority) and can_be_kept(node_info, nomination)


def rebuild(cluster: Cluster, pod: Pod, profile: Profile) -> Nomination | None:
    """
    Return the nomination of a pod whose status names a node, after a restart; None if the pod does not fit there.

    No object says which cores were nominated. They are chosen again, out of what is free once the pods that are
    terminating as victims are gone. A nomination that its node cannot keep would be made and dropped at each change of
    the node: the profile of kube-scheduler's pods looks neither at taints nor at all resources.
    """
    slot = cluster.view.slot(pod.nominated_node_name)
    if slot is None:
        return None
    node_info = cluster.view.row(slot)
    victims = {uid for uid in evictable(node_info, pod.priority) if is_leaving(node_info.pod_infos[uid].pod)}
    nomination = nomination_without(cluster, slot, pod, profile, frozenset(victims))
    return nomination if nomination is not None and can_be_kept(node_info, nomination) else None


def can_be_kept(node_info: NodeInfo, nomination: Nomination) -> bool:
    """Return whether a node takes the nominated pod, with the cores that were nominated, once the victims are gone."""
    remaining = without_pods(node_info, nomination.victims & node_info.pod_infos.keys())
    if remaining.claimed.alone & nomination.cores:  # a victim's claim is freed some time after the victim has gone
        remaining = remaining.without_claimed(nomination.cores)
    return takes(remaining, nomination.pod, nomination.cores)


def lost_nominations(node_info: NodeInfo, waiting: Callable[[str], Pod | None]) -> list[Pod]:
    """
    Return the pods whose nominations a node cannot keep beside the others; those of higher priority come first.

    `waiting` returns the present state of a pod of our queue: it may tolerate more than when it was nominated. All
    other pods are kube-scheduler's. They are judged only by what we judge at the nomination, which would otherwise be
    dropped and made again with each change of the node.
    """
    lost, row = list[Pod](), node_info
    for nomination in sorted(node_info.nominations, key=lambda nomination: -nomination.pod.priority):
        ours = waiting(nomination.pod.uid)
        pod = attrs.evolve(nomination.pod, host_ports=()) if ours is None else ours
        beside = without_other_resources(pod) if ours is None else ours
        if can_be_kept(node_info, attrs.evolve(nomination, pod=pod)) and can_be_kept(
            row, attrs.evolve(nomination, pod=beside)
        ):
            row = without_pods(row, nomination.victims & row.pod_infos.keys())
            row = with_pod(row, PodInfo(pod, cores=nomination.cores, volumes=nomination.volumes))
        else:
            lost.append(pod)
    return lost


def nomination_without(
    cluster: Cluster, slot: Slot, pod: Pod, profile: Profile, victims: frozenset[str]
) -> Nomination | None:
    """Return the nomination for the space that the victims leave; None if the pod does not fit there."""
    node_info = without_pods(cluster.view.row(slot), victims)
    with cluster.row_replaced(slot, node_info):
        if refusals_on(cluster, slot, pod, profile):
            return None
    if pod.neuron is None or node_info.machine is None:
        return Nomination(pod, victims=victims)
    placement = place(node_info.machine, node_info.with_nominated(pod.priority).free_cores, pod.neuron)
    if placement is None:
        return None
    return Nomination(pod, placement.cores, victims)


def holders(row: NodeInfo) -> Mapping[str, PodInfo]:
    """Return the pods with Neuron, by uid, those with unknown ids included."""
    return {uid: pod_info for uid, pod_info in row.pod_infos.items() if pod_info.cores != 0}


def turn_text(cluster: Cluster, pod: Pod) -> str:
    """Return which nodes are kept for a pod that has a turn, or for its group; empty if it has none."""
    uids = [pod.uid] if pod.group is None else [*cluster.groups.members(pod.group.key)]
    kept = [cluster.nomination(uid) for uid in uids]
    nodes = [f"{each[0]} ({_state(cluster.node(each[0]))})" for each in kept if each is not None and each[1].awaited]
    return f"{_KEPT} {'it comes' if len(nodes) == 1 else 'they come'} free: {few_names(nodes)}." if nodes else ""


def had_turn(pod: Pod) -> bool:
    """Return whether a pod's condition says that it has a turn; after a restart, such a pod waits for no bound."""
    return _KEPT_AT_THE_END.search(pod.refused_because) is not None


def _state(row: NodeInfo | None) -> str:
    count = 0 if row is None else len(holders(row))
    return count_text(count, "pod") if count else "free"
