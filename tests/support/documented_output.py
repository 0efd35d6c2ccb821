"""
What the pages show as the output of a command: compared with a real run, and written anew by `make outputs`.

A block of commands that `TEST` runs has a fenced block of the language `text` below it. It is what the commands print
about `docs/example`, in which a line `...` stands for any number of lines. A command whose exit code is not 0 says so
at the end of its line: `# exit code 1`. Judges only what is shown: other tests judge whether the answers are right.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import attrs

from tests.support.documented_commands import ROOT, Block, Shell, run_by

TEST: Final = "tests/test_documented_output.py::test_the_pages_show_what_the_commands_print"
TAKEN: Final = datetime(2026, 11, 22, 15, 35, tzinfo=UTC).timestamp()
"""When the example was read from its cluster: the file's time, from which ages are counted."""
ELISION: Final = "..."
_BELOW: Final = re.compile(r"```\n\n```text\n(.*?)```\n", re.DOTALL)
_CODE: Final = re.compile(r"# exit code (\d+)$", re.MULTILINE)


@attrs.frozen
class Shown:
    """
    A block of commands with the output that its page shows below it.

    Attributes:
        start, end: where the output is in the text of the page.
    """

    block: Block
    output: str
    start: int
    end: int

    def __str__(self) -> str:
        return str(self.block)

    @property
    def code(self) -> int:
        """The exit code that the reader is told to expect."""
        told = _CODE.search(self.block.text)
        return int(told[1]) if told else 0

    def agrees_with(self, printed: str) -> bool:
        """Return whether the output is what was printed, as far as it is shown."""
        pieces = re.split(rf"^{re.escape(ELISION)}\n", self.output, flags=re.MULTILINE)
        return re.fullmatch(r"(?:.*\n)*".join(map(re.escape, pieces)), printed) is not None


def shown_outputs() -> Iterator[Shown]:
    for block in run_by(TEST):
        text = (ROOT / block.page).read_text()
        place = sum(len(line) for line in text.splitlines(keepends=True)[: block.line - 1]) + len(block.text)
        below = _BELOW.match(text, place)
        if below is None:
            raise LookupError(f"{block}: there is no block of the language text directly below")
        yield Shown(block, below[1], below.start(1), below.end(1))


def example_shell(folder: Path) -> Shell:
    """Return a shell with `neuron-scheduler` on PATH and the example's files, which are as old as its pods say."""
    programs = folder / "bin"
    programs.mkdir()
    ours = programs / "neuron-scheduler"
    ours.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m neuron_scheduler "$@"\n')
    ours.chmod(0o755)
    example = folder / "docs" / "example"
    shutil.copytree(ROOT / "docs" / "example", example)
    for path in example.iterdir():
        os.utime(path, (TAKEN, TAKEN))
    shutil.copytree(ROOT / "manifests" / "examples", folder / "manifests" / "examples")
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    return Shell(folder, environment)


async def printed(shell: Shell, shown: Shown) -> str:
    return await shell.run(shown.block, code=shown.code)


async def write() -> list[Shown]:
    """Write into the pages what the commands print, and return the outputs with elisions that are no longer true."""
    stale = []
    with TemporaryDirectory() as folder:
        shell = example_shell(Path(folder))
        for shown in reversed([*shown_outputs()]):  # the places before a changed one stay what they are
            now = await printed(shell, shown)
            if shown.agrees_with(now):
                continue
            if f"{ELISION}\n" in shown.output:
                stale.append(shown)
                continue
            page = ROOT / shown.block.page
            text = page.read_text()
            page.write_text(f"{text[: shown.start]}{now}{text[shown.end :]}")
    return stale


def main() -> int:
    """Write the outputs; 1 if some must be written by hand."""
    stale = anyio.run(write)
    for shown in stale:
        sys.stderr.write(f"{shown}: write this output by hand, because it has lines {ELISION}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
