"""
The changes that make an empty cluster what the recorded one is now: how a file of the journal begins.

Of the changes to one thing only the last counts, and only as far as the cluster still shows it: a node that becomes
another machine, for example, loses what was set aside or nominated there.
"""

from collections.abc import Iterator, Sequence
from typing import Final, get_args

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.journal.changes import AssumeVolume, Change, Key, Nominate, PutPod, PutUnreadablePod, SetNodeAside
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim

_ORDER: Final = {kind: place for place, kind in enumerate(get_args(Change))}


@attrs.define(eq=False)
class CurrentState:
    """The last change to each thing that is there."""

    _last: dict[Key, Change] = attrs.field(factory=dict)

    def note(self, change: Change) -> bool:
        """Remember a change; return whether it is news: not the removal of nothing, and not the same once more."""
        key, before = change.key, self._last.get(change.key)
        if change.removes:
            return self._last.pop(key, None) is not None
        if before == change and not isinstance(change, SetNodeAside | Nominate | AssumeVolume):
            return False  # these may have been lost meanwhile, with their node or by what the API server showed
        if isinstance(change, PutUnreadablePod) and before is not None:
            return False  # what is known of a pod counts more
        self._last[key] = change
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
