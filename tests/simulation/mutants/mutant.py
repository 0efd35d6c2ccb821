"""
A change of the package's source while it is imported.

A change of the text reaches what a patched attribute does not: a condition in the middle of a function, a name that
other modules have imported already. The text that is replaced must be in the source exactly once, so that a mutant
fails loudly when the code moves away from under it.
"""

import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import attrs

PACKAGE: Final = "neuron_scheduler"
FOLDER: Final = Path(__file__).parents[3] / PACKAGE


class RottenMutantError(Exception):
    """The code that a mutant changes is not there any more; the text says which."""


@attrs.frozen
class Edit:
    """
    A text of a module, and what stands in its place.

    A text that begins with a line break is a block of whole lines; its last line, which is blank, shows by how much
    the block is indented here. The block may be indented otherwise in the source. Any other text is a part of a line.

    Attributes:
        module: dotted, below the package.
        before: in its source exactly once.
        after: a block if `before` is one, or empty.
    """

    module: str
    before: str
    after: str

    @property
    def name(self) -> str:
        """The module's full name."""
        return f"{PACKAGE}.{self.module}"

    @property
    def path(self) -> Path:
        """Where its source is."""
        return FOLDER / f"{self.module.replace('.', '/')}.py"

    def made_in(self, source: str) -> list[str]:
        """Return the source with the change made, once for each place where it could be made."""
        return made_in(source, self.before, self.after)


@attrs.frozen(kw_only=True)
class Mutant:
    """
    One thing taken away from the package.

    Attributes:
        name: a few words with hyphens.
        away: what is taken away, as a clause for a table.
        danger: what the oracles see then, as a clause.
        where: regular expressions; in scenarios with parts that match them it may show, so these are tried first.
    """

    name: str
    away: str
    danger: str
    edits: tuple[Edit, ...]
    where: tuple[str, ...] = ()

    def install(self) -> None:
        """
        Change the modules when they are imported, from now on.

        Raises:
            RottenMutantError: an edit does not fit the source, or its module is imported already.
        """
        by_name: dict[str, list[Edit]] = {}
        for edit in self.edits:
            if edit.name in sys.modules:
                raise RottenMutantError(f"{self.name}: {edit.name} is imported before it could be changed")
            by_name.setdefault(edit.name, []).append(edit)
        for edits in by_name.values():
            self.changed(edits[0].path.read_text(), edits)  # now, with a good message, and again at the import
        sys.meta_path.insert(0, _Finder(self, by_name))

    def require_applied(self) -> None:
        """Raise RottenMutantError unless all changed modules have been imported."""
        idle = sorted({edit.name for edit in self.edits if edit.name not in sys.modules})
        if idle:
            raise RottenMutantError(f"{self.name} changes {', '.join(idle)}, which nothing imports")

    def changed(self, source: str, edits: Iterable[Edit]) -> str:
        """Return a source with the edits made."""
        for edit in edits:
            changed = edit.made_in(source)
            if len(changed) != 1:
                raise RottenMutantError(
                    f"mutant {self.name}: this text is {len(changed)} times in {edit.path.name}, not once; change the "
                    f"mutant as the code has changed:\n{edit.before}"
                )
            source = changed[0]
        return source


@attrs.frozen(eq=False)
class _Finder(MetaPathFinder):
    mutant: Mutant
    edits: dict[str, list[Edit]]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.edits:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise RottenMutantError(f"mutant {self.mutant.name}: there is no module {fullname}")
        loader = _Loader(fullname, spec.origin, self.mutant, self.edits[fullname])
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=loader)


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, mutant: Mutant, edits: Iterable[Edit]) -> None:
        super().__init__(fullname, path)
        self._mutant, self._edits = mutant, edits

    def get_code(self, _fullname: str) -> CodeType:
        """Return the code of the changed source, and leave the cache of compiled files alone."""
        source = self._mutant.changed(Path(self.path).read_text(), self._edits)
        return compile(source, self.path, "exec", dont_inherit=True)


def made_in(source: str, before: str, after: str) -> list[str]:
    """Return the source with one text in the place of another, as `Edit` says, once for each place where it stands."""
    if not before.startswith("\n"):
        return [f"{source[:at]}{after}{source[at + len(before) :]}" for at in _all_starts(source, before)]
    lines, removed, added = source.splitlines(), _block(before), _block(after)
    changed = []
    for at, line in enumerate(lines):
        indent = line.removesuffix(removed[0])
        if indent.strip() or not line.endswith(removed[0]):
            continue
        if lines[at : at + len(removed)] == _indented(removed, indent):
            rest = lines[at + len(removed) :]
            changed.append("\n".join([*lines[:at], *_indented(added, indent), *rest, ""]))
    return changed


def _all_starts(source: str, text: str) -> list[int]:
    return [at for at in range(len(source)) if source.startswith(text, at)]


def _block(text: str) -> list[str]:
    """Return the lines of a block, without what they are indented by in the text."""
    if not text:
        return []
    _, *lines, last = text.split("\n")
    if last.strip() or any(line.strip() and not line.startswith(last) for line in lines):
        raise ValueError(f"the last line of a block must be blank, and indented no more than the others: {text!r}")
    return [line[len(last) :] for line in lines]


def _indented(lines: Iterable[str], indent: str) -> list[str]:
    return [f"{indent}{line}" if line else "" for line in lines]
