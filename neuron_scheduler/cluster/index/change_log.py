"""
A log of changes from which several readers catch up, each from where it stopped.

A position is a number of changes. Old changes are dropped: a reader whose position the log no longer covers starts
again from the table itself.
"""

from collections.abc import Sequence
from typing import Generic, Self, TypeVar

import attrs

_Change = TypeVar("_Change")


@attrs.define(eq=False)
class ChangeLog(Generic[_Change]):
    """
    The latest changes, in the order in which they were made.

    Attributes:
        start: the position of the oldest change that is kept.
        end: how many changes there have been, kept or not.
    """

    start: int = 0
    end: int = 0
    _changes: list[_Change] = attrs.field(factory=list)

    def append(self, change: _Change, *, most: int | None = None) -> None:
        """Add a change; if there are then more than `most`, the older ones are dropped until half as many are left."""
        self._changes.append(change)
        self.end += 1
        if most is not None and self.end - self.start > most:
            self.drop_before(self.end - most // 2)

    def skip(self) -> None:
        """Count a change that is not kept; no position before it can be read from."""
        self._changes.clear()
        self.end += 1
        self.start = self.end

    def covers(self, position: int) -> bool:
        """Return whether all changes since a position are kept."""
        return position >= self.start

    def changes_since(self, position: int, most: int | None = None) -> Sequence[_Change]:
        """Return the first `most` changes since a position that the log covers, or all of them."""
        first = position - self.start
        return self._changes[first : None if most is None else first + most]

    def drop_before(self, position: int) -> None:
        del self._changes[: position - self.start]
        self.start = position

    def fork(self) -> Self:
        return type(self)(self.start, self.end, list(self._changes))
