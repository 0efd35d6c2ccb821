"""docs/security.md: each line of its tables names tests that exist, or says why there is none."""

import itertools
import re

import pytest

from tests.support.documented_commands import ROOT, exists

PAGE = ROOT / "docs" / "security.md"
LINK = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")
HEADS = re.compile(r"^\|.*\| shown by \|$", re.MULTILINE)
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not HEADS.match(line)]
NO_TEST = re.compile(r"\| not tested: (needs a node|a matter of the volume that you choose) \|$")


def test_every_table_says_what_shows_its_lines() -> None:
    """The last column of each table is for tests."""
    lines = PAGE.read_text().splitlines()
    heads = [before for before, rule in itertools.pairwise(lines) if re.fullmatch(r"(\|-+)+\|", rule)]
    assert len(heads) > 10
    assert [head for head in heads if not HEADS.match(head)] == []
    assert len(ROWS) > 70


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_each_line_names_tests_that_exist(row: str) -> None:
    """The last column links to tests, and to nothing else."""
    if NO_TEST.search(row):
        return
    column = row.removesuffix(" |").rsplit(" | ", 1)[-1]
    assert LINK.sub("", column).strip() == ""
    assert LINK.search(column), "no test"


def test_every_test_that_the_page_names_exists() -> None:
    """In the tables and between them."""
    named = {f"{path}::{name}" for name, path in LINK.findall(PAGE.read_text())}
    assert len(named) > 90
    assert [test for test in sorted(named) if not exists(test)] == []
    assert set(re.findall(r"test_\w+(?=`\])", PAGE.read_text())) == {test.partition("::")[2] for test in named}
