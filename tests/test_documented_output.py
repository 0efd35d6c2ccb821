"""What README and the pages show of the commands is what these print."""

from pathlib import Path

import pytest

from tests.support.documented_commands import Block
from tests.support.documented_output import Shown, example_shell, printed, shown_outputs


@pytest.mark.parametrize("shown", [*shown_outputs()], ids=str)
async def test_the_pages_show_what_the_commands_print(shown: Shown, tmp_path: Path) -> None:
    """Line by line; if a text has changed on purpose, `make outputs` writes it into the pages."""
    now = await printed(example_shell(tmp_path), shown)
    assert shown.agrees_with(now), f"{shown}: run `make outputs`. The commands print:\n{now}"


def of(output: str) -> Shown:
    return Shown(Block("page.md", 1, "", "", "one # exit code 3\n"), output, 0, 0)


@pytest.mark.parametrize(
    ("output", "agrees"),
    [
        ("a\nb\nc\n", True),
        ("a\n...\n", True),
        ("...\nc\n", True),
        ("a\n...\nb\n...\nc\n", True),
        ("a\nc\n", False),
        ("a\n", False),
        ("...\nb\n", False),
        ("b\n...\n", False),
        ("a\n...\n.\n", False),
    ],
)
def test_a_line_of_dots_stands_for_any_lines(output: str, agrees: bool) -> None:
    """All others are compared, and nothing is missing at the ends."""
    assert of(output).agrees_with("a\nb\nc\n") is agrees
    assert of(output).code == 3
