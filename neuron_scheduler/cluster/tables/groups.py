"""
What each group is: its members, and what they say of it together.

Members are pods of any scheduler, with a node or without, but not those that are being deleted. Where they, or an
object of kind PodGroup, say different numbers, the largest counts. A member with Neuron that another scheduler decides
is *foreign* until it has a node: nobody here knows whether it will get one, so the others do not start on its account.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final, Self

import attrs

from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite, SharedDict
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.pod_group import UNKNOWN, Dialect, GroupKey, PodGroup
from neuron_scheduler.model.wording import clip, list_of

MOST_SAYINGS: Final = 64
"""Different sayings of a group that count; members that say something else after that are members all the same."""
OTHERS: Final = "another name"
"""What the schedulerNames are called that come after so many: no scheduler has a name with a blank."""


@attrs.define(eq=False)
class _Members:
    """
    The members of one group, and how many say the same of the group: of those with a node, and of all.

    Attributes:
        deciders: the schedulerNames of the members with Neuron that have no node.
        owners: the controllers of the members.
    """

    pods: dict[str, Pod] = attrs.field(factory=dict)
    placed: Counter[PodGroup] = attrs.field(factory=Counter)
    said: Counter[PodGroup] = attrs.field(factory=Counter)
    deciders: Counter[str] = attrs.field(factory=Counter)
    owners: Counter[Owner | None] = attrs.field(factory=Counter)

    def copy(self) -> Self:
        counts = (self.placed.copy(), self.said.copy(), self.deciders.copy(), self.owners.copy())
        return type(self)(dict(self.pods), *counts)


_NOBODY: Final = _Members()
_NAMED: Final = 3


def _name_of(owner: Owner | None) -> str:
    return "no controller" if owner is None else f"{owner.kind} {owner.name}"


@attrs.define(eq=False)
class Groups:
    """
    All groups that have a member.

    Attributes:
        watched: the API groups that are known; a group without its PodGroup waits for it, or its members say a count.
        served: the scheduler names whose pods are decided here; empty if no member is foreign.
    """

    _members: CopyOnWrite[GroupKey, _Members] = attrs.field(factory=CopyOnWrite)
    _group_of: SharedDict[str, PodGroup] = attrs.field(factory=SharedDict)
    _declared: dict[GroupKey, PodGroup] = attrs.field(factory=dict)
    _decider_of: dict[str, str] = attrs.field(factory=dict)
    watched: set[str] = attrs.field(factory=set)
    served: frozenset[str] = frozenset()

    def declare(self, group: PodGroup) -> None:
        self.watched.add(group.key.dialect)
        self._declared[group.key] = group

    def withdraw(self, key: GroupKey) -> None:
        self._declared.pop(key, None)

    def put(self, pod: Pod) -> None:
        self.remove(pod.uid)
        group = pod.group
        if group is not None and not pod.terminating:
            members = self._members.to_change(group.key, _Members)
            members.pods[pod.uid] = pod
            if group not in members.said and len(members.said) >= MOST_SAYINGS:
                group = PodGroup(group.key)
            members.said[group] += 1
            members.placed.update((group,) if pod.node_name else ())
            members.owners[pod.owner] += 1
            self._group_of[pod.uid] = group
            if pod.neuron is not None and not pod.node_name:
                name = self._decider_of[pod.uid] = self._name_of_decider(pod, members)
                members.deciders[name] += 1

    def remove(self, uid: str) -> None:
        group = self._group_of.pop(uid, None)
        if group is not None:
            members = self._members.to_change(group.key, _Members)
            members.said -= Counter((group,))  # drops those that nobody says any more
            pod = members.pods.pop(uid)
            members.placed -= Counter((group,) if pod.node_name else ())
            members.owners[pod.owner] -= 1
            if not members.owners[pod.owner]:
                del members.owners[pod.owner]
            name = self._decider_of.pop(uid, None)
            members.deciders -= Counter(() if name is None else (name,))
            if not members.pods:
                self._members.remove(group.key)

    def _name_of_decider(self, pod: Pod, members: _Members) -> str:
        name = pod.scheduler_name
        is_listed = name in members.deciders or name in self.served or len(members.deciders) < MOST_SAYINGS
        return name if is_listed else OTHERS

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(self._members.by_key)

    def members(self, key: GroupKey) -> Mapping[str, Pod]:
        return self._members.by_key.get(key, _NOBODY).pods

    def title(self, key: GroupKey) -> str:
        """
        Return a group's name for messages, with the controllers of its members if there are several.

        Two Jobs with one name for their group are one group: their owner sees it here.
        """
        owners = self._members.by_key.get(key, _NOBODY).owners
        if len(owners) < 2 or key.dialect is Dialect.LEADER_WORKER_SET:  # which makes a StatefulSet for each group
            return str(key)
        names = nsmallest(_NAMED, map(_name_of, owners))  # a JobSet may have thousands of Jobs
        more = [f"{len(owners) - _NAMED} more"] if len(owners) > _NAMED else []
        return f"{key} (pods of {list_of([*map(clip, names), *more])})"

    def owners(self, key: GroupKey) -> Sequence[str]:
        """Return the names of the members' controllers, such as `Job train`."""
        return sorted(map(_name_of, self._members.by_key.get(key, _NOBODY).owners))

    def foreign_members(self, key: GroupKey) -> Counter[str]:
        """Return how many members are foreign, by their schedulerName."""
        deciders = self._members.by_key.get(key, _NOBODY).deciders
        return Counter({name: count for name, count in deciders.items() if self.served and name not in self.served})

    def present_count(self, key: GroupKey) -> int:
        """Return how many members count towards those that the group needs: all but the foreign ones."""
        return len(self.members(key)) - self.foreign_members(key).total()

    def other_groups(self, key: GroupKey) -> Iterator[GroupKey]:
        """Yield the other groups of a namespace that are said in the same words; looks at all groups."""
        same = key.dialect, key.namespace
        return (other for other in self._members.by_key if other != key and (other.dialect, other.namespace) == same)

    def placed_count(self, key: GroupKey) -> int:
        return self._members.by_key.get(key, _NOBODY).placed.total()

    def begun_size(self, key: GroupKey) -> int:
        """Return how many members make a group complete, as those with a node say: no later member raises that."""
        sizes = [group.size for group in self._members.by_key.get(key, _NOBODY).placed if group.size]
        return self._declared[key].size if key in self._declared else min(sizes, default=0)

    def group(self, key: GroupKey) -> PodGroup:
        """
        Return a group as all members and its PodGroup say it together: of each field the largest value.

        Where members say different domains, such as two jobs of a group with an UltraServer each, it has none: the
        affinity of each member counts, as without a group.
        """
        members, declared = self._members.by_key.get(key), self._declared.get(key) or PodGroup(key)
        if members is None:
            return declared
        domains = {(group.topology, group.of) for group in members.said if group.topology}
        least = max(declared.least, *(group.least for group in members.said))
        return PodGroup(
            key,
            least or (UNKNOWN if key.dialect in self.watched else 0),
            max(declared.expected, *(group.expected for group in members.said)),
            declared.topology or (next(iter(domains))[0] if len(domains) == 1 else ""),
            fails_together=declared.fails_together,
            priority=declared.priority,
        )

    def members_elsewhere(self, key: GroupKey) -> frozenset[str]:
        """Return the uids of members that may be outside of the domain: those that do not say so, if others do."""
        topology, declared = self.group(key).topology, self._declared.get(key)
        if not topology or (declared is not None and declared.topology):
            return frozenset()
        members = self.members(key).items()
        return frozenset(uid for uid, pod in members if pod.group is not None and pod.group.topology != topology)

    def group_of(self, pod: Pod) -> PodGroup | None:
        """
        Return the group with which a pod is decided; None if alone: its group needs one member, or has all it needs.

        Members know their domain themselves, unless an object says it.
        """
        group = None if pod.group is None else self.group(pod.group.key)
        if group is None or (group.least == 1 and not group.topology):
            return None
        return None if self.is_complete(group) else group

    def is_complete(self, group: PodGroup) -> bool:
        """Return whether a group has all that it needs, and later members may go anywhere as far as it says."""
        declared = self._declared.get(group.key)
        return 0 < group.size <= self.placed_count(group.key) and not (declared is not None and declared.topology)

    def group_to_plan(self, pod: Pod) -> PodGroup | None:
        """Return the same; None also for the only member that exists, if none is known to come."""
        group = self.group_of(pod)
        if group is None or group.size or group.topology:
            return group
        return group if self.members(group.key).keys() - {pod.uid} else None

    def fork(self) -> Self:
        """Return an independent copy; the members of a group are copied when one of the two changes them."""
        mappings = (self._members.copy(), self._group_of.copy(), dict(self._declared), dict(self._decider_of))
        return type(self)(*mappings, set(self.watched), self.served)
