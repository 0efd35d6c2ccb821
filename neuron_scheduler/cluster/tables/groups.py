"""The members of each group: pods of any scheduler, with a node or without, but not those that are being deleted."""

from collections.abc import Mapping
from typing import Final, Self

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey

_NOBODY: Final[Mapping[str, Pod]] = {}


@attrs.define(eq=False)
class Groups:
    """Pods by uid, by group."""

    _members: dict[GroupKey, dict[str, Pod]] = attrs.field(factory=dict)
    _group_of: dict[str, GroupKey] = attrs.field(factory=dict)

    def put(self, pod: Pod) -> None:
        """Keep the present state of a pod."""
        group = None if pod.group is None or pod.terminating else pod.group.key
        if self._group_of.get(pod.uid) != group:
            self.remove(pod.uid)
        if group is not None:
            self._members.setdefault(group, {})[pod.uid] = pod
            self._group_of[pod.uid] = group

    def remove(self, uid: str) -> None:
        """Drop a pod that is gone."""
        key = self._group_of.pop(uid, None)
        if key is not None:
            members = self._members[key]
            del members[uid]
            if not members:
                del self._members[key]

    def members(self, key: GroupKey) -> Mapping[str, Pod]:
        """Return the members of a group."""
        return self._members.get(key, _NOBODY)

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)({key: dict(pods) for key, pods in self._members.items()}, dict(self._group_of))
