"""
The findings of all subjects, and the exit code that follows from them. Does not print.
"""

from typing import Final

import attrs

from neuron_scheduler.check.subjects.finding import NEEDS_ACTION, Finding, Severity
from neuron_scheduler.check.subjects.registry import SUBJECTS, Subject
from neuron_scheduler.check.subjects.snapshot import Snapshot, Unread

FINE, NEEDS_HANDS, NOT_CHECKED = 0, 1, 2
EXIT_CODES: Final = (
    "Exit codes: 0: everything was checked, and nothing needs action; 1: something needs action, or could not be"
    " checked; 2: nothing could be checked (no API server, no rights, or wrong flags)."
)


@attrs.frozen
class Report:
    """The findings by subject, in the order of the report; subjects without findings are left out."""

    snapshot: Snapshot
    sections: tuple[tuple[Subject, tuple[Finding, ...]], ...]

    def count(self, severity: Severity) -> int:
        """Return how many findings are of a severity."""
        return sum(finding.severity is severity for _, findings in self.sections for finding in findings)

    @property
    def exit_code(self) -> int:
        """As `EXIT_CODES` says."""
        if isinstance(self.snapshot.nodes, Unread) and isinstance(self.snapshot.pods, Unread):
            return NOT_CHECKED
        return NEEDS_HANDS if any(map(self.count, NEEDS_ACTION)) else FINE


def report_on(snapshot: Snapshot) -> Report:
    """Ask every subject."""
    sections = ((subject, tuple(subject.findings(snapshot))) for subject in SUBJECTS)
    return Report(snapshot, tuple((subject, findings) for subject, findings in sections if findings))
