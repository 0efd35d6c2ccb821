"""If the reader of the log stalls, no writer waits, and a line in the place of lost lines says how many."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator

import pytest

from neuron_scheduler import cli
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.stderr import UnblockedStderr
from tests.support.patience import PATIENCE
from tests.telemetry.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses

log = logs.logger("neuron_scheduler.tests")
PIPE = 1 << 16  # bytes that a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """The ends of a pipe."""
    reader, writer = os.pipe()
    yield reader, writer
    for end in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(end)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the end of a process wait for its last lines for longer than a machine stalls."""
    monkeypatch.setattr(UnblockedStderr.drain, "__defaults__", (PATIENCE,))


def fill(writer: int) -> None:
    """Fill a pipe."""
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * PIPE)
    os.set_blocking(writer, True)


def everything(reader: int, writer: int) -> str:
    """Close the writing end and return the content of the pipe."""
    os.close(writer)
    with open(reader, closefd=False) as file:
        return file.read()


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    """Text is written unchanged, also if it came in pieces or cannot be encoded."""
    stream = UnblockedStderr(pipe[1])
    for i in range(1000):
        stream.write(f"line {i}\n")
    print("in", "pieces", file=stream)
    stream.write("\ud800")
    assert stream.drain(PATIENCE)
    assert everything(*pipe).splitlines() == [*(f"line {i}" for i in range(1000)), "in pieces", "\\ud800"]


def test_nobody_waits_for_a_full_pipe(pipe: tuple[int, int]) -> None:
    """Lines that fit neither into pipe nor buffer are dropped and counted, and a line in their place says so."""
    fill(pipe[1])
    stream = UnblockedStderr(pipe[1], most_bytes=PIPE)
    lines = [f"{i:099}\n" for i in range(1000)]
    for line in lines:
        stream.write(line)
    assert stream.dropped
    assert not stream.drain(seconds=0)
    assert os.read(pipe[0], PIPE) == b"." * PIPE  # the reader is back
    output = b""
    while b"Dropped" not in output:
        output += os.read(pipe[0], PIPE)
    assert stream.drain(PATIENCE)
    stream.write("later\n")
    assert stream.drain(PATIENCE)
    text = output.decode() + everything(*pipe)
    assert text.startswith("".join(lines[: PIPE // 100]))
    assert text.endswith("later\n")
    # On a machine that stalls, the thread takes lines while others are dropped: then there are several gaps.
    counts = re.findall(r"^Dropped (\d+) log lines: stderr did not take them$", text, re.MULTILINE)
    assert sum(map(int, counts)) == stream.dropped


def test_a_closed_stderr_ends_nothing(pipe: tuple[int, int]) -> None:
    """Lines after the reader has closed the pipe are counted."""
    stream = UnblockedStderr(pipe[1])
    os.close(pipe[0])
    stream.write("lost\n")
    assert stream.drain(PATIENCE)
    assert stream.dropped == 1


def test_a_pipe_that_somebody_made_non_blocking(pipe: tuple[int, int]) -> None:
    """Another process may make the shared pipe non-blocking; no line is lost by that."""
    os.set_blocking(pipe[1], False)
    stream = UnblockedStderr(pipe[1])
    lines = [f"{i:099}\n" for i in range(2 * PIPE // 100)]
    for line in lines:
        stream.write(line)
    read = b""
    while len(read) < 100 * len(lines):
        read += os.read(pipe[0], PIPE)
    assert read.decode() == "".join(lines)
    assert stream.dropped == 0


def test_the_gap_is_said_in_the_logs_own_form(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Our lines in both formats, libraries' lines, warnings and prints go through the same buffer."""
    fill(pipe[1])
    stream = UnblockedStderr(pipe[1], most_bytes=PIPE)
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure()
    for _ in range(1000):
        log.info("x" * 100)
    logging.getLogger("aiohttp").warning("lost")
    assert logs.dropped_lines() == stream.dropped > 0
    notice = re.compile(rb'^W.* stderr.py\] "Dropped log lines: stderr did not take them" lines=(\d+)\n', re.MULTILINE)
    output = b""
    while sum(map(int, notice.findall(output))) < stream.dropped:
        output += os.read(pipe[0], PIPE)


@pytest.mark.usefixtures("patient")
def test_the_reason_to_end_is_out_before_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    """The error for a wrong flag is written to stderr although a thread writes it."""
    assert cli.main(["run", "--shceduler-name=x"]) == 2
    assert "did you mean --scheduler-name?" in capfd.readouterr().err
