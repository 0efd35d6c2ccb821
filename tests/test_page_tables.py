"""
The tables of the pages are whole: what users can meet is in them, and the tests that they name exist.

docs/runbook.md has metrics, Events and log lines that report a problem; docs/pending.md the messages of a waiting
pod; docs/commands.md the commands; docs/sizing.md the counts of each instance type; docs/security.md,
tests/aws-documentation.md and tests/README.md the tests that show each line.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from neuron_scheduler.cli import COMMANDS
from neuron_scheduler.explain.answers import ChangeKind
from neuron_scheduler.kube.writes.binder import STALE
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine
from neuron_scheduler.neuron.topology import INVALID_TOGETHER, served_counts
from neuron_scheduler.scheduling.cycle.schedule_pod import ALIAS_HINT, NO_NODES_AVAILABLE
from neuron_scheduler.scheduling.plugins import dynamic_resources, volume_zone
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.preemption import search
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.documented_commands import ROOT, exists

PACKAGE: Final = ROOT / "neuron_scheduler"
LINK: Final = re.compile(r"\[`(test_\w+)`\]\((?:\.\./tests/)?([\w/]+\.py)\)")
"""A test and its path in `tests`, on a page in `docs` or in `tests`."""

PROBLEM: Final = r'\b(?:log\.(?:warning|error|fatal)|self\._trouble\.report|_stop)\(\s*(?:"([^"]+)"|([\w.]+))'
EVENT: Final = r'\.(?:record\([^)]*?\breason=|report_(?:capacity|wait)\(\s*\w+,\s*)(?:"([^"]+)"|([\w.]+))'


def page(name: str) -> str:
    """Return a page of `docs`, or of the root."""
    return (ROOT / ("" if "/" in name else "docs") / name).read_text()


def first_columns(text: str) -> list[str]:
    """Return the first cells of the rows that begin with something in backticks."""
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]


def texts(calls: str) -> set[str]:
    """Return the texts that are passed to some functions, also as constants of a module or of classes."""
    sources, found = [path.read_text() for path in PACKAGE.rglob("*.py")], set()
    for source in sources:
        for text, name in re.findall(calls, source):
            _, of_classes, constant = name.rpartition(".")
            annotated = r": ClassVar\[str\]" if of_classes else r"(?:: Final)?"
            named = re.findall(rf'\b{constant}{annotated} = "([^"]+)"', "\n".join(sources) if of_classes else source)
            assert text or named or name == "reason", f"the text of this is not found: {name}"
            found |= {text} if text else {*named}
    return found


def test_metrics_events_and_log_lines_are_explained() -> None:
    """Each is in the first column of a table of docs/runbook.md, and nothing else is."""
    lines, events = texts(PROBLEM), texts(EVENT)
    exported = re.findall(r"^# TYPE (\S+)", Metrics().exposition()[0].decode(), re.MULTILINE)
    metrics = {name.removesuffix("_created") for name in exported if not name.startswith(("process_", "python_"))}
    assert {"Watch failed", "Skipping malformed node", "Leaderelection lost"} <= lines
    assert {"Scheduled", "WaitingForGroup", "NeuronConflict"} <= events
    assert min(len(lines), len(metrics)) > 40, "a search that finds too little would hide what is missing"
    columns = "".join(first_columns(page("runbook.md").partition("\n## Health checks\n")[2]))
    explained = {name for name in re.findall(r"`([^`]+)`", columns) if not name.startswith(("/", "-"))}
    assert explained == lines | events | metrics


JUDGES: Final = ("scheduling/plugins", "scheduling/cycle", "scheduling/preemption", "neuron", "kube/objects")
"""The folders whose modules word a refusal."""
WORDS: Final = re.compile(r"node\(s\)|^Too many|^Insufficient |not found$|non-existent|this scheduler|CSI driver|^PVC ")
SUMMED_UP: Final = (Cause.CAPACITY, Cause.FRAGMENTATION, Cause.INVALID_COUNT, Cause.NOMINATED)
"""The causes with which the last sentence of a message may begin."""
OTHERS: Final = (
    *(ALIAS_HINT, NO_NODES_AVAILABLE, dynamic_resources.OFF, volume_zone.NO_NAMES, volume_zone.NO_VOLUME),
    *(search.NO_VICTIMS, search.NOT_HELPFUL, search.NEVER, search.WAITING),
    *(f"{cause.capitalize().replace('_', ' ')}:" for cause in SUMMED_UP),
    INVALID_TOGETHER.partition("}")[2].strip(),
    *(
        STALE.partition("{}")[0],
        "denied request:",
        "denied the request:",
    ),  # of a Binding; the last two the API server's
)


def strings(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module without its docstrings; of an f-string and of a format the fixed parts."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.split(r"\{\w+\}", node.value)


def test_every_message_of_a_waiting_pod_is_explained() -> None:
    """Its fixed words are in the first column of a table of docs/pending.md."""
    modules = [ast.parse(path.read_text()) for folder in JUDGES for path in (PACKAGE / folder).glob("*.py")]
    messages = {text.strip() for module in modules for text in strings(module) if WORDS.search(text)}
    assert {"node(s) were unschedulable", "Too many pods"} <= messages
    assert len(messages) > 30, "a search that finds too little would hide a message that is missing"
    firsts = first_columns(page("pending.md"))
    missing = [each for each in (*messages, *OTHERS) if not any(each.strip(' "`;,') in first for first in firsts)]
    assert missing == []


CLAIMING: Final = ("cluster/tables", "controllers", "model", "neuron", "neuron/claims", "scheduling/plugins")
"""The folders whose modules word what is said of claims."""
VARYING: Final = re.compile(r"\.\.\.|\"[CR]\"|\b[DRX]\b|\b\d+\b|'matches'|firstAvailable|neuron\.aws\.com")


def test_what_is_said_of_claims_is_said_so() -> None:
    """The fixed words of each message in docs/claims.md are in the sources."""
    modules = [ast.parse(path.read_text()) for folder in CLAIMING for path in (PACKAGE / folder).glob("*.py")]
    said = "\n".join(text for module in modules for text in strings(module))
    table = page("claims.md").partition("\n## What is refused\n")[2].partition("\n## ")[0]
    messages = [message for first in first_columns(table) for message in re.findall("`([^`]+)`", first)]
    assert len(messages) > 10
    words = {part.strip(" ():,") for message in messages for part in VARYING.split(message)}
    assert [each for each in words if each not in said] == []


def test_the_kinds_of_changes_and_the_commands() -> None:
    """Changes in the order in which `why` shows them; each command has a section and its exit codes."""
    text = page("commands.md")
    kinds = re.findall(r"^\| `(\w+)` \|", text.partition("## why")[2].partition("## fit")[0], re.MULTILINE)
    assert kinds == [*ChangeKind]
    asking = {command.name for command in COMMANDS if command.asks} - {"check", "usage-maps"}  # have pages of their own
    assert asking <= {*re.findall(r"^## (\w+)$", text, re.MULTILINE)}
    assert asking <= {*re.findall(r"^\| `(\w+)` \|", text.partition("## Exit codes")[2], re.MULTILINE)}


def test_the_counts_are_those_of_the_catalog() -> None:
    """Every type, with each count of cores that its devices can have."""
    shown, names = [], list[str]()
    row = r"^\| (`[a-z].*?|the same) \| (\d+) \| ([\d, to]+) \| (\d+) \| ([\d, to]+) \|$"
    for types, devices, of_devices, cores, of_cores in re.findall(row, page("sizing.md"), re.MULTILINE):
        names = re.findall(r"`(.*?)`", types) or names
        shown += [(name, int(devices), counts(of_devices), int(cores), counts(of_cores)) for name in names]
    machines = [
        Machine(k.name, k.shape, k.devices, cores) for k in INSTANCE_TYPES.values() for cores in k.cores_per_device
    ]
    assert sorted(shown) == sorted(
        (
            each.instance_type,
            each.devices,
            served_counts(each, Unit.DEVICE),
            each.cores_per_device,
            served_counts(each, Unit.CORE),
        )
        for each in machines
    )


def counts(text: str) -> tuple[int, ...]:
    """Return the counts of a cell such as `1 to 4, 16`."""
    ranges = [part.partition(" to ") for part in text.split(", ")]
    return tuple(count for first, _, last in ranges for count in range(int(first), int(last or first) + 1))


NO_TEST: Final = re.compile(r"not tested: (needs a node|a matter of the volume that you choose)|needs kops")


def last_column(row: str) -> str:
    return row.removesuffix(" |").rsplit(" | ", 1)[-1]


@pytest.mark.parametrize(
    ("name", "most"), [("security.md", 70), ("tests/aws-documentation.md", 70), ("tests/README.md", 5)]
)
def test_each_line_is_shown(name: str, most: int) -> None:
    """The last column of each table links tests and nothing else, or says why there is none; each test exists."""
    text = page(name)
    judged = text.partition("\n## Promises\n")[2].partition("\n## ")[0] if name == "tests/README.md" else text
    heads = re.findall(r"^(\|.*)\n\|-", judged, re.MULTILINE)
    rows = [line for line in judged.splitlines() if line.startswith("| ") and line not in heads]
    assert {last_column(head) for head in heads} <= {"shown by"} or name == "tests/README.md"
    assert len(rows) > most
    for row in rows:
        cell = last_column(row)
        assert NO_TEST.fullmatch(cell) or (LINK.search(cell) and not LINK.sub("", cell).strip(" ,")), row
    linked = {f"tests/{path}::{test}" for test, path in LINK.findall(text)}
    assert [test for test in sorted(linked) if not exists(test)] == []
    assert {*re.findall(r"test_\w+(?=`\])", text)} == {test.partition("::")[2] for test in linked}


def test_the_log_lines_of_aws_are_compared() -> None:
    """AWS's words for a log line are in a module of the tests that show it."""
    log_lines = page("tests/aws-documentation.md").partition("\n## Log lines\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `.*", log_lines, re.MULTILINE)
    assert rows
    for row in rows:
        modules = "".join((ROOT / "tests" / path).read_text() for _, path in LINK.findall(last_column(row)))
        parts = re.findall(r"`(?!kubectl)([^`]+)`", row.partition(" | ")[0])
        assert [part for part in parts if part not in modules] == []


def test_each_oracle_has_a_promise() -> None:
    """An oracle without a promise would be one that nobody reads."""
    named = {*re.findall(r"\[`(\w+)`\]\(simulation/oracles/\1\.py\)", page("tests/README.md"))}
    modules = {path.stem: path.read_text() for path in (ROOT / "tests" / "simulation" / "oracles").glob("*.py")}
    judging = {name for name, text in modules.items() if re.search(r"^class \w+\(Oracle\)", text, re.MULTILINE)}
    assert judging <= named <= modules.keys()
