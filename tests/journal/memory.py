"""An output of the journal that keeps the lines of each file, and can fail."""

import math
from collections.abc import Callable

import attrs

from neuron_scheduler.journal.records import Record, record_of


@attrs.define(eq=False)
class Memory:
    """
    The files so far; the last is the newest.

    Attributes:
        room: for so many lines in a file.
        whole: how many files have their beginning.
        meanwhile: what happens, once, in the first call of `begin` or `write`.
    """

    files: list[list[bytes]] = attrs.field(factory=list)
    full: bool = False
    room: float = math.inf
    whole: int = 0
    broken: bool = False
    closed: bool = False
    meanwhile: dict[str, Callable[[], object]] = attrs.field(factory=dict)

    def begin(self) -> None:
        """Begin a new file."""
        self.meanwhile.pop("begin", bool)()
        if self.broken:
            raise OSError(28, "No space left on device")
        self.files.append([])
        self.full = False

    def begun(self) -> None:
        """Count it."""
        self.whole += 1

    def write(self, lines: bytes) -> None:
        """Keep lines."""
        self.meanwhile.pop("write", bool)()
        if self.broken:
            raise OSError(28, "No space left on device")
        self.files[-1] += lines.splitlines(keepends=True)
        self.full = len(self.files[-1]) >= self.room

    def close(self) -> None:
        """Remember it."""
        self.closed = True

    def records(self, number: int = -1) -> list[Record]:
        """Return the records of a file."""
        return [record_of(line) for line in self.files[number]]
