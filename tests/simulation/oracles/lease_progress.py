"""
No Lease is kept by a loop that makes no progress.

A leader whose loop has not looked at its queue for a minute ends itself. A process that runs no step renews nothing.
"""

from typing import Final

import attrs

from tests.simulation.oracles.change import Oracle

LOOKS: Final = 60.0
"""Seconds within which a leader's loop looks at its queue."""
RECOVERS: Final = 15.0
"""Seconds after that in which the process has to end."""


@attrs.define(eq=False, kw_only=True)
class LeaseProgress(Oracle):
    """Watches the loops of the leaders."""

    _reported: set[str] = attrs.field(factory=set)  # identities

    def looked(self, identity: str, now: float, looked_at: float | None) -> None:
        """Note when the loop of a leader that runs has looked at its queue last, on the same clock as `now`."""
        if looked_at is not None and identity not in self._reported and now - looked_at > LOOKS + RECOVERS:
            self._reported.add(identity)
            self.violated(f"{identity} leads, and its loop has not looked at its queue for {now - looked_at:.0f} s")
