"""
The changes that make an empty cluster what the recorded one is now: how a file of the journal begins.

Of the changes to one thing only the last counts, and only as far as the cluster still shows it: a node that becomes
another machine, for example, loses what was set aside or nominated there.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, assert_never, get_args

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.journal.changes import (
    Assume,
    AssumeVolume,
    Change,
    ClearNomination,
    Nominate,
    PutNamespace,
    PutNode,
    PutPod,
    PutStorage,
    PutUnreadablePod,
    PutWorkload,
    RemoveNamespace,
    RemoveNode,
    RemovePod,
    RemoveStorage,
    RemoveWorkload,
    RestoreVolume,
    SetNodeAside,
)
from neuron_scheduler.model.volumes import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    VolumeAttachment,
)

_Thing = tuple[Hashable, ...]
_REMOVALS: Final = (
    RemoveNamespace,
    RemoveWorkload,
    RemoveStorage,
    RestoreVolume,
    RemoveNode,
    RemovePod,
    ClearNomination,
)
_ORDER: Final = {kind: place for place, kind in enumerate(get_args(Change))}


@attrs.define(eq=False)
class CurrentState:
    """The last change to each thing that is there."""

    _last: dict[_Thing, Change] = attrs.field(factory=dict)

    def note(self, change: Change) -> bool:
        """Remember a change; return whether it is news: not the removal of nothing, and not the same once more."""
        thing = _thing_of(change)
        before = self._last.get(thing)
        if _removes(change):
            return self._last.pop(thing, None) is not None
        if before == change and not isinstance(change, SetNodeAside | Nominate | AssumeVolume):
            return False  # these may have been lost meanwhile, with their node or by what the API server showed
        if isinstance(change, PutUnreadablePod) and before is not None:
            return False  # what is known of a pod counts more
        self._last[thing] = change
        return True

    def changes(self, cluster: Cluster) -> Sequence[Change]:
        """Return the changes that make the cluster as it is now, in an order in which they can be made."""
        return sorted(self._shown(cluster), key=lambda change: _ORDER[type(change)])

    def _shown(self, cluster: Cluster) -> Iterator[Change]:
        for change in self._last.values():
            match change:
                case SetNodeAside(name=name, aside=aside):
                    row = cluster.node(name)
                    if row is not None and row.set_aside == aside:
                        yield change
                case Nominate():
                    if cluster.nomination(change.nomination.pod.uid) is not None:
                        yield change
                case AssumeVolume(decided=PersistentVolumeClaim() as claim):
                    if cluster.volumes.claim(claim.key) == claim:
                        yield change
                case AssumeVolume(decided=PersistentVolume() as volume):
                    if cluster.volumes.volume(volume.name) == volume:
                        yield change
                case PutPod(pod=pod):
                    pod_info = cluster.pod_info(pod.uid)
                    yield change if pod_info is None else PutPod(pod_info.pod)  # with its first allocation
                case _:
                    yield change


def _removes(change: Change) -> bool:
    return isinstance(change, _REMOVALS) or (isinstance(change, SetNodeAside) and change.aside is None)


def _thing_of(change: Change) -> _Thing:  # noqa: PLR0911, PLR0912 - a case for each change
    """Return what a change is about: of equal things, only the last change counts."""
    match change:
        case PutNamespace(namespace):
            return "namespace", namespace.name
        case RemoveNamespace(name):
            return "namespace", name
        case PutWorkload(workload) | RemoveWorkload(workload):
            return "workload", workload.uid
        case PutStorage(storage) | RemoveStorage(storage):
            return _kept_under(storage)
        case AssumeVolume(decided) | RestoreVolume(decided):
            return "assumed", *_kept_under(decided)
        case PutNode(node):
            return "node", node.name
        case RemoveNode(name):
            return "node", name
        case SetNodeAside(name):
            return "set aside", name
        case PutPod(pod) | PutUnreadablePod(pod) | Assume(pod):
            return "pod", pod.uid
        case RemovePod(uid):
            return "pod", uid
        case Nominate(_, nomination):
            return "nomination", nomination.pod.uid
        case ClearNomination(uid):
            return "nomination", uid
        case _:
            assert_never(change)


def _kept_under(storage: Storage) -> _Thing:
    """Return what `Volumes` keeps an object under."""
    match storage:
        case PersistentVolumeClaim() | CSIStorageCapacity():
            return type(storage).__name__, storage.key
        case VolumeAttachment():
            return "VolumeAttachment", storage.name, storage.node_name, storage.volume_name
        case _:
            return type(storage).__name__, storage.name
