"""
Reads files of the journal.

A last line that is cut off, as after a crash, ends the file; any other bad line is an error.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.journal.records import Record, Started, UnreadableLineError, record_of


def records_in(paths: Sequence[str]) -> Iterator[Record]:
    """
    Yield the records of all files, the oldest file first.

    Raises:
        ConfigurationError: a file cannot be read, is no journal, or has a line that is none of its records.
    """
    for path in sorted(paths, key=_started):
        yield from _records(path)


def _started(path: str) -> float:
    first = next(_records(path), None)
    if not isinstance(first, Started):
        raise ConfigurationError(f"{path} is no decision journal: its first line is not the head of one")
    return first.at


def _records(path: str) -> Iterator[Record]:
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield record_of(line)
                except UnreadableLineError as error:
                    raise ConfigurationError(f"{path}, line {number}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
