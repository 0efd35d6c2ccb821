"""
The waiting members of each group: which of them are held until there are enough, and how long to wait for more.

A declared group is held below its count. An inferred one is never held, but its members are created in a burst, and the
first alone would choose a place for one: its first try waits until no new member has come for a second. When one goes,
the others wait as long: it may be created again.

An attempt that binds and evicts nobody is paid back: what it took, twenty times over, passes before the next attempt at
a group of the same namespace, if that has no higher priority. The groups of a namespace take turns, so each waits for
its own turn only once. One for which others were evicted, and whose room is kept, pays for itself alone, only twice as
long. If many of a namespace pay it is twice what all of them took, times the number of such namespaces: together they
leave half of the time.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.scheduling.queue.places import Place, QueuedPod

BURST_PAUSE: Final = 1.0
"""Seconds without a member that comes or goes after which an inferred group is tried."""
LONGEST_BURST: Final = 3.0
"""Seconds after its first member at which it is tried in any case."""
PAYBACK: Final = 20.0
"""How many times as long as an attempt in vain the pause after it is: groups of one priority use 5 % of the time."""
LONGEST_PAUSE: Final = 10.0
"""Seconds of the longest pause after one attempt, if only one pays: the machine may have stood still."""
LONGEST_WAIT_FOR_TURN: Final = 300.0
"""Seconds for which a group waits for its turn at most, as long as for an event that does not come."""


@attrs.define(eq=False)
class _WaitingGroup:
    """
    The waiting members of a group, by uid.

    Attributes:
        since: when the first of them came.
        held: whether there were too few at the last look.
        half_bound: whether at the last look some members had a node, fewer than these say, and the others existed.
        complete: whether it had all that it needs at the last look: those that wait are single pods.
        count: how many members, placed or not, counted at the last look.
        least: what it needed at the last look.
        placed: how many of them had a node when it was refused; None if it was not, since its last try.
        not_before: when the group may be tried.
        turn: when it is its turn; 0 if it does not wait for one.
        has_room: space is kept for a member.
    """

    since: float
    held: bool
    half_bound: bool = False
    complete: bool = False
    count: int = 0
    least: int = 0
    placed: int | None = None
    not_before: float = 0.0
    turn: float = 0.0
    has_room: bool = False
    pods: dict[str, QueuedPod] = attrs.field(factory=dict)


@attrs.define(eq=False)
class GroupWaits:
    """
    Waiting pods by group.

    Attributes:
        groups: what each group is, with the members that exist, placed or not, of any scheduler.
        ending: the groups whose members are being evicted, because they cannot run with fewer: the rest is held.
        untold: the held groups that have changed since their members were told, and since when one waits.
        _debts: by payer and priority, when the time that groups used in vain is paid back and those that wait have
            had their turns; the seconds of a pause, for the last attempt and for each of these turns; and its seconds.
    """

    groups: Groups
    ending: set[GroupKey] = attrs.field(factory=set, init=False)
    untold: dict[GroupKey, float] = attrs.field(factory=dict, init=False)
    _waiting: dict[GroupKey, _WaitingGroup] = attrs.field(factory=dict)
    _debts: dict[tuple[str, GroupKey | None], dict[int, tuple[float, float, float]]] = attrs.field(factory=dict)

    def join(self, queued: QueuedPod, key: GroupKey, now: float) -> None:
        waiting, group = self._waiting.get(key), self.groups.group(key)
        if waiting is None:
            waiting = self._waiting[key] = _WaitingGroup(now, held=group.has_to_wait)
        waiting.pods[queued.pod.uid] = queued
        complete = group.has_to_wait or 0 < group.expected <= self.groups.present_count(key)
        waiting.not_before = now if complete else min(now + BURST_PAUSE, waiting.since + LONGEST_BURST)

    def leave(self, uid: str, key: GroupKey) -> bool:
        """Take a member out; return whether others of its group wait."""
        pods = self._waiting[key].pods
        del pods[uid]
        if not pods:
            del self._waiting[key]
            self.untold.pop(key, None)
        return bool(pods)

    def waiting_members(self, key: GroupKey) -> Iterator[QueuedPod]:
        """Yield the members of a group that wait or are in flight, the first first; none that leaves meanwhile."""
        pods = self._waiting[key].pods if key in self._waiting else {}
        return (pods[uid] for uid in [*pods] if uid in pods)

    def waiting_uids(self, key: GroupKey) -> frozenset[str]:
        return frozenset(self._waiting[key].pods if key in self._waiting else ())

    def is_held(self, key: GroupKey) -> bool:
        return key in self._waiting and self._waiting[key].held

    def is_half_bound(self, key: GroupKey) -> bool:
        return key in self._waiting and self._waiting[key].half_bound

    def update(self, key: GroupKey, now: float) -> bool:
        """
        Update the group; return whether its waiting members changed between held and ready, or are worth another try.
        They are when a member has gone, when another count is said, when another scheduler has bound one, and when the
        group is complete: from now on each may evict pods for itself.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        held, count, least, group = waiting.held, waiting.count, waiting.least, self.groups.group(key)
        placed, was_complete = self.groups.placed_count(key), waiting.complete
        waiting.least = group.least
        waiting.count = self.groups.present_count(key)
        waiting.complete = self.groups.is_complete(group)
        waiting.held = key in self.ending or (group.has_to_wait and waiting.count < group.least)
        self.untold.pop(key, None)
        if waiting.held:
            self.untold[key] = waiting.since
        waiting.half_bound = 0 < placed < self.groups.begun_size(key) <= waiting.count
        if waiting.count < count and waiting.not_before <= now and not group.least:
            waiting.not_before = now + BURST_PAUSE
        is_less_needed = waiting.placed is not None and waiting.placed < placed
        if is_less_needed:
            waiting.placed = placed
        is_completed = waiting.complete and not was_complete
        is_worth_a_try = is_less_needed or is_completed or waiting.count < count or waiting.least != least
        return waiting.held != held or (not held and is_worth_a_try)

    def note_try(self, key: GroupKey, *, is_refused: bool, has_room: bool = False) -> None:
        """Note that a group is tried, or that it was refused as a whole, and whether space is kept for a member."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            if is_refused:
                waiting.has_room = has_room or (waiting.has_room and waiting.placed is not None)
            waiting.placed = self.groups.placed_count(key) if is_refused else None

    def charge(self, key: GroupKey, priority: int, seconds: float, now: float) -> None:
        """Have the part of a group's attempt paid back that was for members that get nothing."""
        live = {payer: {p: debt for p, debt in owed.items() if debt[0] > now} for payer, owed in self._debts.items()}
        self._debts = {payer: owed for payer, owed in live.items() if owed}
        owed = self._debts.setdefault(payer := self._payer_of(key), {})
        paid, before, _ = owed.pop(priority, (now, 0.0, 0.0))
        seconds = min(seconds, LONGEST_PAUSE / 2)
        debts = [(who, took) for who, owed in self._debts.items() for p, (*_, took) in owed.items() if p >= priority]
        used = seconds + sum(took for (namespace, _), took in debts if namespace == key.namespace)
        shared = 2 * len({key.namespace, *(namespace for (namespace, _), _ in debts)}) * used
        pause = shared if payer[1] else max(min(PAYBACK * seconds, LONGEST_PAUSE), shared)
        owed[priority] = max(paid + pause - before, now + pause), pause, seconds

    def _payer_of(self, key: GroupKey) -> tuple[str, GroupKey | None]:
        """Return who pays for a group: its namespace, or it alone if others were evicted for it, and room is kept."""
        return key.namespace, key if key in self._waiting and self._waiting[key].has_room else None

    def put_off(self, key: GroupKey, until: float) -> None:
        """Try a group no earlier: a member whose attempt ended in an error has its backoff."""
        self._waiting[key].not_before = max(self._waiting[key].not_before, until)

    def not_before(self, key: GroupKey, now: float) -> float:
        """Return when a group that could be tried now may be tried; one that may take its turn has had it."""
        waiting, owed = self._waiting[key], self._debts.get(self._payer_of(key), {})
        priority = next(iter(waiting.pods.values())).pod.priority
        paid, pause, took = max((debt for each, debt in owed.items() if each >= priority), default=(0.0, 0.0, 0.0))
        if waiting.not_before > now:
            return waiting.not_before
        if 0.0 < waiting.turn <= now:
            waiting.turn = 0.0
        elif not waiting.turn and paid > now:
            waiting.turn = min(paid, now + LONGEST_WAIT_FOR_TURN)
            owed[priority] = waiting.turn + pause, pause, took
        return waiting.turn

    def counts(self) -> dict[str, int]:
        """Return how many groups are held because they have too few members, and how many are refused."""
        waiting = self._waiting.values()
        refused = sum(any(q.place is Place.UNSCHEDULABLE for q in w.pods.values()) for w in waiting if not w.held)
        return {"held": sum(w.held for w in waiting), "refused": refused}
