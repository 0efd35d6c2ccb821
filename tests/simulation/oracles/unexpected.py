"""
No unexpected error: no traceback in a log, and no process that ends in a way that nothing explains.

An end with 0 follows SIGTERM, 137 follows SIGKILL. An end with 1 says in its log that the Lease was lost, or that the
loop was stalled; anything else is a crash. An end with 2, a configuration that cannot work, is right only while the API
server refuses a right.
"""

from typing import Final

import attrs

from tests.simulation.oracles.change import Report

KILLED: Final = 137
_TRACES: Final = ("Traceback (most recent call last)", "Unexpected error, please report it", "unexpected error in ")
_EXPLAINED: Final = (
    "Leaderelection lost",
    "The scheduler does not schedule",
    "The scheduler did not end after its lease",
)
_MOST: Final = 5


@attrs.define(eq=False, kw_only=True)
class Unexpected:
    """
    Reads logs, and how processes end.

    Attributes:
        report: told what is wrong.
    """

    report: Report
    _explained: dict[str, str] = attrs.field(factory=dict)
    _reported: int = 0

    def logged(self, replica: str, line: str) -> None:
        """Look at a line of a replica's log."""
        if any(text in line for text in _EXPLAINED):
            self._explained[replica] = line
        if any(text in line for text in _TRACES) and self._reported < _MOST:
            self._reported += 1
            self.report("unexpected", f"{replica} logs: {line}")

    def ended(self, replica: str, exit_code: int, *, asked: bool, killed: bool, refused: bool) -> None:
        """
        Look at the end of a process.

        It was `asked` to end, or `killed`; the API server has `refused` a right or a credential lately.
        """
        explained = self._explained.pop(replica, "")
        fine = {0: asked, KILLED: killed, 1: bool(explained), 2: refused}
        if not fine.get(exit_code, False):
            self.report("unexpected", f"{replica} ended with {exit_code}, and nothing explains that")
