"""
Each pod's condition PodScheduled says what is so: a bound pod is not called unscheduled, and one that waits says why.

A message is due within a bound after the last fault. Left out are pods that were just decided, which wait for their
Binding, and pods that cannot be read, which are set aside and counted.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any, Final

import attrs

from tests.simulation.oracles.change import Change, Object, Oracle, metadata_of, named, uid_of
from tests.simulation.oracles.reading import has_ended, node_name_of

DUE: Final = 30.0
"""Seconds."""


@attrs.define(eq=False, kw_only=True)
class Conditions(Oracle):
    """
    Reads conditions.

    Attributes:
        schedulers: the names that pods of ours have in `schedulerName`.
    """

    schedulers: frozenset[str] = frozenset({"my-scheduler"})
    _created: dict[str, float] = attrs.field(factory=dict)  # pods by uid

    def changed(self, change: Change) -> None:
        """Judge the condition of a bound pod."""
        if change.kind != "Pod":
            return
        pod = change.after
        if pod is None:
            self._created.pop(change.uid, None)
            return
        self._created.setdefault(change.uid, change.at)
        refused = scheduled(pod).get("status") == "False"
        if node_name_of(pod) and refused and change.previous is not None and change.author != "":
            self.violated(f"{named(pod)} is on {node_name_of(pod)}, and its condition says that it is not scheduled")

    def silent(self, now: float, pods: Iterable[Object], *, quiet_since: float, left_out: Container[str]) -> None:
        """Judge the pods that wait at a moment; `left_out` are uids of pods that were decided, or cannot be read."""
        for pod in pods:
            if node_name_of(pod) or has_ended(pod) or metadata_of(pod).get("deletionTimestamp"):
                continue
            ours = (pod.get("spec") or {}).get("schedulerName") in self.schedulers
            since = max(quiet_since, self._created.get(uid_of(pod), 0.0))
            if ours and uid_of(pod) not in left_out and now - since > DUE and not scheduled(pod).get("message"):
                self.violated(f"{named(pod)} has waited for {now - since:.0f} s, and nothing says why")


def scheduled(pod: Object) -> Mapping[str, Any]:
    """Return the condition PodScheduled; empty if there is none."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == "PodScheduled"), {})
