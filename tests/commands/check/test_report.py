"""The report for a person, on wide and narrow terminals, and the one for scripts, whose fields are fixed."""

import re

import attrs
import pytest

from neuron_scheduler import __version__
from neuron_scheduler.commands.check.report import SUBJECTS, Report, TextReport, content, report_on, summary
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity, warning
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.telemetry.terminal import Paragraphs
from tests.support.snapshots import BEFORE, HEALTHY


def report(*findings: Finding, snapshot: Snapshot = HEALTHY) -> Report:
    """Return a report with these findings about nodes."""
    return Report(snapshot, ((SUBJECTS[2], findings),))


def lines(*findings: Finding, width: int = 80, colour: bool = False) -> list[str]:
    """Return the lines between the title of the subject and the summary."""
    printed = list(TextReport(Paragraphs(width, colour)).lines(report(*findings)))
    title = next(number for number, line in enumerate(printed) if SUBJECTS[2].title in line)
    return printed[title + 1 : -2]


FOUND = warning(
    "nodes-without-device-plugin",
    "7 nodes have a Neuron instance type but no capacity for Neuron",
    advice="The device plugin does not run there",
    command="kubectl get pods --all-namespaces --selector name=neuron-device-plugin-ds --output wide",
    objects=[f"trn1-{letter}" for letter in "abcdefg"],
)


def test_a_finding_on_a_terminal_of_80_columns() -> None:
    """The message, some of the objects, the advice, and the command in one piece."""
    assert lines(FOUND) == [
        "  warning      7 nodes have a Neuron instance type but no capacity for Neuron",
        "               trn1-a, trn1-b, trn1-c, trn1-d, trn1-e and 2 more (-o json lists",
        "               all)",
        "               The device plugin does not run there.",
        "               $ kubectl get pods --all-namespaces --selector name=neuron-device-plugin-ds --output wide",
    ]


def test_a_narrow_terminal() -> None:
    """Text moves to the left, and no line but the command is longer than the terminal."""
    found = lines(FOUND, width=40)
    assert found[:2] == ["  warning  7 nodes have a Neuron", "    instance type but no capacity for"]
    assert [line for line in found if len(line) > 40] == [f"    $ {FOUND.command}"]


def test_objects_with_a_sentence_have_a_line_each() -> None:
    """Longer texts are listed below each other."""
    found = lines(warning("x", "Unknown", objects=["default/a on n: no ids", "default/b on n: no ids"]))
    assert found[1:] == ["               - default/a on n: no ids", "               - default/b on n: no ids"]


def test_objects_that_the_message_names_are_not_repeated() -> None:
    """A name is there once."""
    assert lines(warning("x", "Node trn1-a is odd", objects=["trn1-a"])) == ["  warning      Node trn1-a is odd"]


def test_colour_adds_nothing_else() -> None:
    """Without its codes, a coloured report is the plain one."""
    coloured = lines(FOUND, colour=True)
    assert coloured[0].startswith("  \033[33mwarning\033[0m      7 nodes")
    assert [re.sub(r"\033\[[0-9;]*m", "", line) for line in coloured] == lines(FOUND)


def test_names_from_the_cluster_cannot_control_the_terminal() -> None:
    """A schedulerName may have any characters."""
    found = lines(warning("x", "The schedulerName is \033[2Jevil", command="echo \a"))
    assert found == ["  warning      The schedulerName is \\x1b[2Jevil", "               $ echo \\a"]


@pytest.mark.parametrize(
    ("severities", "text"),
    [
        ([Severity.OK, Severity.NOTE], "Nothing needs action."),
        ([Severity.WARNING], "1 warning."),
        ([Severity.WARNING, Severity.ERROR, Severity.WARNING], "1 error and 2 warnings."),
        ([Severity.UNCHECKED, Severity.ERROR, Severity.WARNING], "1 error, 1 warning and 1 thing not checked."),
    ],
)
def test_the_last_line_counts(severities: list[Severity], text: str) -> None:
    """Errors come first."""
    assert summary(report(*(Finding("x", severity, "y") for severity in severities))) == text


def test_exit_codes() -> None:
    """0 if nothing needs action, 1 if something does or was not checked, 2 if neither nodes nor pods can be read."""
    unread = Unread("list something")
    assert report_on(HEALTHY).exit_code == report_on(BEFORE).exit_code == 0
    assert report_on(attrs.evolve(HEALTHY, version="v1.20.0")).exit_code == 1
    assert report_on(attrs.evolve(HEALTHY, daemon_sets=unread)).exit_code == 1
    assert report_on(attrs.evolve(HEALTHY, nodes=unread)).exit_code == 1
    assert report_on(attrs.evolve(HEALTHY, nodes=unread, pods=unread)).exit_code == 2


def test_the_whole_of_the_json() -> None:
    """All fields of a healthy cluster, and of one finding."""
    found = content(report_on(HEALTHY))
    findings = found.pop("findings")
    assert found == {
        "schemaVersion": 1,
        "version": __version__,
        "exitCode": 0,
        "server": "https://10.0.0.1:443",
        "source": "kubeconfig test",
        "kubernetesVersion": "v1.36.2",
        "namespace": "kube-system",
        "schedulerNames": ["my-scheduler"],
        "counts": {"ok": len(findings), "note": 0, "not-checked": 0, "warning": 0, "error": 0},
        "machines": [
            {"instanceType": "inf2.24xlarge", "nodes": 1, "devices": 6, "cores": 12},
            {"instanceType": "trn1.32xlarge", "nodes": 2, "devices": 16, "cores": 32},
        ],
    }
    assert findings[0] == {
        "subject": "api-server",
        "code": "version",
        "severity": "ok",
        "message": "Kubernetes v1.36.2 (supported: 1.33 to 1.37)",
        "advice": "",
        "command": "",
        "objects": [],
    }


def test_what_is_unknown_is_null_in_json() -> None:
    """The version that could not be read; no machines without nodes."""
    unread = Unread("list something")
    found = content(report_on(attrs.evolve(BEFORE, version=unread, nodes=unread)))
    assert (found["kubernetesVersion"], found["machines"], found["exitCode"]) == (None, [], 1)
