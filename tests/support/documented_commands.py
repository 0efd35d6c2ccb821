"""
The commands that README.md and the pages in `FOLDERS` show: which test runs each of them, and how it does so.

A fenced block of the language `sh` has a marker above it, an HTML comment that readers do not see:

    <!-- run by: tests/end_to_end/test_x.py::test_y -->   this test asks for the block here and runs it as it is written
    <!-- same as: tests/end_to_end/test_x.py::test_y -->  this test does the same in another way
    <!-- needs: AWS -->                                   no test runs it; what is missing is one of `NEEDS`

A marker holds for all blocks up to the next marker or heading. Judges no output: the test that runs a block does.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
import attrs

from tests.control_plane.binaries import require
from tests.support.kustomize import copied, customized

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("docs", "tests", "benchmarks")
PAGES: Final = sorted([ROOT / "README.md", *(page for each in FOLDERS for page in (ROOT / each).glob("*.md"))])
NEEDS: Final = {"AWS", "HAMi", "a quiet machine", "a registry", "kops"}
LONGEST: Final = 90.0  # seconds that a block may take
MARKER: Final = re.compile(r"^\s*<!-- (run by|same as|needs): (.*?) -->$")
FENCE: Final = re.compile(r"^\s*```(\w*)$")
HEADING: Final = re.compile(r"^#+ ")


@attrs.frozen
class Block:
    """
    A fenced block of commands.

    Attributes:
        page: its path in the repository, with `/`.
        line: of its first command, from 1.
        marker, subject: `run by` and a test, `same as` and a test, or `needs` and what; empty if there is none.
        text: the commands as they are written, without the indentation that the whole block has.
    """

    page: str
    line: int
    marker: str
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page from top to bottom."""
    marker = subject = ""
    lines, name = page.read_text().splitlines(), page.relative_to(ROOT).as_posix()
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines, start=1):
        if fence := FENCE.match(line):
            if opened is not None and opened[1] == "sh":
                text = _unindented(lines[opened[0] : number - 1])
                yield Block(name, opened[0] + 1, marker, subject, text)
            opened = (number, fence[1]) if opened is None else None
        elif opened is None and HEADING.match(line):
            marker = subject = ""
        elif opened is None and (mark := MARKER.match(line)):
            marker, subject = mark[1], mark[2]


def run_by(test: str) -> list[Block]:
    """
    Return the blocks that name this test, such as `tests/end_to_end/test_x.py::test_y`, in the order of the pages.

    Raises:
        LookupError: there is none, so the test would run nothing.
    """
    found = [block for page in PAGES for block in blocks(page) if (block.marker, block.subject) == ("run by", test)]
    if not found:
        raise LookupError(f"no page has a block with <!-- run by: {test} -->")
    return found


def exists(test: str) -> bool:
    """Return whether a test of this name is defined: a file, and a function in it."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return (
        file.is_file() and re.search(rf"^(async )?def {re.escape(name)}\(", file.read_text(), re.MULTILINE) is not None
    )


@attrs.frozen
class Shell:
    """
    Runs blocks as a reader would: in a copy of the repository, with kubectl, helm and `neuron-scheduler` on PATH.

    Attributes:
        folder: where the commands run; they may change files there.
        environment: the variables of the commands.
    """

    folder: Path
    environment: Mapping[str, str]

    async def run(self, block: Block, *, replaced: Mapping[str, str] | None = None, code: int = 0) -> str:
        """
        Run a block with bash, which ends at the first command that fails.

        Args:
            block: the commands.
            replaced: texts to put in place of the page's placeholders, such as REGISTRY.
            code: the exit code that the reader is told to expect.

        Returns:
            What the commands printed on both streams.

        Raises:
            AssertionError: the exit code is another one; the text has the output.
            TimeoutError: the commands have not ended.
        """
        text = block.text
        for placeholder, value in (replaced or {}).items():
            text = re.sub(rf"\b{re.escape(placeholder)}\b", value, text)
        return await self.output(text, code=code, named=f"{block}: ")

    async def output(self, text: str, *, code: int = 0, named: str = "") -> str:
        """Run commands of the test's own, and return what they printed. Raises as `run` does."""
        ended, output = await self._run(["bash", "-euo", "pipefail", "-c", text])
        assert ended == code, f"{named}exit code {ended}\n{text}\n{output}"
        return output

    async def _run(self, command: list[str]) -> tuple[int, str]:
        """Return exit code and output; nothing that was started survives a timeout or the end of the test."""
        output = b""
        async with await anyio.open_process(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,  # bash reads ~/.bashrc if it is a socket
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            try:
                with anyio.fail_after(LONGEST):
                    async for part in process.stdout:
                        output += part
                    return await process.wait(), output.decode()
            except TimeoutError:
                raise TimeoutError(f"{command[-1]}\nhas not ended:\n{output.decode()}") from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def reader_shell(folder: Path, kubeconfig: Path, *, road: str = "") -> Shell:
    """
    Return a shell for blocks.

    Args:
        folder: an empty folder; the copy of the repository and the programs will be in it.
        kubeconfig: how kubectl, helm and `neuron-scheduler` reach the API server.
        road: for a reader who has a kustomization of this road, as README's install step leaves it.

    Raises:
        MissingBinaryError: kubectl or helm is not built; only tests with the mark `control_plane` may ask for them.
    """
    programs, copy = folder / "bin", folder / "neuron-scheduler"
    programs.mkdir()
    for name in ("kubectl", "helm"):
        (programs / name).symlink_to(require(name))
    ours = programs / "neuron-scheduler"
    ours.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m neuron_scheduler "$@"\n')
    ours.chmod(0o755)
    copy.mkdir()
    if road:
        customized(road, copy)
    else:
        copied(copy)
    shutil.copy(ROOT / ".gitignore", copy)
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message=a revision")):
        author = ("-c", "user.name=a reader", "-c", "user.email=reader@example.com")
        subprocess.run(["git", *author, *words], cwd=copy, check=True)
    environment = {
        "HOME": str(folder),  # also the place of helm's caches
        "KUBECONFIG": str(kubeconfig),
        "LANG": "C.UTF-8",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    return Shell(copy, environment)


def _unindented(lines: list[str]) -> str:
    """Return the lines without the indentation of the first one."""
    indentation = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    return "".join(f"{line[indentation:]}\n" for line in lines)
