"""docs/reliability.md: the tests and oracles that it names exist, and its tables are those of the simulation."""

import re

import pytest

from tests.simulation import report
from tests.support.documented_commands import ROOT, exists

PAGE = (ROOT / "docs" / "reliability.md").read_text()
TEST = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")
ORACLE = re.compile(r"\[`(\w+)`\]\(\.\./tests/simulation/oracles/(\w+)\.py\)")
PROMISES = [
    line
    for line in PAGE.partition("\n## Promises\n")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| promise ")
]


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[2:60])
def test_each_promise_is_shown_at_the_real_api_server(row: str) -> None:
    """The last column names tests that exist."""
    named = [f"{path}::{name}" for name, path in TEST.findall(row.rsplit(" | ", 1)[-1])]
    assert named
    assert [test for test in named if not exists(test)] == []


def test_all_oracles_are_named() -> None:
    """An oracle without a promise would be a promise that nobody reads."""
    named = {module for name, module in ORACLE.findall(PAGE) if name == module}
    folder = ROOT / "tests" / "simulation" / "oracles"
    oracle = re.compile(r"^class \w+\(Oracle\)", re.MULTILINE)
    judging = {path.stem for path in folder.glob("*.py") if oracle.search(path.read_text())}
    assert judging <= named
    assert {name for name in named if not (folder / f"{name}.py").exists()} == set()


@pytest.mark.parametrize("table", [report.mutants_table, report.mends_table], ids=lambda table: table.__name__)
def test_the_tables_are_those_of_the_simulation(table: object) -> None:
    """`python -m tests.simulation --mutants` prints them."""
    assert callable(table)
    assert table().strip() in PAGE
