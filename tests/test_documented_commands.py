"""Each command in README.md and docs/ is run by a test, or the page says what it needs that tests do not have."""

import pytest

from tests.support.documented_commands import NEEDS, PAGES, ROOT, Block, blocks, exists

BLOCKS = [block for page in PAGES for block in blocks(page)]


def test_the_pages_have_blocks() -> None:
    """The extractor finds as many blocks as the pages open."""
    opened = sum(line.strip() == "```sh" for page in PAGES for line in page.read_text().splitlines())
    assert len(BLOCKS) == opened > 5


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_test_runs_the_commands(block: Block) -> None:
    """A block names an existing test, which takes the block from the page, or what it needs."""
    if block.marker == "needs":
        assert block.subject in NEEDS
        return
    assert block.marker, f"{block} has no marker: see tests/support/documented_commands.py"
    assert exists(block.subject), f"{block}: there is no {block.subject}"
    if block.marker == "run by":
        module = (ROOT / block.subject.partition("::")[0]).read_text()
        assert "documented_commands" in module, f"{block}: {block.subject} does not take its commands from the page"
