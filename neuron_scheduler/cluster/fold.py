"""
Folds what a watch shows into the cluster, and returns what that has changed.

A pod with a node belongs to the cluster, no matter which scheduler bound it. One that cannot be read is an unknown
holder on its node, unless a state of it that could be read was bound.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from neuron_scheduler.cluster.changes import (
    AssumedPodChanged,
    Change,
    DevicesChanged,
    GroupChanged,
    NamespaceChanged,
    NodeChanged,
    NodeGone,
    PodBound,
    PodDoubted,
    PodGone,
    PodPending,
    SpaceChanged,
    StorageChanged,
)
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.model.devices import DeviceClass, DeviceObject, DeviceTaintRule, ResourceClaim, ResourceSlice
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import PodGroupObject
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.model.volumes import Storage

Watched: TypeAlias = Pod | Node | DisruptionBudget | Namespace | Workload | PodGroupObject | Storage | DeviceObject
"""An object of one of the kinds that are watched."""


def put(cluster: Cluster, old: Any, new: Watched) -> Sequence[Change]:
    """Take in an object's new state; `old` is the last one that could be read, None if it was not there before."""
    changes: Sequence[Change] = ()
    match new:
        case Pod():
            if new.claims and cluster.claims is not None:
                new = cluster.claims.put_pod(new)
            changes = _put_pod(cluster, old, new)
        case Node():
            changes = _put_node(cluster, old, new)
        case DisruptionBudget():
            cluster.budgets.put(new)
        case Namespace():
            cluster.namespaces.put(new)
            changes = (NamespaceChanged(),)
        case Workload():
            if old is not None:
                cluster.workloads.remove(old)
            cluster.workloads.put(new)
        case PodGroupObject():
            cluster.groups.declare(new.group)
            changes = (GroupChanged(new.group.key),)
        case ResourceSlice() | DeviceClass() | DeviceTaintRule() | ResourceClaim():
            changes = _changes_of_devices(cluster, new, is_gone=False)
        case _:
            changes = (StorageChanged(old, new, cluster.put_storage(new)),)
    return changes


def remove(cluster: Cluster, old: Watched) -> Sequence[Change]:
    changes: Sequence[Change] = ()
    match old:
        case Pod():
            if old.claims and cluster.claims is not None:
                cluster.claims.remove_pod(old.uid)
            changes = _remove_pod(cluster, old)
        case Node():
            lost = cluster.remove_node(old.name)  # its pods are kept until they are deleted too
            changes = (NodeGone(old.name, tuple(nomination.pod for nomination in lost)),)
        case DisruptionBudget():
            cluster.budgets.remove(old)
        case Namespace():
            cluster.namespaces.remove(old.name)  # its pods were deleted before it
        case Workload():
            cluster.workloads.remove(old)
        case PodGroupObject():
            cluster.groups.withdraw(old.group.key)  # members that have a node stay
            changes = (GroupChanged(old.group.key),)
        case ResourceSlice() | DeviceClass() | DeviceTaintRule() | ResourceClaim():
            changes = _changes_of_devices(cluster, old, is_gone=True)
        case _:
            changes = (StorageChanged(old, None, cluster.remove_storage(old)),)
    return changes


def _changes_of_devices(cluster: Cluster, changed: DeviceObject, *, is_gone: bool) -> Sequence[Change]:
    """Take in an object of Dynamic Resource Allocation: nodes get other devices, and pods other requests."""
    claims, changes = cluster.claims, list[Change]()
    if claims is None:
        return ()
    effects = claims.remove(changed) if is_gone else claims.put(changed)
    for name in effects.published:
        row = cluster.node(name)
        if row is not None:
            changes += _put_node(cluster, row.node, row.node)
    for name in effects.held:
        cluster.refresh_claimed(name)
        changes.append(SpaceChanged(name))
    changes += resolve_pods(cluster, effects.pods)
    if isinstance(changed, ResourceClaim):  # last: an observer may resolve these pods again
        changes.append(DevicesChanged(effects.held, changed.key))
    return changes


def resolve_pods(cluster: Cluster, uids: Iterable[str] = ()) -> Iterator[Change]:
    """Resolve pods whose claims mean something else now, these first; of many, the others are left for later calls."""
    for raw in () if cluster.claims is None else cluster.claims.take_unresolved(uids):
        yield from _put_pod(cluster, raw, cluster.with_claims(raw))


def put_unreadable(cluster: Cluster, pod: Pod) -> Sequence[Change]:
    """Take in a pod of which only its node could be read: what it holds is unknown, unless a bound state was read."""
    before = cluster.pod_info(pod.uid)
    if before is not None and not cluster.is_assumed(pod.uid):
        return ()
    freed = _nominated_node(cluster, pod)
    cluster.remove_pod(pod.uid)  # another scheduler may have bound it: what was assumed does not count
    return _changes_of_bound(cluster, before, cluster.put_unreadable_pod(pod), freed)


def remove_unreadable(cluster: Cluster, uid: str) -> Sequence[Change]:
    """Take out what stands in for an unreadable pod that is gone; one that can be read has replaced it already."""
    held = cluster.pod_info(uid)
    if held is None or not held.unreadable:
        return ()
    return (PodGone(held.pod, held, cluster.remove_pod(uid) or ""),)


def _put_pod(cluster: Cluster, old: Pod | None, new: Pod) -> Sequence[Change]:
    if new.node_name:
        before, freed = cluster.pod_info(new.uid), _nominated_node(cluster, new)
        changes: Sequence[Change] = _changes_of_bound(cluster, before, cluster.put_pod(new, before), freed)
    else:
        changes = _changes_of_pending(cluster, old, new)
    if new.group is None and (old is None or old.group is None):
        return changes
    cluster.groups.put(new)
    # Before the change of the pod: the queue then finds its group as it is now.
    groups = (pod.group for pod in (old, new) if pod is not None)  # it may have been in another one before
    return (*map(GroupChanged, dict.fromkeys(group.key for group in groups if group is not None)), *changes)


def _changes_of_pending(cluster: Cluster, old: Pod | None, new: Pod) -> tuple[Change, ...]:
    """A pod that waits keeps as much space as it asks for now; upstream: `UpdateNominatedPod`."""
    if cluster.is_assumed(new.uid):
        return (AssumedPodChanged(new),)
    node_name, nomination = cluster.nomination(new.uid) or ("", None)
    if nomination is not None and new.terminating:
        cluster.clear_nomination(new.uid)
        return (PodPending(new, node_name),)
    if nomination is None or old is None or nomination.pod.requests != old.requests or old.requests == new.requests:
        return (PodPending(new),)
    cluster.nominate(node_name, attrs.evolve(nomination, pod=new))
    return (PodPending(new, node_name), SpaceChanged(node_name))


def _changes_of_bound(cluster: Cluster, before: PodInfo | None, after: PodInfo, freed: str) -> list[Change]:
    changes: list[Change] = [PodBound(before, after, freed)]
    pod, is_news = after.pod, True
    if before is not None and before.pod.node_name == pod.node_name:
        is_news = before.cores != after.cores or before.problem != after.problem
    if is_news and after.cores != 0 and (after.problem or cluster.conflicts(pod.uid)):
        changes.append(PodDoubted(pod.uid))
    if before is None or is_news or (before.pod.requests is not pod.requests and after.takes_more_than(before)):
        changes.append(SpaceChanged(pod.node_name))
    return changes


def _remove_pod(cluster: Cluster, old: Pod) -> tuple[Change, ...]:
    held, nominated = cluster.pod_info(old.uid), cluster.clear_nomination(old.uid)
    gone = PodGone(old, held, cluster.remove_pod(old.uid) or nominated or "")
    if old.group is None:
        return (gone,)
    cluster.groups.remove(old.uid)
    return (gone, GroupChanged(old.group.key))


def _nominated_node(cluster: Cluster, pod: Pod) -> str:
    nominated = cluster.nomination(pod.uid) if cluster.has_nominations else None
    return "" if nominated is None else nominated[0]


def _put_node(cluster: Cluster, old: Node | None, new: Node) -> tuple[Change, ...]:
    before = cluster.node(new.name)
    if old is not None and before is not None:
        old = before.node  # by this one pods were refused: where the last state could not be read, the one before it
        if new.refusal:
            new = attrs.evolve(old, refusal=new.refusal)
    after = cluster.put_node(new)
    lost = () if before is None or before.nominations == after.nominations else before.nominations
    changes = NodeChanged(old, after, tuple(nomination.pod for nomination in lost)), SpaceChanged(new.name)
    asking = () if cluster.claims is None else cluster.claims.note_size(after.node)
    return *changes, *resolve_pods(cluster, asking)
