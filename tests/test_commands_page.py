"""docs/commands.md lists every kind of change, and every command that gives an answer about a cluster."""

import re
from pathlib import Path
from typing import Final

from neuron_scheduler.cli import COMMANDS
from neuron_scheduler.explain.answers.explanation import ChangeKind

OTHER_PAGES: Final = {"check", "usage-maps"}
"""Commands that docs/check.md and docs/migrating.md explain."""
PAGE: Final = (Path(__file__).parents[1] / "docs/commands.md").read_text()


def test_the_kinds_of_changes() -> None:
    """In the order in which `why` shows them."""
    assert re.findall(r"^\| `(\w+)` \|", PAGE.partition("## why")[2].partition("## fit")[0], re.MULTILINE) == [
        *ChangeKind
    ]


def test_the_commands() -> None:
    """Each has a section and its exit codes."""
    asking = {command.name for command in COMMANDS if command.asks} - OTHER_PAGES
    assert asking <= {*re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)}
    assert asking <= {*re.findall(r"^\| `(\w+)` \|", PAGE.partition("## Exit codes")[2], re.MULTILINE)}
