"""
Pods that fail together: the members of a group that cannot run with fewer.

Of a group with a count, members may be evicted one by one as long as it keeps as many; else all of them leave.
A native group says itself whether its members are disrupted one by one or together. Upstream: KEP-5710.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import UNKNOWN, GroupKey
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
        highest: the priority of the group: the highest of its members, or what its object says; infinite if one of them
            cannot be evicted.
        earliest: when the first member was started, in seconds since the epoch; infinite if none was.
        violations: how many of them go beyond what their budgets allow, if all leave.
    """

    key: GroupKey
    least: int
    staying: int
    count: int
    total: int
    highest: float
    earliest: float
    violations: int
    members: tuple[Pod, ...] = attrs.field(eq=False, repr=False)


@attrs.define(eq=False)
class Units:
    """The units of one search, as they are when they are first asked for."""

    cluster: Cluster
    allowance: DisruptionAllowance
    _known: dict[GroupKey, EvictionUnit | None] = attrs.field(factory=dict)

    def unit_of(self, pod: Pod) -> EvictionUnit | None:
        """Return the unit of a pod; None if it may leave alone, whatever becomes of the others."""
        if pod.group is None:
            return None
        key = pod.group.key
        if key not in self._known:
            self._known[key] = self._unit_of_group(key)
        return self._known[key]

    def may_leave(self, pod: Pod, priority: int) -> bool:
        """Return whether a pod may leave for one of this priority, as far as its group decides it."""
        unit = self.unit_of(pod)
        return unit is None or unit.highest < priority

    def lost_by(self, gone: Iterable[Pod]) -> tuple[EvictionUnit, ...]:
        """Return the units that lose too many when these pods leave: their other members have to leave as well."""
        units, losses = dict[GroupKey, EvictionUnit](), dict[GroupKey, int]()
        for pod in gone:
            unit = self.unit_of(pod)
            if unit is not None and (not pod.terminating or pod.preempted):
                units[unit.key] = unit
                losses[unit.key] = losses.get(unit.key, 0) + self._stays(pod)
        return tuple([unit for key, unit in units.items() if unit.staying - losses[key] < unit.least])

    def others_of(self, gone: Sequence[Pod]) -> list[Pod]:
        """Return the pods that have to leave, on whatever node, when these do."""
        uids = {pod.uid for pod in gone}
        return [member for unit in self.lost_by(gone) for member in unit.members if member.uid not in uids]

    def _stays(self, pod: Pod) -> bool:
        """Return whether nobody evicts a pod: its end may be asked for, and the watch has not shown it yet."""
        node_info = self.cluster.node(pod.node_name)
        nominations = () if node_info is None else node_info.nominations
        return not pod.terminating and not any(pod.uid in each.victims and not each.awaited for each in nominations)

    def _unit_of_group(self, key: GroupKey) -> EvictionUnit | None:
        group = self.cluster.groups.group(key)
        is_counted = group.has_to_wait and group.least != UNKNOWN
        if not (is_counted if group.fails_together is None else group.fails_together):
            return None
        found = map(self.cluster.pod_info, self.cluster.groups.members(key))
        pod_infos = [pod_info for pod_info in found if pod_info is not None]
        members = tuple([pod_info.pod for pod_info in pod_infos])
        highest = max([pod.priority for pod in members], default=0) if group.priority is None else group.priority
        return EvictionUnit(
            key,
            _ALL if group.fails_together else group.least,
            sum(map(self._stays, members)),
            len(members),
            sum(pod.priority for pod in members),
            highest if all(pod_info.is_evictable for pod_info in pod_infos) else inf,
            min((pod.started for pod in members if pod.started is not None), default=inf),
            len(self.allowance.violating_uids(members)),
            members,
        )
