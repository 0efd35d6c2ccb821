"""
Ends a leader that does not schedule: otherwise it would renew its Lease for ever, and no other replica could take over.
"""

from collections.abc import Callable
from typing import Final

import anyio
import attrs

from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.telemetry.errors import StalledError

LONGEST_STEP: Final = 60.0
"""Seconds within which a leader's loop must look at its queue again; it does so when idle, and no pod takes longer."""
LONGEST_TAKEOVER: Final = 120.0
"""Seconds from the last page of a list, or from taking the Lease, to the next page or the first look at the queue."""
PERIOD: Final = 1.0
"""Seconds between two looks."""
LOOKS_TO_RECOVER: Final = 10
"""How many looks in a row may find a leader stalled before it ends."""


@attrs.define(eq=False, kw_only=True)
class LeaderWatch:
    """Watches the scheduling loop of this replica while it leads: without election, once `lead` is called."""

    election: LeaderElector | None
    loop: SchedulingLoop
    is_stopping: Callable[[], bool]
    listed: Callable[[], int]  # how many pages of nodes and pods have come
    _pages: int = attrs.field(default=0, init=False)
    _leads_since: float | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        """Raise StalledError once a leader has not scheduled for too long, and did not recover."""
        missed = 0
        while missed < LOOKS_TO_RECOVER:  # counted, not timed: a process that was frozen can recover
            await anyio.sleep(PERIOD)
            missed = missed + 1 if self.find_stall() else 0
        raise StalledError(self.find_stall() or "the scheduling loop was stuck")

    def lead(self) -> None:
        if self._leads_since is None:
            self._leads_since = anyio.current_time()

    def find_stall(self) -> str | None:
        if self.election is not None and self.election.is_leading:  # maybe before nodes and pods are listed
            self.lead()
        if self._leads_since is None or self.is_stopping():
            return None
        looked_at = self.loop.looked_at
        if looked_at is None:
            if self._pages != (pages := self.listed()):  # a slow API server is slow for the next leader, too
                self._pages, self._leads_since = pages, anyio.current_time()
            late = anyio.current_time() - self._leads_since
            return f"pods are not listed, and no page came for {late:.0f} s" if late > LONGEST_TAKEOVER else None
        late = self.loop.clock() - looked_at
        return f"the scheduling loop has been in one step for {late:.0f} s" if late > LONGEST_STEP else None
