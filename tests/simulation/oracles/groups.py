"""
A group of pods starts together: none of it before enough members exist, and a rest of it never waits in silence.

Members are read from their labels: those that exist, do not end, and have no scheduling gates. While some, but fewer
than the count, are bound, the others' conditions must speak of the group or of a refused Binding. The last one that is
missing has its space kept after that: it fitted before another pod of no higher priority was bound, so it fits after.
"""

from collections.abc import Callable, Container, Iterable, Mapping

import attrs

from tests.simulation.oracles.change import Change, Key, Object, Oracle, annotations_of, metadata_of, named, uid_of
from tests.simulation.oracles.conditions import DUE, scheduled
from tests.simulation.oracles.reading import bound_by_us, has_ended, newly_bound, node_name_of
from tests.simulation.pod_plans import COUNT, KUEUE, KUEUE_COUNT, NAME, OURS

Fits = Callable[[Iterable[Object], Object], str]
"""Returns a node on which a pod fits beside the others, or an empty text."""


def group_of(pod: Object) -> tuple[Key, int] | None:
    """Return the namespace and name of a declared group, and its count; None if the pod is in none."""
    meta = metadata_of(pod)
    labels: Mapping[str, str] = meta.get("labels") or {}
    name, count = (labels.get(NAME), labels.get(COUNT)) if NAME in labels else (labels.get(KUEUE), "")
    count = count or annotations_of(pod).get(KUEUE_COUNT, "")
    return ((str(meta.get("namespace")), name), int(count)) if name and count.isdecimal() else None


def counts(pod: Object) -> bool:
    """Return whether a pod is a member as far as counts are concerned."""
    gates = (pod.get("spec") or {}).get("schedulingGates")
    return not (has_ended(pod) or gates or metadata_of(pod).get("deletionTimestamp"))


@attrs.define(eq=False, kw_only=True)
class Groups(Oracle):
    """
    Watches the members of declared groups.

    Attributes:
        pods: returns the pods of the API server.
        fits: tries a pod on the nodes of the API server.
    """

    pods: Callable[[], Iterable[Object]]
    fits: Fits
    _members: dict[Key, dict[str, Object]] = attrs.field(factory=dict)
    _numbers: dict[Key, list[tuple[float, int]]] = attrs.field(factory=dict)
    """How many members there were from each moment on."""
    _ready: dict[str, float] = attrs.field(factory=dict)
    """By uid, since when a pod is a member."""
    _disturbed_at: float = 0.0
    """When a node changed, or space was taken that no group could have kept."""
    _half_bound_at: dict[Key, float] = attrs.field(factory=dict)
    _enough_at: dict[Key, float] = attrs.field(factory=dict)
    """When enough were bound for the last time."""

    def changed(self, change: Change) -> None:
        """Follow the members, and judge a Binding of ours."""
        if change.kind == "Node":
            self._disturbed_at = change.at
        if change.kind != "Pod":
            return
        group, pod = group_of(change.object), change.after
        if group is not None:
            self._count(group[0], change)
        if pod is None or not node_name_of(pod) or node_name_of(change.previous):
            return
        if not bound_by_us(change.previous, pod):
            self._disturbed_at = change.at
            return
        if group is not None:
            self._is_complete(pod, *group)
        if newly_bound(change.previous, pod):
            self._leaves_kept_space(change, None if group is None else group[0])

    def _count(self, key: Key, change: Change) -> None:
        members = self._members.setdefault(key, {})
        if change.after is not None and counts(change.after):
            members[change.uid] = change.after
            self._ready.setdefault(change.uid, change.at)
        else:
            members.pop(change.uid, None)
        self._numbers.setdefault(key, []).append((change.at, len(members)))
        bound = sum(bool(node_name_of(pod)) for pod in members.values())
        if bound >= max((group[1] for pod in members.values() if (group := group_of(pod)) is not None), default=0):
            self._enough_at[key] = change.at
        if bound:
            self._half_bound_at.setdefault(key, change.at)
        else:
            self._half_bound_at.pop(key, None)

    def _is_complete(self, pod: Object, key: Key, least: int) -> None:
        since = self._ready.get(uid_of(pod), 0.0)
        most = max((number for at, number in self._numbers[key] if at >= since), default=0)
        if most < least:
            self.violated(f"{named(pod)} is bound, and no more than {most} of {least} members of its group existed")

    def _leaves_kept_space(self, change: Change, own: Key | None) -> None:
        """Judge a Binding of another pod while one member of a group is missing, whose Binding was refused."""
        for key, since in self._half_bound_at.items():
            members = self._members[key].values()
            waiting = [pod for pod in members if not node_name_of(pod)]
            ((_, least),) = {group for pod in members if (group := group_of(pod)) is not None}
            if key == own or len(waiting) != 1 or len(members) != least or self._disturbed_at >= since:
                continue
            (missing,) = waiting
            priority, other = _priority(missing), _priority(change.object)
            if other > priority:
                self._disturbed_at = change.at
            elif scheduled(missing).get("reason") == "SchedulerError":
                after = list(self.pods())
                before = [pod for pod in after if uid_of(pod) != change.uid]
                node = self.fits(before, missing)
                if node and not self.fits(after, missing):
                    self.violated(f"{named(change.object)} has got the space on {node} of {named(missing)}")

    def silent(self, now: float, *, quiet_since: float, left_out: Container[str]) -> None:
        """Judge at a moment the groups that are half bound; `left_out` are uids of pods that need no message."""
        for key, members in self._members.items():
            bound = sum(bool(node_name_of(pod)) for pod in members.values())
            for pod in members.values():
                _, least = group_of(pod) or (key, 0)
                since = max(quiet_since, self._ready[uid_of(pod)], self._half_bound_at.get(key, 0.0))
                ours = (pod.get("spec") or {}).get("schedulerName") == OURS and uid_of(pod) not in left_out
                if node_name_of(pod) or not ours or not 0 < bound < least or now - since <= DUE:
                    continue
                if self._ready[uid_of(pod)] < self._enough_at.get(key, 0.0):
                    continue  # when it was refused, enough of its group may have been bound
                condition = scheduled(pod)
                said = condition.get("reason") == "SchedulerError" or f"group {'/'.join(key)}" in _message(condition)
                if not said:
                    self.violated(f"{named(pod)} waits, {bound} of {least} of its group are bound: {condition}")


def _priority(pod: Object) -> int:
    return int((pod.get("spec") or {}).get("priority") or 0)


def _message(condition: Mapping[str, object]) -> str:
    return str(condition.get("message", ""))
