"""
Pods that fail together: the members of a group that cannot run with fewer.

Of a group with a count, members may be evicted one by one as long as it keeps as many; else all of them leave.
A native group says itself whether its members are disrupted one by one or together. Upstream: KEP-5710. Members of
different priorities leave one by one, each by its own.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from math import inf
from typing import Final, TypeAlias

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import UNKNOWN, GroupKey
from neuron_scheduler.scheduling.cycle.filters import nomination_priorities
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance

_ALL: Final = 1 << 30
"""More members than any group has."""


@attrs.frozen
class EvictionUnit:
    """
    The members of a group that have a node.

    Attributes:
        least: how many of them must stay, or none does.
        staying: how many of them no other pod's nomination names as victims.
        count, total: their number, and the sum of their priorities.
        highest: the priority of the group: that of its members, or what its object says; infinite if one of them cannot
            be evicted.
        earliest: when the first member was started, in seconds since the epoch; infinite if none was.
    """

    key: GroupKey
    least: int
    staying: int
    count: int
    total: int
    highest: float
    earliest: float


UnitState: TypeAlias = bool | tuple[EvictionUnit, int]
"""Whether members on a node may leave one by one; or the unit that ends with them, and its violations of budgets."""


@attrs.define(eq=False)
class Units:
    """The units of one search, as they are when they are first asked for."""

    cluster: Cluster
    _leaving: Mapping[GroupKey, set[str]] | None = None
    allowance: DisruptionAllowance = attrs.field(init=False)
    _known: dict[GroupKey, EvictionUnit | None] = attrs.field(factory=dict, init=False)
    _violations: dict[GroupKey, int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.allowance = DisruptionAllowance(self.cluster.budgets)

    def unit_of(self, pod: Pod) -> EvictionUnit | None:
        """Return the unit of a pod; None if it may leave alone, whatever becomes of the others."""
        return None if pod.group is None else self._unit(pod.group.key)

    def may_leave(self, pod: Pod, priority: int) -> bool:
        """Return whether a pod may leave for one of this priority, as far as its group decides it."""
        unit = self.unit_of(pod)
        return unit is None or unit.highest < priority

    def lost_by(self, gone: Iterable[Pod]) -> tuple[EvictionUnit, ...]:
        """Return the units that lose too many when these pods leave: their other members have to leave as well."""
        units, losses = dict[GroupKey, EvictionUnit](), Counter[GroupKey]()
        for pod in gone:
            unit = self.unit_of(pod)
            if unit is not None and (not pod.terminating or self._is_left(unit.key, pod.preempted)):
                units[unit.key] = unit
                losses[unit.key] += not pod.terminating and pod.uid not in self.leaving.get(unit.key, ())
        return tuple([unit for key, unit in units.items() if unit.staying - losses[key] < unit.least])

    def _is_left(self, key: GroupKey, preempted: float) -> bool:
        """Return whether a member stays that was there when another one was evicted; later ones are a new run."""
        return any(pod.created < preempted for pod in self.cluster.placed_groups.of(key).pods.values())

    def others_of(self, gone: Sequence[Pod]) -> list[Pod]:
        """Return the pods that have to leave, on whatever node, when these do."""
        uids, placed = {pod.uid for pod in gone}, self.cluster.placed_groups
        lost = [placed.of(unit.key).pods for unit in self.lost_by(gone)]
        return [member for members in lost for uid, member in members.items() if uid not in uids]

    def states(
        self, members: Sequence[tuple[GroupKey, int]], priority: int
    ) -> Generator[None, None, tuple[UnitState, ...]]:
        """Return all that matters of the groups of a node's pods to one of this priority; counts budgets in steps."""
        while (states := self.known_states(members, priority)) is None:
            for key in [key for key, _ in members if not self._is_counted(key)]:
                self.cluster.placed_groups.of(key).count_some(self.allowance.selecting(key.namespace).keys_of)
                yield
        return states

    def known_states(self, members: Sequence[tuple[GroupKey, int]], priority: int) -> tuple[UnitState, ...] | None:
        """Return the same; None if the members that budgets select have to be counted first."""
        states = list[UnitState]()
        for key, count in members:
            unit = self._unit(key)
            if unit is None or unit.highest >= priority or unit.staying - count >= unit.least:  # whoever leaves here
                states.append(unit is None or unit.highest < priority)
            elif key in self._violations or self._is_counted(key):
                states.append((unit, self.violations_of(key)))
            else:
                return None
        return tuple(states)

    def violations_of(self, key: GroupKey) -> int:
        """Return how many members of a unit go beyond what their budgets allow, if all leave."""
        selecting = self.allowance.selecting(key.namespace)
        if not selecting.keys:
            return 0
        if key not in self._violations:
            group = self.cluster.placed_groups.of(key)
            counts = Counter(group.count_by_kind(selecting.keys_of))
            disrupted = self.allowance.disrupted_pods({key for keys in counts for key in keys})
            for pod in group.pods.values() if disrupted else ():
                if pod.name in disrupted:
                    counts[selecting.keys_of(pod)] -= 1
                    counts[self.allowance.counted_by(pod)] += 1
            in_order = dict(sorted(counts.items()))  # the next leader, and `why`, are to find the same
            self._violations[key] = self.allowance.violation_count(in_order)
        return self._violations[key]

    @property
    def leaving(self) -> Mapping[GroupKey, set[str]]:
        """The members that other pods' nominations name as victims: the watch may not show yet that they are ending."""
        if self._leaving is None:
            self._leaving = _leaving_members(self.cluster)
        return self._leaving

    def _is_counted(self, key: GroupKey) -> bool:
        selecting = self.allowance.selecting(key.namespace)
        return not selecting.keys or self.cluster.placed_groups.of(key).is_counted(selecting.keys_of)

    def _unit(self, key: GroupKey) -> EvictionUnit | None:
        if key not in self._known:
            self._known[key] = self._unit_of_group(key)
        return self._known[key]

    def _unit_of_group(self, key: GroupKey) -> EvictionUnit | None:
        group, placed = self.cluster.groups.group(key), self.cluster.placed_groups.of(key)
        is_counted = group.has_to_wait and group.least != UNKNOWN
        if not (is_counted if group.fails_together is None else group.fails_together):
            return None
        said = placed.priorities[-1:] if group.priority is None else [group.priority]
        if placed.priorities and not placed.priorities[:1] == placed.priorities[-1:] == said:
            return None  # nobody is protected by a priority that is not its own
        highest = max(said, default=0)
        return EvictionUnit(
            key,
            _ALL if group.fails_together else group.least,
            len(placed.pods) - len(self.leaving.get(key, set()) & placed.pods.keys()),
            len(placed.pods),
            placed.total,
            inf if placed.kept else highest,
            min(placed.starts[:1], default=inf),
        )


def _leaving_members(cluster: Cluster) -> dict[GroupKey, set[str]]:
    leaving = dict[GroupKey, set[str]]()
    for slot in slots_of(cluster.view.postings(nomination_priorities).keyed):
        row = cluster.view.row(slot)
        victims = [uid for each in row.nominations if not each.awaited for uid in each.victims if uid in row.pod_infos]
        for pod in [row.pod_infos[uid].pod for uid in victims]:
            if pod.group is not None and not pod.terminating:
                leaving.setdefault(pod.group.key, set()).add(pod.uid)
    return leaving
