"""
A break: one promise of the project, the smallest change that breaks it, and the test that fails then.

A change is made as the simulation's mutants are (`made_in`): the old text must be in the file exactly once. Unlike a
mutant, which is tried on many seeds of the simulation, a break is tried on the one test that is there for the promise.
"""

import enum
from pathlib import Path
from typing import Final

import attrs

from tests.simulation.mutants.mutant import made_in

ROOT: Final = Path(__file__).parents[2]


class Share(enum.StrEnum):
    """What has to be run to catch a break."""

    FAST = "make test"
    """The fast share of the examples, without a control plane."""
    ALL = "all examples"
    PLANE = "control plane"


@attrs.frozen
class Break:
    """
    One break.

    Attributes:
        name: a few words with hyphens.
        file: what is changed, from the project's folder.
        old: in the file exactly once; a block of lines or a part of a line, as in `Edit`.
        new: what stands in its place.
        promise: what is not true any more, as a sentence.
        tests: node ids, or files; at least one of them fails.
        share: what has to be run of them.
    """

    name: str
    file: str
    old: str
    new: str
    promise: str
    tests: tuple[str, ...]
    share: Share = Share.FAST

    def broken(self, source: str) -> str:
        """
        Return the file's text with the break.

        Raises:
            ValueError: the old text is not in it exactly once.
        """
        changed = made_in(source, self.old, self.new)
        if len(changed) != 1:
            raise ValueError(
                f"break {self.name}: this text is {len(changed)} times in {self.file}, not once:\n{self.old}"
            )
        return changed[0]
