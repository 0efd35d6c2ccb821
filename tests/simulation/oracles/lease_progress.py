"""
No Lease is kept by a loop that makes no progress.

While the main thread of a leader runs no step, the thread of the Lease may renew it for as long as the renew deadline,
counted from the last beat (decision 6). A leader whose loop has not looked at its queue for a minute ends itself.
"""

from typing import Final

import attrs

from tests.simulation.oracles.change import Change, Key, Oracle

BEAT: Final = 1.0
LATE: Final = 5.0
"""Seconds that a renewal, once begun, may take until it is committed."""
LOOKS: Final = 60.0
"""Seconds within which a leader's loop looks at its queue."""
RECOVERS: Final = 15.0
"""Seconds after that in which the process has to end."""


@attrs.define(eq=False, kw_only=True)
class LeaseProgress(Oracle):
    """
    Watches renewals, and the loops of the leaders.

    Attributes:
        lease: namespace and name.
        renew_deadline: seconds.
    """

    lease: Key
    renew_deadline: float
    _stuck_since: dict[str, float] = attrs.field(factory=dict)  # by the holder's identity
    _reported: set[str] = attrs.field(factory=set)

    def stuck(self, identity: str, now: float, *, is_stuck: bool) -> None:
        """Note whether the main thread of a holder runs no step now."""
        if not is_stuck:
            self._stuck_since.pop(identity, None)
        elif identity:
            self._stuck_since.setdefault(identity, now)

    def looked(self, identity: str, now: float, looked_at: float | None) -> None:
        """Note when the loop of a leader that runs has looked at its queue last, on the same clock as `now`."""
        if looked_at is None or identity in self._reported or identity in self._stuck_since:
            return
        if now - looked_at > LOOKS + RECOVERS:
            self._reported.add(identity)
            self.violated(f"{identity} leads, and its loop has not looked at its queue for {now - looked_at:.0f} s")

    def changed(self, change: Change) -> None:
        """Judge a renewal."""
        if change.kind != "Lease" or change.key != self.lease or change.after is None or change.previous is None:
            return
        spec, before = change.after.get("spec") or {}, change.previous.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        since = self._stuck_since.get(holder)
        renewed = before.get("holderIdentity") == holder and spec.get("renewTime") != before.get("renewTime")
        if renewed and since is not None and change.at - since > self.renew_deadline + BEAT + LATE:
            self.violated(f"{holder} has renewed the Lease, and has run no step for {change.at - since:.0f} s")
