"""
The members of each group that have a node, with what they are together.

Kept as they come and go: a group may have tens of thousands, and every search for victims asks about them. Assumed
members count, those that are being deleted do not. A fork shares a group until one of the two changes it.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Self, TypeAlias

import attrs

from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey

_AT_ONCE: Final = 256
"""Members whose kind is looked at in one step."""
_MOST_DEFINITIONS: Final = 4
"""Of kinds; a search that goes on while budgets change must not undo what another one counts."""
Kind: TypeAlias = tuple[str, ...]
"""Such as the keys of the budgets that select a pod."""


@attrs.define(eq=False)
class _Kinds:
    """How many members are of each kind, by one definition, without those that are not counted yet."""

    uncounted: set[str]
    counts: Counter[Kind] = attrs.field(factory=Counter)


@attrs.define(eq=False)
class PlacedGroup:
    """
    The members of one group that have a node.

    Attributes:
        pods: by uid.
        kept: uids of those that nobody may evict.
        total: the sum of their priorities.
        priorities, starts: of all, in ascending order; a member that was not started has no start.
    """

    pods: dict[str, Pod] = attrs.field(factory=dict)
    kept: set[str] = attrs.field(factory=set)
    total: int = 0
    priorities: list[int] = attrs.field(factory=list)
    starts: list[float] = attrs.field(factory=list)
    _kinds: dict[Callable[[Pod], Kind], _Kinds] = attrs.field(factory=dict)  # by definition

    def put(self, pod_info: PodInfo) -> None:
        pod = pod_info.pod
        self.remove(pod.uid)
        self.pods[pod.uid] = pod
        self.kept.update(() if pod_info.is_evictable else (pod.uid,))
        self.total += pod.priority
        insort(self.priorities, pod.priority)
        if pod.started is not None:
            insort(self.starts, pod.started)
        for kinds in self._kinds.values():
            kinds.uncounted.add(pod.uid)

    def remove(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self.kept.discard(uid)
        self.total -= pod.priority
        del self.priorities[bisect_left(self.priorities, pod.priority)]
        if pod.started is not None:
            del self.starts[bisect_left(self.starts, pod.started)]
        for kind_of, kinds in self._kinds.items():
            if uid in kinds.uncounted:
                kinds.uncounted.remove(uid)
            else:
                kinds.counts[kind_of(pod)] -= 1

    def is_counted(self, kind_of: Callable[[Pod], Kind]) -> bool:
        """Return whether the kinds of all members are known by this definition, but for a few."""
        return kind_of in self._kinds and len(self._kinds[kind_of].uncounted) < _AT_ONCE

    def count_some(self, kind_of: Callable[[Pod], Kind], most: int = _AT_ONCE) -> None:
        """Look at so many more members' kind; which pod is of which kind must never change."""
        if kind_of not in self._kinds:
            if len(self._kinds) >= _MOST_DEFINITIONS:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[kind_of] = _Kinds(set(self.pods))
        kinds = self._kinds[kind_of]
        some = [kinds.uncounted.pop() for _ in range(min(most, len(kinds.uncounted)))]
        kinds.counts.update(kind_of(self.pods[uid]) for uid in some)

    def count_by_kind(self, kind_of: Callable[[Pod], Kind]) -> Mapping[Kind, int]:
        """Return how many members are of each kind; takes long if `is_counted` says no."""
        self.count_some(kind_of, len(self.pods))
        return self._kinds[kind_of].counts

    def copy(self) -> Self:
        kinds = {kind_of: _Kinds(set(each.uncounted), each.counts.copy()) for kind_of, each in self._kinds.items()}
        return type(self)(dict(self.pods), set(self.kept), self.total, list(self.priorities), list(self.starts), kinds)


_NOBODY: Final = PlacedGroup()


@attrs.define(eq=False)
class PlacedGroups:
    """All groups of which a member has a node."""

    _groups: CopyOnWrite[GroupKey, PlacedGroup] = attrs.field(factory=CopyOnWrite)

    def of(self, key: GroupKey) -> PlacedGroup:
        return self._groups.by_key.get(key, _NOBODY)

    def replace(self, before: PodInfo | None, after: PodInfo | None) -> None:
        """Take in what a pod is on a node now instead of what it was there."""
        group = None if before is None else before.pod.group
        if before is not None and group is not None and group.key in self._groups.by_key:
            placed = self._groups.to_change(group.key, PlacedGroup)
            placed.remove(before.pod.uid)
            if not placed.pods:
                self._groups.remove(group.key)
        group = None if after is None else after.pod.group
        if after is not None and group is not None and not after.pod.terminating:
            self._groups.to_change(group.key, PlacedGroup).put(after)

    def fork(self) -> Self:
        return type(self)(self._groups.copy())
