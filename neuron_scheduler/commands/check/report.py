"""
The findings of all subjects, the exit code that follows from them, and the report: for a person, or as JSON.

The JSON is for scripts. `schemaVersion` grows when a field changes its meaning or goes; new fields and codes may come.

    {"schemaVersion": 1, "version": "0.1.0", "exitCode": 1, "server": "https://...", "source": "kubeconfig ...",
     "kubernetesVersion": "v1.36.2", "namespace": "kube-system", "schedulerNames": ["my-scheduler"],
     "counts": {"ok": 7, "note": 1, "not-checked": 0, "warning": 1, "error": 0},
     "machines": [{"instanceType": "trn1.32xlarge", "nodes": 4, "devices": 16, "cores": 32}],
     "findings": [{"subject": "nodes", "code": "nodes-without-device-plugin", "severity": "warning",
                   "message": "...", "advice": "...", "command": "...", "objects": ["trn1-c"]}]}

`kubernetesVersion` is null if it could not be read; `devices` and `cores` are those of one node.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

from neuron_scheduler.commands.check.subjects import (
    api_server,
    claims,
    groups,
    installation,
    known,
    nodes,
    other_schedulers,
    pods,
    policies,
)
from neuron_scheduler.commands.check.subjects.finding import NEEDS_ACTION, Finding, Severity
from neuron_scheduler.commands.check.subjects.nodes import machines
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.model.wording import count_text, list_of
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import Paragraphs

FINE, NEEDS_HANDS, NOT_CHECKED = 0, 1, 2
EXIT_CODES: Final = (
    "Exit codes: 0: everything was checked, and nothing needs action; 1: something needs action, or could not be"
    " checked; 2: nothing could be checked (no API server, no rights, or wrong flags)."
)
SCHEMA_VERSION: Final = 1
NAMED: Final = 5
"""So many objects of a finding are named; `-o json` has them all."""
_LABELS: Final = {severity: severity.value.replace("-", " ") for severity in Severity}
_COLOURS: Final = {
    Severity.OK: "32",
    Severity.NOTE: "36",
    Severity.UNCHECKED: "35",
    Severity.WARNING: "33",
    Severity.ERROR: "1;31",
}
_COUNTED: Final = {
    Severity.ERROR: ("error",),
    Severity.WARNING: ("warning",),
    Severity.UNCHECKED: ("thing not checked", "things not checked"),
}
_MARGIN: Final = 2
_LABEL: Final = 13  # `not checked` and two blanks
_NARROW: Final = 64  # on a narrower terminal, text below a finding begins further left


@attrs.frozen
class Subject:
    """
    One part of the report.

    Attributes:
        name: in the JSON form, in kebab case.
        title: for a person.
        findings: what it finds; nothing if there is nothing to say.
    """

    name: str
    title: str
    findings: Callable[[Snapshot], Iterable[Finding]]


SUBJECTS: Final = (
    Subject("api-server", "API server", api_server.findings),
    Subject("rights", "Rights", installation.of_rights),
    Subject("nodes", "Nodes", nodes.of_nodes),
    Subject("device-plugin", "Device plugin", nodes.of_plugin),
    Subject("claims", "Claims on devices", claims.findings),
    Subject("installation", "Installation", installation.of_installation),
    Subject("policies", "Admission policies", policies.findings),
    Subject("capacity-requests", "Capacity requests", installation.of_asking),
    Subject("other-schedulers", "Other schedulers", other_schedulers.findings),
    Subject("allocations", "Allocations", pods.of_allocations),
    Subject("groups", "Groups of pods", groups.findings),
    Subject("pods", "Scheduler names", pods.of_names),
)


@attrs.frozen
class Report:
    """The findings by subject, in the order of the report; subjects without findings are left out."""

    snapshot: Snapshot
    sections: tuple[tuple[Subject, tuple[Finding, ...]], ...]

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for _, findings in self.sections for finding in findings)

    @property
    def exit_code(self) -> int:
        """As `EXIT_CODES` says."""
        if isinstance(self.snapshot.nodes, Unread) and isinstance(self.snapshot.pods, Unread):
            return NOT_CHECKED
        return NEEDS_HANDS if any(map(self.count, NEEDS_ACTION)) else FINE


def report_on(snapshot: Snapshot) -> Report:
    sections = ((subject, tuple(subject.findings(snapshot))) for subject in SUBJECTS)
    return Report(snapshot, tuple((subject, findings) for subject, findings in sections if findings))


def content(report: Report) -> dict[str, Any]:
    snapshot = report.snapshot
    nodes = () if isinstance(snapshot.nodes, Unread) else snapshot.nodes
    return {
        "schemaVersion": SCHEMA_VERSION,
        "version": snapshot.program_version,
        "exitCode": report.exit_code,
        "server": snapshot.server,
        "source": snapshot.source,
        "kubernetesVersion": None if isinstance(snapshot.version, Unread) else snapshot.version,
        "namespace": known.NAMESPACE,
        "schedulerNames": list(snapshot.scheduler_names),
        "counts": {severity.value: report.count(severity) for severity in Severity},
        "machines": [
            {"instanceType": kind.instance_type, "nodes": kind.nodes, "devices": kind.devices, "cores": kind.cores}
            for kind in machines(nodes)
        ],
        "findings": [
            {"subject": subject.name, **attrs.asdict(finding), "objects": list(finding.objects)}
            for subject, findings in report.sections
            for finding in findings
        ],
    }


@attrs.frozen
class TextReport:
    """
    Prints reports for a person: sections, one line for each finding, and below it what to do.

    Text is wrapped, a command never, so that it can be copied.
    """

    paragraphs: Paragraphs

    def lines(self, report: Report) -> Iterator[str]:
        snapshot = report.snapshot
        yield from self.paragraphs.wrap(
            f"Checking {snapshot.server} ({snapshot.source}), namespace {known.NAMESPACE}", rest="  "
        )
        for subject, findings in report.sections:
            yield from self.paragraphs.section(subject.title)
            for finding in findings:
                yield from self._finding(finding)
        yield ""
        yield from self.paragraphs.wrap(summary(report))

    def _finding(self, finding: Finding) -> Iterator[str]:
        label = _LABELS[finding.severity]
        narrow = self.paragraphs.width < _NARROW
        below = " " * (4 if narrow else _MARGIN + _LABEL)
        first = " " * _MARGIN + label.ljust(len(label) + 2 if narrow else _LABEL)
        lines = list(self.paragraphs.wrap(finding.message, first=first, rest=below))
        yield lines[0].replace(label, self.paragraphs.in_colour(label, _COLOURS[finding.severity]), 1)
        yield from lines[1:]
        if finding.severity is not Severity.UNCHECKED:
            yield from self._objects(finding, below)
        if finding.advice:
            yield from self.paragraphs.wrap(f"{finding.advice}.", first=below, rest=below)
        if finding.command:
            yield f"{below}$ {printable(finding.command)}"

    def _objects(self, finding: Finding, below: str) -> Iterator[str]:
        """Yield the objects: short names in one line, longer ones in a line each."""
        named, more = finding.objects[:NAMED], len(finding.objects) - NAMED
        rest = f"{more} more (-o json lists all)"
        if any(" " in name for name in named):
            for name in (*named, *([rest] if more > 0 else [])):
                yield from self.paragraphs.wrap(name, first=f"{below}- ", rest=f"{below}  ")
        elif named and not all(name in finding.message for name in named):
            yield from self.paragraphs.wrap(list_of([*named, rest] if more > 0 else named), first=below, rest=below)


def summary(report: Report) -> str:
    parts = [count_text(number, *words) for severity, words in _COUNTED.items() if (number := report.count(severity))]
    return f"{list_of(parts)}." if parts else "Nothing needs action."
