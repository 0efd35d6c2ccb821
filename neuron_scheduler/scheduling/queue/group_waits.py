"""
The waiting members of each group: which of them are held until there are enough, and how long to wait for more.

A declared group is held below its count. An inferred one is never held, but its members are created in a burst, and the
first alone would choose a place for one: its first try waits until no new member has come for a second. When one goes,
the others wait as long: it may be created again, or all of them may be on their way out.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey, PodGroup
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod

BURST_PAUSE: Final = 1.0
"""Seconds without a member that comes or goes after which an inferred group is tried."""
LONGEST_BURST: Final = 3.0
"""Seconds after its first member at which it is tried in any case."""


def nobody(_key: GroupKey) -> Mapping[str, Pod]:
    """Return no members: without a cluster, none is known."""
    return {}


@attrs.define(eq=False)
class _Waiting:
    """
    The waiting members of a group.

    Attributes:
        since: when the first of them came.
        held: whether there were too few at the last look.
        half_bound: whether another member has a node, or had one while these waited.
        count: how many members, placed or not, existed at the last look.
        tried: when an inferred group may be tried.
        pods: by uid.
    """

    since: float
    held: bool
    half_bound: bool
    count: int = 0
    tried: float = 0.0
    pods: dict[str, QueuedPod] = attrs.field(factory=dict)

    @property
    def group(self) -> PodGroup:
        """The group as the member that came last, of those that still wait, says it."""
        return next(group for queued in reversed(self.pods.values()) if (group := queued.pod.group) is not None)


@attrs.define(eq=False)
class GroupWaits:
    """
    Waiting pods by group.

    Attributes:
        members: returns the members of a group that exist, placed or not, of any scheduler.
    """

    members: Callable[[GroupKey], Mapping[str, Pod]]
    _groups: dict[GroupKey, _Waiting] = attrs.field(factory=dict)

    def join(self, queued: QueuedPod, group: PodGroup, now: float) -> None:
        """Add a pod to its group."""
        waiting = self._groups.get(group.key)
        if waiting is None:
            half_bound = any(pod.node_name for pod in self.members(group.key).values())
            waiting = self._groups[group.key] = _Waiting(now, held=group.awaits, half_bound=half_bound)
        waiting.pods[queued.pod.uid] = queued
        if not group.awaits:
            complete = 0 < group.expected <= len(self.members(group.key))
            waiting.tried = now if complete else min(now + BURST_PAUSE, waiting.since + LONGEST_BURST)

    def leave(self, uid: str, key: GroupKey) -> None:
        """Remove a pod from the group that it has joined."""
        waiting = self._groups.get(key)
        if waiting is not None:
            waiting.pods.pop(uid, None)
            if not waiting.pods:
                del self._groups[key]

    def waiting(self, key: GroupKey) -> list[QueuedPod]:
        """Return the members of a group that wait or are in flight, the first first."""
        waiting = self._groups.get(key)
        return [] if waiting is None else [*waiting.pods.values()]

    def is_held(self, key: GroupKey) -> bool:
        """Return whether a group had too few members at the last look."""
        waiting = self._groups.get(key)
        return waiting is not None and waiting.held

    def is_half_bound(self, key: GroupKey) -> bool:
        """Return whether some members of a group have a node, or had one, while others wait."""
        waiting = self._groups.get(key)
        return waiting is not None and waiting.half_bound

    def turned(self, key: GroupKey, now: float) -> bool:
        """
        Look at a group; return whether those that wait are to be tried or held, unlike at the last look.

        They are tried when there are enough of them, and when a member has gone: the others may fit without it.
        """
        waiting = self._groups.get(key)
        if waiting is None:
            return False
        held, count = waiting.held, waiting.count
        waiting.count = len(self.members(key))
        waiting.held = waiting.group.awaits and waiting.count < waiting.group.least
        if waiting.count < count:
            waiting.tried = now + BURST_PAUSE
        return waiting.held != held or (not held and waiting.count < count)

    def becomes_half_bound(self, key: GroupKey) -> bool:
        """Note that a member has a node; return whether that is news, and others wait."""
        waiting = self._groups.get(key)
        if waiting is None or waiting.half_bound:
            return False
        waiting.half_bound = True
        return True

    def not_before(self, queued: QueuedPod) -> float:
        """Return when a member of a group may be tried."""
        group = queued.pod.group
        waiting = None if group is None or group.awaits else self._groups.get(group.key)
        return 0.0 if waiting is None else waiting.tried

    def counts(self) -> dict[str, int]:
        """Return how many groups are held because they have too few members, and how many are refused."""
        counts = {"held": 0, "refused": 0}
        for waiting in self._groups.values():
            if waiting.held:
                counts["held"] += 1
            elif any(queued.place is Place.UNSCHEDULABLE for queued in waiting.pods.values()):
                counts["refused"] += 1
        return counts

    def held(self) -> Iterator[tuple[PodGroup, float, list[QueuedPod]]]:
        """Yield each group that has too few members, since when one waits, and those that wait."""
        for waiting in self._groups.values():
            if waiting.held:
                yield waiting.group, waiting.since, [*waiting.pods.values()]
