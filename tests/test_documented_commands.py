"""Each command in README.md and docs/ is run by a test, or the page says what it needs that tests do not have."""

import re
from pathlib import Path

import pytest

from tests.support.documented_commands import NEEDS, PAGES, ROOT, Block, Shell, blocks, exists, run_by

BLOCKS = [block for page in PAGES for block in blocks(page)]
COMMAND = re.compile(r"(?: {4,}|\$ )(kubectl|helm|kops|docker|make|python|pip|neuron-scheduler) ")


def test_the_pages_have_blocks() -> None:
    """The extractor finds as many blocks as the pages open."""
    opened = sum(line.strip() == "```sh" for page in PAGES for line in page.read_text().splitlines())
    assert len(BLOCKS) == opened > 20


def test_commands_are_in_blocks() -> None:
    """No command hides in an indented paragraph or in a block of another language."""
    commands = {line.strip() for block in BLOCKS for line in block.text.splitlines()}
    lines = [line for page in PAGES for line in page.read_text().splitlines()]
    assert [line for line in lines if COMMAND.match(line) and line.strip() not in commands] == []


def complaint(block: Block) -> str:
    """Return what is wrong with the marker of a block; empty if nothing is."""
    if block.marker == "needs":
        return "" if block.subject in NEEDS else f"{block}: nobody knows what {block.subject} is"
    if not block.marker:
        return f"{block} has no marker: see tests/support/documented_commands.py"
    if not exists(block.subject):
        return f"{block}: there is no {block.subject}"
    module = (ROOT / block.subject.partition("::")[0]).read_text()
    takes = block.marker != "run by" or "documented_commands" in module
    return "" if takes else f"{block}: {block.subject} does not take its commands from the page"


def test_a_test_runs_the_commands() -> None:
    """Each block names an existing test, which takes the block from the page, or what it needs."""
    assert [*filter(None, map(complaint, BLOCKS))] == []


def test_a_test_that_no_page_names_runs_nothing() -> None:
    """Then it fails, instead of passing without a command."""
    with pytest.raises(LookupError, match="no page has a block"):
        run_by("tests/a.py::test_b")
    assert not exists("tests/test_documented_commands.py::test_that_is_not_there")


def commands(text: str) -> Block:
    """Return a block of commands."""
    return Block("page.md", 1, "", "", "", text)


async def test_commands_run_as_they_are_written(tmp_path: Path) -> None:
    """Up to the first that fails, with the placeholders replaced; the exit code must be the expected one."""
    shell = Shell(tmp_path, {"PATH": "/usr/bin:/bin"})
    assert await shell.run(commands("echo NAME NAMES >&2\npwd"), replaced={"NAME": "a"}) == f"a NAMES\n{tmp_path}\n"
    assert await shell.run(commands("echo a\n(exit 3)\necho b"), code=3) == "a\n"
    with pytest.raises(AssertionError, match="exit code 1"):
        await shell.run(commands("false | true"))
