"""docs/aws-documentation.md: each row names a test that exists, and a log line is one that its test compares."""

import re

import pytest

from tests.support.documented_commands import ROOT, exists

PAGE = ROOT / "docs" / "aws-documentation.md"
LINK = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")
ROWS = [line for line in PAGE.read_text().splitlines() if re.match(r"\| (?!AWS \||step \|)", line)]
LOG_LINES = re.findall(
    r"^\| `.*", PAGE.read_text().partition("\n## Log lines\n")[2].partition("\n## ")[0], re.MULTILINE
)


def linked(row: str) -> list[tuple[str, str]]:
    """Return the tests in the last column as (path, function)."""
    return [(path, name) for name, path in LINK.findall(row.rsplit(" | ", 1)[-1])]


def test_the_page_has_rows() -> None:
    """Each section has a table."""
    sections = re.split(r"^##+ ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert [text.partition("\n")[0] for text in sections if "\n|" not in text] == ['Page "Neuron scheduler extension"']
    assert len(ROWS) > 70


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_each_row_names_tests_that_exist(row: str) -> None:
    """The last column links to tests, and to nothing else; kops needs AWS."""
    tests = linked(row)
    if row.endswith(" | needs kops |"):
        return
    assert tests, "no test"
    assert LINK.sub("", row.rsplit(" | ", 1)[-1]).strip(" |") == ""
    assert [f"{path}::{name}" for path, name in tests if not exists(f"{path}::{name}")] == []


@pytest.mark.parametrize("row", LOG_LINES, ids=lambda row: row[3:60])
def test_a_log_line_is_compared_by_its_test(row: str) -> None:
    """The parts of AWS's line that are printed in the first column are in the module of the test."""
    module = "".join((ROOT / path).read_text() for path, _ in linked(row))
    for part in re.findall(r"`(?!kubectl)([^`]+)`", row.partition(" | ")[0]):
        assert part in module
