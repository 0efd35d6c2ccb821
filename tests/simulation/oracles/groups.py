"""
A group of pods starts together: none of it before enough members exist, and a rest of it never waits in silence.

Members are those that exist, do not end, and have no scheduling gates. The first one is bound only if the group has
been complete since its last member left, or left so late that nobody can have known. What the others' conditions say is
so: that too few exist, and how many, or that they exist. While some, but fewer than the count, are bound, they speak of
the group or of a refused Binding. The last one that is missing has its space kept after that: it fitted before another
pod of no higher priority was bound, so it fits after. A member beyond the count is a pod like any other: older pods
that ask for the same are not passed over for such members.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Final

import attrs

from tests.simulation.oracles.change import Change, Object, Oracle, named, uid_of
from tests.simulation.oracles.conditions import DUE, scheduled
from tests.simulation.oracles.group_words import counts, is_foreign, least_of, words_of
from tests.simulation.oracles.node_states import NodeStates
from tests.simulation.oracles.reading import asked_of, bound_by_us, newly_bound, node_name_of
from tests.simulation.pod_plans import OURS

Fits = Callable[[Iterable[Object], Object], str]
"""Returns a node on which a pod fits beside the others, or an empty text."""
PASSED_OVER: Final = 2
"""Times that a pod is passed over for members that waited, too: once may be by its backoff."""
_WAITED: Final = 3.0
"""Seconds after which a member is not new any more."""


@attrs.define(eq=False, kw_only=True)
class Groups(Oracle):
    """
    Watches the members of declared groups.

    Attributes:
        pods: returns the pods of the API server.
        fits: tries a pod on the nodes of the API server.
        nodes: knows when a Binding was sent.
        late: seconds after that in which a request may be carried out.
    """

    pods: Callable[[], Iterable[Object]]
    fits: Fits
    nodes: NodeStates
    late: float
    _members: dict[str, dict[str, Object]] = attrs.field(factory=dict)
    _foreign: dict[str, dict[str, Object]] = attrs.field(factory=dict)
    """By group, members that do not count; what they say does."""
    _complete: dict[str, float] = attrs.field(factory=dict)
    """By group, the last moment at which enough members existed."""
    _counted_at: dict[str, float] = attrs.field(factory=dict)
    """By group, since when it has and needs as many members as now."""
    _ready: dict[str, float] = attrs.field(factory=dict)
    """By uid, since when a pod is a member."""
    _disturbed_at: float = 0.0
    """When a node changed, or space was taken that no group could have kept."""
    _half_bound_at: dict[str, float] = attrs.field(factory=dict)
    _enough_at: dict[str, float] = attrs.field(factory=dict)
    """When enough were bound for the last time."""
    _passed_over: Counter[str] = attrs.field(factory=Counter)
    """By uid, how often a single pod was passed over."""

    def changed(self, change: Change) -> None:
        """Follow the members, and judge a Binding of ours."""
        if change.kind == "Node":
            self._disturbed_at = change.at
        if change.kind != "Pod":
            return
        words, pod = words_of(change.object), change.after
        name = words.name if words is not None and words.least else ""
        before = dict(self._members.get(name, {}))
        if name:
            self._count(name, change)
        if pod is None or not node_name_of(pod) or node_name_of(change.previous):
            return
        if not bound_by_us(change.previous, pod):
            self._disturbed_at = change.at
            return
        if name:
            self._is_complete(change, name)
        if newly_bound(change.previous, pod):
            self._leaves_kept_space(change, name)
            if name and _bound(before.values()) >= self._least(name):
                self._passes_nobody_over(change)

    def _count(self, name: str, change: Change) -> None:
        members, foreign = self._members.setdefault(name, {}), self._foreign.setdefault(name, {})
        number, least = len(members), self._least(name)
        foreign.pop(change.uid, None)
        if change.after is not None and counts(change.after):
            members[change.uid] = change.after
            self._ready.setdefault(change.uid, change.at)
        else:
            members.pop(change.uid, None)
            if change.after is not None and is_foreign(change.after):
                foreign[change.uid] = change.after
        if (len(members), self._least(name)) != (number, least):
            if number >= least > 0:
                self._complete[name] = change.at
            self._counted_at[name] = change.at
        bound = _bound(members.values())
        if bound >= self._least(name):
            self._enough_at[name] = change.at
        if bound:
            self._half_bound_at.setdefault(name, change.at)
        else:
            self._half_bound_at.pop(name, None)

    def _least(self, name: str) -> int:
        return least_of([*self._members[name].values(), *self._foreign[name].values()])

    def _is_complete(self, change: Change, name: str) -> None:
        members, sent = self._members[name].values(), self.nodes.decided_at(change)
        known, least = sent - self.nodes.told_within - self.late, self._least(name)
        alone = _bound(members) <= 1
        if alone and len(members) < least and self._complete.get(name, -1.0) < max(known, self._ready[change.uid]):
            self.violated(f"{named(change.object)} is bound, and {len(members)} of {least} members of its group exist")

    def _leaves_kept_space(self, change: Change, own: str) -> None:
        """Judge a Binding of another pod while one member of a group is missing, whose Binding was refused."""
        for name, since in self._half_bound_at.items():
            members = self._members[name].values()
            waiting = [pod for pod in members if not node_name_of(pod)]
            if name == own or len(waiting) != 1 or len(members) != self._least(name) or self._disturbed_at >= since:
                continue
            (missing,) = waiting
            priority, other = _priority(missing), _priority(change.object)
            if other > priority:
                self._disturbed_at = change.at
            elif scheduled(missing).get("reason") == "SchedulerError" and self._takes_from(missing, change):
                self.violated(f"{named(change.object)} has got the space of {named(missing)}")

    def _takes_from(self, waiting: Object, change: Change) -> bool:
        """Return whether a pod that waits fits without the one that was bound, and not beside it."""
        after = list(self.pods())
        before = [pod for pod in after if uid_of(pod) != change.uid]
        return bool(self.fits(before, waiting)) and not self.fits(after, waiting)

    def _passes_nobody_over(self, change: Change) -> None:
        """Judge the Binding of a member beyond the count beside older single pods that ask for the same."""
        ready = self._ready[change.uid]
        if change.at - ready < _WAITED:
            return
        for pod in self.pods():
            older = self.nodes.created_at(uid_of(pod)) < ready and _priority(pod) >= _priority(change.object)
            if node_name_of(pod) or not (older and _is_ours(pod) and counts(pod)) or words_of(pod) is not None:
                continue
            if asked_of(pod) == asked_of(change.object) and self._takes_from(pod, change):
                self._passed_over[uid_of(pod)] += 1
                if self._passed_over[uid_of(pod)] == PASSED_OVER:
                    self.violated(f"{named(pod)} is passed over again, for {named(change.object)}")

    def silent(self, now: float, *, quiet_since: float, left_out: Container[str]) -> None:
        """Judge at a moment what the members say that wait; `left_out` are uids of pods that need no message."""
        for name, members in self._members.items():
            waiting = [pod for pod in members.values() if not node_name_of(pod) and _is_ours(pod)]
            for pod in waiting:
                since = max(quiet_since, self._ready[uid_of(pod)], self._counted_at[name])
                if uid_of(pod) not in left_out and now - since > DUE:
                    for lie in self._lies(pod, name, members, now):
                        self.violated(f"{named(pod)} waits, {lie}: {dict(scheduled(pod))}")

    def _lies(self, pod: Object, name: str, members: Mapping[str, Object], now: float) -> Iterator[str]:
        condition, bound, least = scheduled(pod), _bound(members.values()), self._least(name)
        reason, message = condition.get("reason"), str(condition.get("message", ""))
        if (len(members) < least) != (reason == "WaitingForGroup"):
            yield f"{len(members)} of {least} members of its group exist"
        elif reason == "WaitingForGroup" and f"{len(members)} of {least} members" not in message:
            yield f"{len(members)} of {least} members of its group exist, and it says another number"
        # those that were refused when enough of the group were bound may say so
        elif 0 < bound < least and self._ready[uid_of(pod)] >= self._enough_at.get(name, 0.0):
            half_bound = max(self._half_bound_at[name], 0.0)
            if now - half_bound > DUE and reason != "SchedulerError" and f"group {name}".lower() not in message.lower():
                yield f"{bound} of {least} of its group are bound"


def _bound(members: Iterable[Object]) -> int:
    return sum(bool(node_name_of(pod)) for pod in members)


def _is_ours(pod: Object) -> bool:
    return (pod.get("spec") or {}).get("schedulerName") == OURS


def _priority(pod: Object) -> int:
    return int((pod.get("spec") or {}).get("priority") or 0)
