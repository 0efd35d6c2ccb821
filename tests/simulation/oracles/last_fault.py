"""
When the last fault of a scenario is over, with all that is late because of it, and whether any makes news late.

From then on the promises about time hold, which may be long before the quiet: a scenario without faults has no excuse
at all. What users do to pods and nodes is no fault.
"""

from typing import Final

from tests.simulation.deeds import (
    Compact,
    DeleteLease,
    FreezeServer,
    IssueToken,
    RevokeTokens,
    StopServer,
    TakeLease,
    WriteToken,
)
from tests.simulation.http_faults import LASTING
from tests.simulation.poison import Poison, RemovePoison, Spoil
from tests.simulation.scenario import Deed, Fault, Scenario
from tests.simulation.watch_cache import LAG, POLICY_LAG

_NO_NEWS: Final = frozenset({"bindings", "lease", "deletes", "events", "statuses", "gets", "claims"})
"""Traffic by which nobody is told what others do."""
_TIMELY: Final = frozenset({"kubelet slow", "kubelet rejects", "wrong clock", POLICY_LAG, LAG})
"""Faults that make no news late, or whose lag is counted anyhow."""
_ENDS: Final = frozenset({"killed", "terminated"})
"""After these a process lists everything."""
FAULTS: Final = (
    *(Compact, DeleteLease, FreezeServer, IssueToken, RevokeTokens, StopServer, TakeLease, WriteToken),
    *(Poison, RemovePoison, Spoil),
)
"""The deeds that are faults: what is done to the control plane, and objects that cannot be read."""


def last_fault_ends(scenario: Scenario) -> float:
    """Return virtual seconds; 0 if there is no fault. What lasts for ever concerns pods that no oracle asks for."""
    faults = [_end(fault) for fault in scenario.faults if fault.kind not in LASTING]
    deeds = [_end_of_deed(deed) for deed in scenario.deeds if isinstance(deed, FAULTS)]
    return min(max([0.0, *faults, *deeds]), scenario.quiet_at)


def news_may_be_late(scenario: Scenario) -> bool:
    """Return whether a fault may keep from a replica what users and other schedulers do."""
    deeds = scenario.faults and any(isinstance(deed, StopServer | FreezeServer) for deed in scenario.deeds)
    late = [fault for fault in scenario.faults if fault.kind not in _TIMELY | _ENDS and fault.target not in _NO_NEWS]
    return bool(late or deeds)


def _end(fault: Fault) -> float:
    return fault.until if fault.kind == "wrong clock" else fault.until + fault.seconds


def _end_of_deed(deed: Deed) -> float:
    seconds: float = getattr(deed, "seconds", 0.0)
    return deed.at + seconds
