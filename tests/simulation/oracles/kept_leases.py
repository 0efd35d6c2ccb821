"""
A leader loses its Lease only if something can have cost it.

A step of the scheduler that leaves time for a renewal must not (decision 6), nor a Binding without an answer, a slow
list, a wrong clock, or an annotation that somebody writes on the Lease. What can: a fault of requests about the Lease,
of the network or of a server, a process that stands still, and somebody who takes the Lease or revokes the token.
How a process ends is for `unexpected` to judge.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from tests.simulation.deeds import (
    DeleteLease,
    FreezeServer,
    IssueToken,
    RevokeTokens,
    StopServer,
    TakeLease,
    WriteToken,
)
from tests.simulation.http_faults import HARD, PAUSE, WATCH
from tests.simulation.oracles.change import Report
from tests.simulation.scenario import Scenario

STEP: Final = 0.6
"""Times the renew deadline: so long may a step be, since the last renewal is one retry period and its answer old."""
LOST: Final = "Leaderelection lost"
_DEEDS: Final = (DeleteLease, FreezeServer, IssueToken, RevokeTokens, StopServer, TakeLease, WriteToken)
_HARMLESS_KINDS: Final = frozenset(
    {*WATCH, *HARD, "killed", "terminated", "wrong clock", "kubelet slow", "kubelet rejects", "page expired"}
) - {PAUSE}
_HARMLESS_TARGETS: Final = frozenset(
    {"bindings", "deletes", "events", "statuses", "claims", "lists", "pods", "nodes"}
    | {"resourceclaims", "resourceslices"}
)
"""Traffic and tables with which the Lease has nothing to do."""


@attrs.define(eq=False, kw_only=True)
class KeptLeases:
    """
    Reads in the logs who has lost the Lease.

    Attributes:
        report: told what is wrong.
    """

    report: Report
    scenario: Scenario

    def logged(self, now: float, replica: str, line: str) -> None:
        if LOST in line and next(self._costs(now, replica), None) is None:
            self.report("kept_leases", f"{replica} has lost the Lease, and nothing can have cost it: {line}")

    def _costs(self, now: float, replica: str) -> Iterator[object]:
        """Yield what has begun by now and can cost the replica its Lease."""
        steps = 0.0
        for fault in self.scenario.faults:
            if fault.at > now or fault.kind in _HARMLESS_KINDS or fault.target in _HARMLESS_TARGETS:
                continue
            if fault.kind != "long step":
                yield fault
            elif fault.target == replica:
                steps += fault.seconds
                if steps > STEP * self.scenario.lease[1]:
                    yield fault
        yield from (deed for deed in self.scenario.deeds if deed.at <= now and isinstance(deed, _DEEDS))
