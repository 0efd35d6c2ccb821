"""Each command in README.md and docs/ is run by a test, or the page says what it needs that tests do not have."""

import re

from tests.support.documented_commands import NEEDS, PAGES, ROOT, Block, blocks, exists

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
