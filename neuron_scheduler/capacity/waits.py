"""
For which pods no machine is asked for at present, because the last one was refused or given up; longer each time.

Does not read requests: the caller names the pods that one was for.
"""

from collections.abc import Collection
from typing import Final

import attrs

FIRST_REFUSAL: Final = 60.0
"""Seconds after the first refusal of the API server until the same pods' machine is asked for again."""
LONGEST: Final = 4 * 3600.0
"""The most seconds that pods wait after a refusal, or after a machine was given up."""
_MOST_DOUBLED: Final = 16


@attrs.frozen
class Wait:
    """
    Why and until when no machine is asked for a pod.

    Attributes:
        group: the first pod of the need, for counting.
        refused: the API server has refused; else a machine was given up.
        reason: a sentence for people, without its full stop.
        level: how often in a row.
    """

    group: str
    refused: bool
    reason: str
    until: float
    level: int = 1


@attrs.define(eq=False)
class Waits:
    """The waits, by pod; one that is over says how long the next one is, until the pod is forgotten."""

    _by_uid: dict[str, Wait] = attrs.field(factory=dict, init=False)

    def of(self, uid: str, now: float) -> Wait | None:
        """Return why no machine is asked for a pod now; None if nothing is in the way."""
        wait = self._by_uid.get(uid)
        return wait if wait is not None and now < wait.until else None

    def refused(self, uids: Collection[str], message: str, now: float) -> None:
        """Let the pods of a request wait, because the API server has refused it."""
        self._wait(uids, f"the API server refused it: {message}", now, first=FIRST_REFUSAL, refused=True)

    def gave_up(self, uids: Collection[str], reason: str, now: float, first: float) -> None:
        """Let the pods of a request wait that was given up; at the first time for `first` seconds."""
        self._wait(uids, reason, now, first=first, refused=False)

    def forget(self, uid: str) -> None:
        """Forget a pod that waits no more."""
        self._by_uid.pop(uid, None)

    def refused_machines(self, now: float) -> int:
        """Return for how many machines the pods wait because the API server has refused them."""
        return len({wait.group for wait in self._by_uid.values() if wait.refused and now < wait.until})

    def _wait(self, uids: Collection[str], reason: str, now: float, *, first: float, refused: bool) -> None:
        group = min(uids, default="")
        for uid in uids:
            before = self._by_uid.get(uid)
            level = before.level + 1 if before is not None and before.refused == refused else 1
            self._by_uid[uid] = Wait(group, refused, reason, now + doubled(first, level), level)


def doubled(first: float, level: int) -> float:
    """Return the seconds of the pause of a level: `first` at level 1, twice as long at each further one, to a bound."""
    return min(first * float(2 ** min(level - 1, _MOST_DOUBLED)), LONGEST)
