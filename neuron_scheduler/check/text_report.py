"""
The report for a person: sections, one line for each finding, and below it what to do.

Text is wrapped to the terminal, a command never, so that it can be copied.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.check.report import Report
from neuron_scheduler.check.subjects.finding import Finding, Severity
from neuron_scheduler.model.wording import counted, listed
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.paragraphs import Paragraphs

NAMED: Final = 5
"""So many objects of a finding are named; `-o json` has them all."""

_COMPLETE: Final = frozenset({"account-lacks-rights"})  # their messages name all objects
_LABELS: Final = {severity: severity.value.replace("-", " ") for severity in Severity}
_COLOURS: Final = {
    Severity.OK: "32",
    Severity.NOTE: "36",
    Severity.UNCHECKED: "35",
    Severity.WARNING: "33",
    Severity.ERROR: "1;31",
}
_MARGIN: Final = 2
_LABEL: Final = 13  # `not checked` and two blanks
_NARROW: Final = 64  # on a narrower terminal, text below a finding begins further left


@attrs.frozen
class TextReport:
    """Prints reports; `width` in characters."""

    width: int = 100
    colour: bool = False

    def lines(self, report: Report) -> Iterator[str]:
        """Yield the lines of a report."""
        snapshot = report.snapshot
        yield from self._paragraphs.wrapped(
            f"Checking {snapshot.server} ({snapshot.source}), namespace {snapshot.namespace}", first="", rest="  "
        )
        for subject, findings in report.sections:
            yield ""
            yield self._paragraphs.bold(subject.title)
            for finding in findings:
                yield from self._finding(finding)
        yield ""
        yield from self._paragraphs.wrapped(summary(report), first="", rest="")

    def _finding(self, finding: Finding) -> Iterator[str]:
        label = _LABELS[finding.severity]
        narrow = self.width < _NARROW
        below = " " * (4 if narrow else _MARGIN + _LABEL)
        first = " " * _MARGIN + label.ljust(len(label) + 2 if narrow else _LABEL)
        lines = list(self._paragraphs.wrapped(finding.message, first=first, rest=below))
        yield lines[0].replace(label, self._paragraphs.coloured(label, _COLOURS[finding.severity]), 1)
        yield from lines[1:]
        if finding.severity is not Severity.UNCHECKED and finding.code not in _COMPLETE:
            yield from self._objects(finding, below)
        if finding.advice:
            yield from self._paragraphs.wrapped(f"{finding.advice}.", first=below, rest=below)
        if finding.command:
            yield f"{below}$ {printable(finding.command)}"

    def _objects(self, finding: Finding, below: str) -> Iterator[str]:
        """Yield the objects: short names in one line, longer ones in a line each."""
        named, more = finding.objects[:NAMED], len(finding.objects) - NAMED
        rest = f"{more} more (-o json lists all)"
        if any(" " in name for name in named):
            for name in (*named, *([rest] if more > 0 else [])):
                yield from self._paragraphs.wrapped(name, first=f"{below}- ", rest=f"{below}  ")
        elif named and not all(name in finding.message for name in named):
            yield from self._paragraphs.wrapped(listed([*named, rest] if more > 0 else named), first=below, rest=below)

    @property
    def _paragraphs(self) -> Paragraphs:
        return Paragraphs(self.width, self.colour)


def summary(report: Report) -> str:
    """Return the last line: how many findings of which kind there are."""
    parts: Sequence[str] = [
        counted(number, name)
        for severity, name in ((Severity.ERROR, "error"), (Severity.WARNING, "warning"))
        if (number := report.count(severity))
    ]
    unchecked = report.count(Severity.UNCHECKED)
    if unchecked:
        parts = [*parts, f"{counted(unchecked, 'thing')} not checked"]
    return f"{listed(parts)}." if parts else "Nothing needs action."
