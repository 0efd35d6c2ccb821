"""
The decisions about kube-scheduler's nodes: which of them take a pod, and which is best.

They are our own queue's filters and preferences, without those that kube-scheduler has itself (`extender_profile`).
Nothing is reserved, because kube-scheduler may never send the pod again: `bind` decides again.
"""

from collections.abc import Sequence
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, Slot, from_slots, less, membership, slots_of
from neuron_scheduler.extender.protocol import MOST_PRIORITY, ExtenderFilterResult
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.scheduling.cycle.filters import nodes_that_fit, view_with_nominated
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import nodes_not_refused, refusal_of_pod, refusals_among
from neuron_scheduler.scheduling.cycle.schedule_pod import best_nodes

UNKNOWN_NODE: Final = "node(s) that the Neuron scheduler does not know yet"
ELSEWHERE: Final = "pod is already being bound to another node"


def is_for_neuron(pod: Pod) -> bool:
    """Return whether a pod asks for Neuron, also in a way that is refused."""
    return any(pod.requests.get(name, 0) for name in NEURON_NAMES)


def filter_nodes(cluster: Cluster, pod: Pod, profile: Profile, names: list[str]) -> ExtenderFilterResult:
    """
    Return which nodes take a pod now, and the first reason of each other one.

    A pod without Neuron passes everywhere. A bound or assumed pod passes on its node only: kube-scheduler repeats a
    Binding there whose outcome it does not know.
    """
    if not is_for_neuron(pod):
        return ExtenderFilterResult(names, {}, {})
    if (placed := cluster.node_of(pod.uid)) is not None:
        passing = [name for name in names if name == placed]
        return ExtenderFilterResult(passing, {}, {name: ELSEWHERE for name in names if name != placed})
    pod_refusal = refusal_of_pod(cluster.view, pod, profile)
    if pod_refusal is not None:
        return ExtenderFilterResult([], {}, dict.fromkeys(names, pod_refusal.reason))
    slots = [*map(cluster.view.slot, names)]
    among = _known_slots(cluster, slots)
    with cluster.without_nomination(pod.uid):
        refusals = refusals_among(cluster, pod, profile, among)
    size = cluster.view.live.bit_length()
    passes = membership(nodes_not_refused(among, refusals), size)
    refused = [(membership(refusal.nodes, size), refusal) for refusal in refusals]
    result = ExtenderFilterResult([], {}, {})
    for name, slot in zip(names, slots, strict=True):
        if slot is None:
            result.failed_and_unresolvable_nodes[name] = UNKNOWN_NODE
        elif passes(slot):
            result.node_names.append(name)
        else:
            own = [refusal for is_refused, refusal in refused if is_refused(slot)]
            never = next((refusal for refusal in own if refusal.unresolvable), None)
            if never is not None:
                result.failed_and_unresolvable_nodes[name] = never.reason
            else:
                result.failed_nodes[name] = own[0].reason
    return result


def prioritize_nodes(cluster: Cluster, pod: Pod, profile: Profile, names: Sequence[str]) -> list[int]:
    """
    Return the score of each node.

    The nodes that our preferences like best have the highest score, the next best one less, and so on. Nodes that do
    not take the pod, or are unknown, have 0, like all nodes for a pod without Neuron or with a node.
    """
    if pod.neuron is None or pod.refusal or cluster.node_of(pod.uid) is not None:
        return [0] * len(names)
    slots, steps = [*map(cluster.view.slot, names)], profile.steps_for(pod)
    with cluster.without_nomination(pod.uid):
        rest = nodes_that_fit(cluster, pod, steps, _known_slots(cluster, slots))
        view = view_with_nominated(cluster, pod.priority)
        scores: dict[Slot | None, int] = {}
        for score in range(MOST_PRIORITY, 0, -1):
            if not rest:
                break
            best = best_nodes(view, pod, steps.preferences, rest)
            scores.update(dict.fromkeys(slots_of(best), score))
            rest = less(rest, best)
    return [scores.get(slot, 0) for slot in slots]


def _known_slots(cluster: Cluster, slots: Sequence[Slot | None]) -> NodeSet:
    return from_slots((slot for slot in slots if slot is not None), cluster.view.live.bit_length())
