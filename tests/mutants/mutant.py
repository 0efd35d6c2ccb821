"""
A mutant: the project with one promise broken, and what must notice it.

What is broken is a text of one file, or of several. It must be there exactly once, so that a mutant fails loudly when
the code moves away from under it. The files themselves are never changed: a mutant is made in a copy of the project.
"""

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parents[2]


class RottenMutantError(Exception):
    """The text that a mutant changes is not there any more; the message says which."""


@attrs.frozen
class Edit:
    """
    Lines of a file, and what stands in their place.

    The first line may begin, and the last one may end, in the middle of a line of the file. The lines may be indented
    otherwise there.

    Attributes:
        file: its path from the project's folder.
        before: in the file exactly once.
        after: may be empty.
    """

    file: str
    before: Sequence[str]
    after: Sequence[str]

    def made_in(self, source: str) -> str:
        """
        Return the file's text with the edit made.

        Raises:
            RottenMutantError: the lines are not in it exactly once.
        """
        made = []
        for match in re.finditer(re.escape(self.before[0]), source):
            ahead = source[: match.start()].rpartition("\n")[2]
            indent = ahead[: len(ahead) - len(ahead.lstrip())]
            before, after = _indented(self.before, indent), _indented(self.after, indent)
            if source.startswith(before, match.start()):
                made.append(f"{source[: match.start()]}{after}{source[match.start() + len(before) :]}")
        if len(made) != 1:
            text = "\n".join(self.before)
            raise RottenMutantError(f"this is {len(made)} times in {self.file}, not once; change the mutant:\n{text}")
        return made[0]


@attrs.frozen(kw_only=True)
class Mutant:
    """
    One promise that is broken, and what notices it: tests, a simulated seed, or both.

    Attributes:
        name: a few words with hyphens.
        broken: the promise as a sentence, or what is taken away as a clause.
        danger: what the simulation's oracles see then, as a clause.
        tests: node ids, or files; at least one of them fails.
        plane: whether the tests need a control plane.
        seed: a seed of the simulation on which an oracle notices it, one of the first 500; None without the simulation.
        oracles: those that fail on the seed, and do not without the mutant.
        where: regular expressions; it may show in scenarios with parts that match, so these are tried first.
    """

    name: str
    broken: str
    danger: str = ""
    tests: Sequence[str] = ()
    plane: bool = False
    seed: int | None = None
    oracles: Sequence[str] = ()
    where: Sequence[str] = ()
    edits: Sequence[Edit]

    def sources(self) -> dict[str, str]:
        """
        Return the text of each changed file.

        Raises:
            RottenMutantError: an edit does not fit the file, or changes nothing.
        """
        changed: dict[str, str] = {}
        for edit in self.edits:
            source = changed.get(edit.file) or (ROOT / edit.file).read_text()
            changed[edit.file] = edit.made_in(source)
            if changed[edit.file] == source:
                raise RottenMutantError(f"an edit of {edit.file} changes nothing")
        return changed


@contextmanager
def copy_with(mutant: Mutant | None) -> Iterator[Path]:
    """
    Make a copy of the project with a mutant, or unchanged; it is removed at the end.

    What is compiled is copied too, so that a test begins in the copy as fast as in the project.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "project"
        shutil.copytree(ROOT, copy, ignore=_left_out)
        for file, source in (mutant.sources() if mutant else {}).items():
            (copy / file).write_text(source)
            Path(cache_from_source(str(copy / file))).unlink(missing_ok=True)
        yield copy


def _left_out(folder: str, names: Sequence[str]) -> set[str]:
    """Return what is not copied: what git and the tools keep at the top, and what another process compiles just now."""
    return {name for name in names if (name.startswith(".") and Path(folder) == ROOT) or ".pyc." in name}


def _indented(lines: Sequence[str], indent: str) -> str:
    return "\n".join(f"{indent}{line}" if number and line else line for number, line in enumerate(lines))
