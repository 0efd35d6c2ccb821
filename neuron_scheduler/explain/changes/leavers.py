"""
The pods that could leave one node, and how few of them must, as far as counting says.

Every pod of the node may end, whatever its priority: pods with unknown ids and unreadable pods too, and pending pods
for which space is kept there. Pods of DaemonSets and static pods are left out, because they come back at once. A pod
that is terminating weighs next to nothing: it leaves anyway. Counting knows resources and cores only, so it says how
few pods may do, never that they do. Does not ask the filters: that is for `departure`.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo, without_pods
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.model.memo import memoised
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import PODS
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.packing import MOST_REMEMBERED
from neuron_scheduler.scheduling.preemption.victims import in_the_way

LIVE: Final = 1 << 12
"""The weight of a pod that would have to be ended; one that is terminating weighs 1."""
_COMING_BACK: Final = ("DaemonSet", "Node")
"""Kinds of owners whose pods come back to the same node; `Node` owns static pods."""

Group = tuple[int, ...]
"""Pods as indexes of a sequence of leavers, ascending."""


def weight(pod: Pod) -> int:
    """Return what the end of a pod counts when the smallest sets are looked for."""
    return 1 if pod.terminating else LIVE


def leavers_of(node_info: NodeInfo, pod: Pod) -> list[PodInfo]:
    """Return the pods that could leave, with those for which space is kept that the pod may not take."""
    leavers = [
        info
        for info in node_info.pod_infos.values()
        if info.pod.owner is None or info.pod.owner.kind not in _COMING_BACK
    ]
    if node_info.nominations:
        leavers += [
            PodInfo(kept.pod, cores=kept.cores, volumes=kept.volumes)
            for kept in node_info.nominations
            if kept.pod.priority >= pod.priority and kept.pod.uid not in node_info.pod_infos
        ]
    return leavers


def without(node_info: NodeInfo, gone: Collection[PodInfo]) -> NodeInfo:
    """Return the row without these pods and without what is kept for them."""
    uids = {leaver.pod.uid for leaver in gone}
    kept = tuple(nomination for nomination in node_info.nominations if nomination.pod.uid not in uids)
    row = without_pods(node_info, [uid for uid in uids if uid in node_info.pod_infos])
    return row if len(kept) == len(node_info.nominations) else attrs.evolve(row, nominations=kept)


def shortages(node_info: NodeInfo, pod: Pod) -> dict[str, int]:
    """Return how much of each resource is missing for the pod; only what is missing."""
    full = node_info.with_nominated(pod.priority)
    offered, used, missing = full.node.allocatable, full.used, dict[str, int]()
    for name, needed in ((PODS, 1), *pod.requests.items()):
        short = needed - offered.get(name, 0) + used.get(name, 0)
        if short > 0 and needed > 0:
            missing[name] = short
    return missing


def freed(leaver: PodInfo, resource: str) -> int:
    """Return how much of a resource the end of a pod makes free."""
    return 1 if resource == PODS else leaver.pod.requests.get(resource, 0)


def suffices(gone: Sequence[PodInfo], missing: dict[str, int]) -> bool:
    """Return whether the end of these pods makes free what is missing."""
    return all(sum(freed(leaver, name) for leaver in gone) >= short for name, short in missing.items())


def least(node_info: NodeInfo, pod: Pod, leavers: Sequence[PodInfo]) -> int | None:
    """
    Return a weight under which no set of the leavers can do; None if counting shows that not even all of them do.

    One of them has to leave in any case, because the node refuses the pod. `node_info` is the row without what is kept
    there for the pod itself.
    """
    if not leavers:
        return None
    bound = 1 if any(leaver.pod.terminating for leaver in leavers) else LIVE
    missing = shortages(node_info, pod)
    if missing and pod.neuron is not None:
        missing.pop(pod.neuron.resource, None)  # a legal block frees as much
    for name, short in missing.items():
        covering = _covering(name, short, leavers)
        if covering is None:
            return None
        bound = max(bound, covering)
    groups = groups_in_the_way(node_info, pod, leavers)
    if not groups:
        return None
    return max(bound, groups[0][0])


def groups_in_the_way(node_info: NodeInfo, pod: Pod, leavers: Sequence[PodInfo]) -> Sequence[tuple[int, Group]]:
    """
    Return, for each legal block, the leavers that are in its way, with their weight; the lightest first.

    One empty group if the pod asks for no Neuron, or if its blocks are too many to be listed: then any pod may stay.
    """
    if pod.neuron is None or node_info.machine is None:
        return ((0, ()),)
    held = NO_CORES
    if len(leavers) < len(node_info.pod_infos) + len(node_info.nominations):
        going = {leaver.pod.uid for leaver in leavers}
        for uid, info in node_info.pod_infos.items():
            held |= NO_CORES if uid in going or not info.cores else info.cores
    cores = tuple([leaver.cores or NO_CORES for leaver in leavers])
    weights = tuple([1 if leaver.pod.terminating else LIVE for leaver in leavers])
    return _weighed(node_info.machine, pod.neuron, node_info.machine.all_cores & ~held, cores, weights)


@memoised(maxsize=MOST_REMEMBERED)
def _weighed(
    machine: Machine, request: NeuronRequest, free: CoreMask, cores: tuple[CoreMask, ...], weights: tuple[int, ...]
) -> tuple[tuple[int, Group], ...]:
    groups = in_the_way(machine, request, free, cores)
    if groups is None:
        return ((0, ()),)
    return tuple(sorted((sum(weights[i] for i in group), group) for group in groups))


def is_suspect(leaver: PodInfo, pod: Pod) -> bool:
    """Return whether a pod may be what the filters do not count: it shares a host port, or has terms or unknown ids."""
    other = leaver.pod
    return leaver.cores is None or bool(other.constraints.anti_affinity or (pod.host_ports and other.host_ports))


def completions(group: Group, missing: dict[str, int], leavers: Sequence[PodInfo]) -> Iterator[Group]:
    """
    Yield sets with the group that make free what is missing, as light as one resource allows.

    The largest pods are added first, and in another try the least important ones; neither may be the smallest set.
    """
    left = {name: short - sum(freed(leavers[i], name) for i in group) for name, short in missing.items()}
    scarce = max(left, key=lambda name: left[name] / missing[name], default=PODS)
    if not left or left[scarce] <= 0:
        yield group
        return
    others = [i for i in range(len(leavers)) if i not in group]
    by_size = sorted(others, key=lambda i: (weight(leavers[i].pod), -freed(leavers[i], scarce)))
    by_rank = sorted(
        others, key=lambda i: (weight(leavers[i].pod), leavers[i].pod.priority, -freed(leavers[i], scarce))
    )
    for order in (by_rank, by_size):
        completed = _completed(group, dict(left), leavers, order)
        if completed is not None:
            yield completed


def _completed(group: Group, left: dict[str, int], leavers: Sequence[PodInfo], order: Sequence[int]) -> Group | None:
    """Return the group with pods in this order, until nothing is missing any more."""
    chosen = list(group)
    for i in order:
        if max(left.values()) <= 0:
            break
        freeing = {name: amount for name in left if left[name] > 0 and (amount := freed(leavers[i], name))}
        if freeing:
            chosen.append(i)
            for name in left:
                left[name] -= freed(leavers[i], name)
    return tuple(sorted(chosen)) if max(left.values()) <= 0 else None


def _covering(resource: str, short: int, leavers: Sequence[PodInfo]) -> int | None:
    """Return a weight under which no set makes so much of a resource free; None if all together do not."""
    ending = sorted((freed(leaver, resource) for leaver in leavers if leaver.pod.terminating), reverse=True)
    live = sorted((freed(leaver, resource) for leaver in leavers if not leaver.pod.terminating), reverse=True)
    for unit, amounts in ((1, ending), (LIVE, live)):
        for number, total in enumerate(accumulate(amounts), start=1):
            if total >= short:
                return number * unit
        short -= sum(amounts)
    return None
