"""
Where the lines go: a file that is replaced when it is full, with the last few kept; or standard output.

`decisions.jsonl` is the newest, `decisions.jsonl.1` the one before it. A file gets its name once its beginning is
written, whichever process looks; until then it is `.decisions.jsonl.next`, which no pattern for the others matches.
Blocking: callers are in a thread of their own.
"""

import os
import sys
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import attrs

from neuron_scheduler.errors import ConfigurationError

STDOUT: Final = "-"


class Output(Protocol):
    """Takes lines."""

    @property
    def full(self) -> bool:
        """Whether the next lines belong into another file."""

    def begin(self) -> None:
        """Begin a new file, in place of one that has not even its beginning."""

    def begun(self) -> None:
        """Note that the new file has its beginning, and is worth keeping."""

    def write(self, lines: bytes) -> None:
        """Write lines."""

    def close(self) -> None:
        """Write nothing more."""


@attrs.define(eq=False)
class Stdout:
    """Standard output; it is never full, since nothing can be done about it."""

    full: bool = attrs.field(default=False, init=False)

    def begin(self) -> None:
        """Do nothing."""

    def begun(self) -> None:
        """Do nothing."""

    def write(self, lines: bytes) -> None:
        """Write lines at once."""
        sys.stdout.buffer.write(lines)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Do nothing: others may still write there."""


@attrs.define(eq=False)
class RotatedFile:
    """
    A file of at most `most_bytes`, and as many older ones as make `keep` in all.

    Attributes:
        most_bytes: a file gets no further lines once it has so many; the state at its beginning counts, too.
    """

    path: Path
    most_bytes: int
    keep: int
    _file: BinaryIO | None = attrs.field(default=None, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    @property
    def full(self) -> bool:
        """Whether the next lines belong into another file."""
        return self._bytes >= self.most_bytes

    def begin(self) -> None:
        """
        Rename the files that are there, and begin a new one that only its owner can read: it has pods' names.

        A file whose beginning could not be written is replaced, also by another process: on a full disk, neither tries
        that fail nor restarts may push out the files that are whole.
        """
        self.close()
        self._make_room()
        self._next.unlink(missing_ok=True)
        # Whatever somebody else has put there since then, such as a link to another file, is an error.
        opened = os.open(self._next, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, mode=0o600)
        self._file = os.fdopen(opened, "wb", buffering=0)
        self._bytes = 0

    def begun(self) -> None:
        """Give the new file its name: it has its beginning, and is worth keeping."""
        self._next.replace(self.path)

    def write(self, lines: bytes) -> None:
        """Write lines; they are in the file when this returns."""
        if self._file is None:
            self.begin()
        remaining = memoryview(lines)
        while remaining and self._file is not None:
            written = self._file.write(remaining)
            remaining = remaining[written:]
        self._bytes += len(lines)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _make_room(self) -> None:
        """
        Rename the newest files up to the first name that is free, or up to the oldest file, which is lost.

        Without a newest file, after a try that failed, nothing is renamed.
        """
        names = [self._numbered(number) for number in range(self.keep)]
        free = next((number for number, path in enumerate(names) if not path.exists()), self.keep - 1)
        for number in range(free, 0, -1):
            names[number - 1].replace(names[number])
        self.path.unlink(missing_ok=True)  # where only one file is kept

    @property
    def _next(self) -> Path:
        return self.path.with_name(f".{self.path.name}.next")

    def _numbered(self, number: int) -> Path:
        return self.path if number == 0 else self.path.with_name(f"{self.path.name}.{number}")


def output_to(target: str, *, most_bytes: int, keep: int) -> Output:
    """
    Return where the lines go: a path, or `-` for standard output.

    Raises:
        ConfigurationError: no file can be made there.
    """
    if target == STDOUT:
        return Stdout()
    path = Path(target)
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK)) or path.is_dir():
        raise ConfigurationError(
            f"cannot write the decision journal to {target}: name a file in a folder that exists and can be written"
        )
    return RotatedFile(path, most_bytes, keep)
