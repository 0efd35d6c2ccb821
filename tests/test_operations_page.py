"""docs/operations.md explains every metric, every Event and every log line that reports a problem."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from neuron_scheduler.telemetry.metrics import Metrics

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "neuron_scheduler"
PAGE: Final = (ROOT / "docs/operations.md").read_text()
FIRST_COLUMNS: Final = [line.split(" | ")[0] for line in PAGE.splitlines() if line.startswith("| `")]
MODULES: Final = [
    ast.parse(path.read_text())
    for path in sorted(PACKAGE.rglob("*.py"))
    if not path.is_relative_to(PACKAGE / "sandbox")  # nobody operates it
]
PROBLEMS: Final = {"warning", "error", "fatal"}
METRICS: Final = sorted(
    name.removesuffix("_created")
    for name in re.findall(r"^# TYPE (\S+)", Metrics().exposition()[0].decode(), re.MULTILINE)
    if not name.startswith(("process_", "python_"))
)


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


def lines() -> Iterator[str]:
    """Yield the messages of log lines that report a problem."""
    for module in MODULES:
        for call in calls(module):
            match call.func:
                case ast.Attribute(value=ast.Name(id="log"), attr=method) if method in PROBLEMS:
                    yield from texts(module, call.args[0])
                case ast.Attribute(value=ast.Attribute(attr="_trouble"), attr="met"):
                    yield from texts(module, call.args[0])


def texts(module: ast.Module, message: ast.expr) -> Iterator[str]:
    """Yield what a message may be: a text, a constant of the module, one of classes, or an argument of `_stop`."""
    match message:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id="reason"):
            yield from (
                text
                for call in calls(module)
                if ast.unparse(call.func) == "_stop"
                for text in texts(module, call.args[0])
            )
        case ast.Name(id=name):
            yield from constants(module, name)
        case ast.Attribute(attr=name):
            yield from (text for each in MODULES for text in constants(each, name) if text.startswith("Skipping"))
        case _:
            raise AssertionError(f"this message cannot be found in the page: {ast.unparse(message)}")


LINES: Final = sorted({*lines()})
EVENTS: Final = sorted(
    {
        str(keyword.value.value)
        for module in MODULES
        for call in calls(module)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "record"
        for keyword in call.keywords
        if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant)
    }
    | {
        str(ast.literal_eval(call.args[1]))
        for module in MODULES
        for call in calls(module)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "_about_capacity"
    }
)


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_explained(name: str) -> None:
    """It is in the first column of a table."""
    assert any(f"`{name}`" in column for column in FIRST_COLUMNS)


@pytest.mark.parametrize("line", LINES)
def test_a_log_line_is_explained(line: str) -> None:
    """It is in the first column of a table, whole."""
    assert any(f"`{line}`" in column for column in FIRST_COLUMNS)


@pytest.mark.parametrize("reason", EVENTS)
def test_an_event_is_explained(reason: str) -> None:
    """Its reason is in the first column of a table."""
    assert any(f"| `{reason}`" in column for column in FIRST_COLUMNS)


def test_nothing_is_explained_that_is_not_there() -> None:
    """Each line, metric and reason of the page exists."""
    named = {name for column in FIRST_COLUMNS for name in re.findall(r"`([^`]+)`", column)}
    paths = {name for name in named if name.startswith(("/", "-"))}
    assert named - paths - {*METRICS, *LINES, *EVENTS} == set()


def test_the_search_finds_what_it_should() -> None:
    """A search that finds too little would hide what is missing."""
    assert {"Watch failed", "Skipping malformed node", "Leaderelection lost", "Credential plugin fails"} <= {*LINES}
    assert len(LINES) > 40
    assert {"Scheduled", "FailedScheduling", "NeuronConflict"} <= {*EVENTS}
    assert len(METRICS) > 40
