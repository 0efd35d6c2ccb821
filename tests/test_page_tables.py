"""
The tables of the pages are whole: what users can meet is in them, and the tests that they name exist.

docs/operations.md has metrics, Events and log lines that report a problem; docs/pending.md the messages of a waiting
pod; docs/commands.md the commands; docs/sizing.md the counts of each instance type; docs/security.md,
docs/aws-documentation.md and docs/reliability.md the tests that show each line.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from typing import Final

from neuron_scheduler.cli import COMMANDS
from neuron_scheduler.explain.answers import ChangeKind
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine
from neuron_scheduler.neuron.topology import INVALID_TOGETHER, served
from neuron_scheduler.scheduling.cycle.schedule_pod import ALIAS_HINT, NO_NODES_AVAILABLE
from neuron_scheduler.scheduling.plugins import dynamic_resources, volume_zone
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.preemption import search
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.documented_commands import ROOT, exists

PACKAGE: Final = ROOT / "neuron_scheduler"
PROBLEMS: Final = {"warning", "error", "fatal"}
LINK: Final = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")


def page(name: str) -> str:
    """Return the text of a page."""
    return (ROOT / "docs" / name).read_text()


def first_columns(text: str) -> list[str]:
    """Return the first cells of the rows that begin with something in backticks."""
    return [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]


# -- docs/operations.md ------------------------------------------------------------------------------------------------


def calls(module: ast.Module) -> Iterator[ast.Call]:
    """Yield the calls of a module."""
    return (node for node in ast.walk(module) if isinstance(node, ast.Call))


def constants(module: ast.Module, name: str) -> Iterator[str]:
    """Yield the texts that a module assigns to a name, also in its classes."""
    for node in ast.walk(module):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def texts(modules: list[ast.Module], module: ast.Module, message: ast.expr) -> Iterator[str]:
    """Yield what a message may be: a text, a constant of the module, one of classes, or an argument of `_stop`."""
    match message:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id="reason"):
            stops = (call for call in calls(module) if ast.unparse(call.func) == "_stop")
            yield from (text for call in stops for text in texts(modules, module, call.args[0]))
        case ast.Name(id=name):
            yield from constants(module, name)
        case ast.Attribute(attr=name):
            yield from (text for each in modules for text in constants(each, name) if text.startswith("Skipping"))
        case _:
            raise AssertionError(f"this message cannot be found in the page: {ast.unparse(message)}")


def problems(modules: list[ast.Module]) -> Iterator[str]:
    """Yield the messages of log lines that report a problem."""
    for module in modules:
        for call in calls(module):
            match call.func:
                case ast.Attribute(value=ast.Name(id="log"), attr=method) if method in PROBLEMS:
                    yield from texts(modules, module, call.args[0])
                case ast.Attribute(value=ast.Attribute(attr="_trouble"), attr="met"):
                    yield from texts(modules, module, call.args[0])


def reasons(modules: list[ast.Module]) -> Iterator[str]:
    """Yield the reasons of Events."""
    for module in modules:
        for call in calls(module):
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            if method == "record":
                said = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
                yield from (str(value.value) for value in said if isinstance(value, ast.Constant))
                yield from (
                    text for value in said if isinstance(value, ast.Name) for text in constants(module, value.id)
                )
            elif method == "about_capacity" and isinstance(call.args[1], ast.Constant):
                yield str(call.args[1].value)


def test_metrics_events_and_log_lines_are_explained() -> None:
    """Each is in the first column of a table of docs/operations.md, and nothing else is."""
    modules = [ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]
    lines, events = {*problems(modules)}, {*reasons(modules)}
    exported = re.findall(r"^# TYPE (\S+)", Metrics().exposition()[0].decode(), re.MULTILINE)
    metrics = {name.removesuffix("_created") for name in exported if not name.startswith(("process_", "python_"))}
    assert {"Watch failed", "Skipping malformed node", "Leaderelection lost"} <= lines
    assert {"Scheduled", "FailedScheduling", "NeuronConflict"} <= events
    assert min(len(lines), len(metrics)) > 40, "a search that finds too little would hide what is missing"

    columns = first_columns(page("operations.md"))
    explained = {name for column in columns for name in re.findall(r"`([^`]+)`", column)}
    assert (lines | events | metrics) - explained == set()
    assert {name for name in explained if not name.startswith(("/", "-"))} - lines - events - metrics == set()


# -- docs/pending.md ---------------------------------------------------------------------------------------------------

JUDGES: Final = ("scheduling/plugins", "scheduling/cycle", "scheduling/preemption", "neuron", "kube/objects")
"""The folders whose modules word a refusal."""
WORDS: Final = re.compile(r"node\(s\)|^Too many|^Insufficient |not found$|non-existent|this scheduler|CSI driver|^PVC ")
SUMMED_UP: Final = (Cause.CAPACITY, Cause.FRAGMENTATION, Cause.INVALID_COUNT, Cause.NOMINATED)
"""The causes with which the last sentence of a message may begin."""
OTHERS: Final = (
    *(ALIAS_HINT, NO_NODES_AVAILABLE, dynamic_resources.REASON, volume_zone.NO_NAMES, volume_zone.NO_VOLUME),
    *(search.NO_VICTIMS, search.NOT_HELPFUL, search.NEVER, search.WAITING),
    *(f"{cause.capitalize().replace('_', ' ')}:" for cause in SUMMED_UP),
    INVALID_TOGETHER.partition("}")[2].strip(),
)


def strings(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module without its docstrings; of an f-string and of a format the fixed parts."""
    docstrings = {
        id(body[0].value)
        for node in ast.walk(tree)
        if (body := getattr(node, "body", None)) and isinstance(body, list) and isinstance(body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from re.split(r"\{\w+\}", node.value)


def test_every_message_of_a_waiting_pod_is_explained() -> None:
    """Its fixed words are in the first column of a table of docs/pending.md."""
    modules = [ast.parse(path.read_text()) for folder in JUDGES for path in sorted((PACKAGE / folder).glob("*.py"))]
    messages = {text.strip() for module in modules for text in strings(module) if WORDS.search(text)}
    assert {"node(s) were unschedulable", "Too many pods"} <= messages
    assert len(messages) > 30, "a search that finds too little would hide a message that is missing"
    firsts = first_columns(page("pending.md"))
    missing = [each for each in (*messages, *OTHERS) if not any(each.strip(' "`;,') in first for first in firsts)]
    assert missing == []


# -- docs/commands.md and docs/sizing.md -------------------------------------------------------------------------------


def test_the_kinds_of_changes_and_the_commands() -> None:
    """Changes in the order in which `why` shows them; each command has a section and its exit codes."""
    text = page("commands.md")
    kinds = re.findall(r"^\| `(\w+)` \|", text.partition("## why")[2].partition("## fit")[0], re.MULTILINE)
    assert kinds == [*ChangeKind]
    asking = {command.name for command in COMMANDS if command.asks} - {"check", "usage-maps"}  # have pages of their own
    assert asking <= {*re.findall(r"^## (\w+)$", text, re.MULTILINE)}
    assert asking <= {*re.findall(r"^\| `(\w+)` \|", text.partition("## Exit codes")[2], re.MULTILINE)}


Row = tuple[str, int, tuple[int, ...], int, tuple[int, ...]]
"""An instance type, devices, counts of devices, cores of a device, counts of cores."""
ROW: Final = re.compile(r"^\| (`[a-z].*?|the same) \| (\d+) \| ([\d, to]+) \| (\d+) \| ([\d, to]+) \|$", re.MULTILINE)


def counts(text: str) -> tuple[int, ...]:
    """Return the counts of a cell such as `1 to 4, 16`."""
    ranges = [part.partition(" to ") for part in text.split(", ")]
    return tuple(count for first, _, last in ranges for count in range(int(first), int(last or first) + 1))


def sizes() -> Iterator[Row]:
    """Yield what docs/sizing.md says, one instance type after the other."""
    names: list[str] = []
    for types, devices, of_devices, cores, of_cores in ROW.findall(page("sizing.md")):
        names = re.findall(r"`(.*?)`", types) or names
        for name in names:
            yield name, int(devices), counts(of_devices), int(cores), counts(of_cores)


def catalog() -> Iterator[Row]:
    """Yield what the catalog says."""
    for known in INSTANCE_TYPES.values():
        for cores in known.cores_per_device:
            machine = Machine(known.name, known.shape, known.devices, cores)
            yield known.name, known.devices, served(machine, Unit.DEVICE), cores, served(machine, Unit.CORE)


def test_the_counts_are_those_of_the_catalog() -> None:
    """Every type, with each count of cores that its devices can have."""
    assert sorted(sizes()) == sorted(catalog())


# -- what shows a line -------------------------------------------------------------------------------------------------

NO_TEST: Final = re.compile(r"\| (not tested: (needs a node|a matter of the volume that you choose)|needs kops) \|$")
HEAD: Final = re.compile(r"\| shown by \|$")


def shown_by(row: str) -> list[str]:
    """Return the tests in the last column of a row."""
    return [f"{path}::{name}" for name, path in LINK.findall(row.removesuffix(" |").rsplit(" | ", 1)[-1])]


def unshown(rows: list[str]) -> list[str]:
    """Return the rows whose last column has something else than links to tests that exist."""
    return [
        row
        for row in rows
        if not NO_TEST.search(row)
        and (
            not shown_by(row)
            or LINK.sub("", row.removesuffix(" |").rsplit(" | ", 1)[-1]).strip()
            or not all(map(exists, shown_by(row)))
        )
    ]


def test_each_line_on_security_is_shown() -> None:
    """The last column of each table names tests that exist, or says why there is none; so do the sentences between."""
    text = page("security.md")
    heads = [before for before, rule in itertools.pairwise(text.splitlines()) if re.fullmatch(r"(\|-+)+\|", rule)]
    rows = [line for line in text.splitlines() if line.startswith("| ") and not HEAD.search(line)]
    assert [head for head in heads if not HEAD.search(head)] == []
    assert len(rows) > 70
    assert unshown(rows) == []
    named = {f"{path}::{name}" for name, path in LINK.findall(text)}
    assert [test for test in sorted(named) if not exists(test)] == []
    assert set(re.findall(r"test_\w+(?=`\])", text)) == {test.partition("::")[2] for test in named}


def test_each_line_of_aws_documentation_is_shown() -> None:
    """A log line is one that its test compares: AWS's words are in the module."""
    text = page("aws-documentation.md")
    rows = [line for line in text.splitlines() if re.match(r"\| (?!AWS \||step \|)", line)]
    assert len(rows) > 70
    assert unshown(rows) == []
    log_lines = re.findall(r"^\| `.*", text.partition("\n## Log lines\n")[2].partition("\n## ")[0], re.MULTILINE)
    assert log_lines
    for row in log_lines:
        module = "".join((ROOT / test.partition("::")[0]).read_text() for test in shown_by(row))
        parts = re.findall(r"`(?!kubectl)([^`]+)`", row.partition(" | ")[0])
        assert [part for part in parts if part not in module] == []


def test_each_promise_is_shown_at_the_real_api_server_and_in_the_simulation() -> None:
    """The last column names tests that exist, and an oracle without a promise would be one that nobody reads."""
    text = page("reliability.md")
    lines = text.partition("\n## Promises\n")[2].partition("\n## ")[0].splitlines()
    promises = [line for line in lines if line.startswith("| ") and not line.startswith("| promise ")]
    assert len(promises) > 5
    assert [row for row in promises if not (tests := shown_by(row)) or not all(map(exists, tests))] == []
    linked = re.findall(r"\[`(\w+)`\]\(\.\./tests/simulation/oracles/(\w+)\.py\)", text)
    named = {module for name, module in linked if name == module}
    folder = ROOT / "tests" / "simulation" / "oracles"
    oracle = re.compile(r"^class \w+\(Oracle\)", re.MULTILINE)
    judging = {path.stem for path in folder.glob("*.py") if oracle.search(path.read_text())}
    assert judging <= named
    assert {name for name in named if not (folder / f"{name}.py").exists()} == set()
