"""
A standard error that never makes its writers wait.

The reader of the process's stderr (the container runtime) may stall. Then the pipe is full, and a write would block the
event loop, including its signals. So lines go to a bounded buffer, and a thread writes them. Non-blocking writes would
need no thread, but they change the pipe or terminal for all processes that share it. Lines that do not fit into the
buffer are dropped and counted, and a line in their place says how many. Does not lose the last lines: `drain` writes
them at the end, in a second at most.
"""

import contextlib
import io
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

import attrs

MOST_BYTES: Final = 4 << 20
"""Bytes of lines that wait, about ten thousand lines."""
FLUSH_SECONDS: Final = 1.0
_AT_ONCE: Final = 1 << 16
"""Bytes of one write, which is a few hundred lines: while the loop is busy, the thread runs only every 5 ms."""

_LINGER_SECONDS: Final = 0.01
"""Seconds for which the thread collects lines: waking it for each line costs more than writing the line."""


@attrs.define(eq=False)
class _Gap:
    """Takes the place of dropped lines in the buffer."""

    lines: int = 0


def _dropped_line(lines: int) -> str:
    return f"Dropped {lines} log lines: stderr did not take them"


class UnblockedStderr(io.TextIOBase):
    """
    Text that is written to a file descriptor, line by line, by a thread that is started with the first line.

    Attributes:
        dropped: lines that could not be written.
        dropped_line: returns the line that says how many were dropped.
    """

    encoding = "utf-8"

    def __init__(self, descriptor: int, most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self.dropped = 0
        self.dropped_line: Callable[[int], str] = _dropped_line
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._partial = ""
        self._waiting: list[bytes | _Gap | threading.Event] = []
        self._bytes = 0
        self._gap: _Gap | None = None
        self._full = False
        self._lock = threading.RLock()  # a finalizer may write a line in the middle of another line's write
        self._bell = threading.Lock()  # held while there is nothing to write
        self._bell.acquire()
        self._hurry = threading.Lock()  # held unless `drain` waits
        self._hurry.acquire()
        self._idle = True
        self._thread: threading.Thread | None = None

    def fileno(self) -> int:
        """Return the descriptor itself, for other processes."""
        return self._descriptor

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str, /) -> int:
        """Accept text; it is written once its line is complete."""
        if not text.endswith("\n"):
            self._partial += text
            return len(text)
        if self._partial:
            text, self._partial = self._partial + text, ""
        self._put(text.encode(errors="backslashreplace"))
        return len(text)

    def drain(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all lines are written, for so many seconds at most; return whether they are."""
        if self._partial:
            self.write("\n")
        if self._thread is None:
            return True
        done = threading.Event()
        with self._lock:
            self._waiting.append(done)
            if self._hurry.locked():
                self._hurry.release()
        self._ring()
        return done.wait(seconds)

    def _put(self, line: bytes) -> None:
        with self._lock:
            most = self._most_bytes // 2 if self._full else self._most_bytes  # fewer, longer gaps
            self._full = self._bytes > 0 and self._bytes + len(line) > most
            if self._full:
                self._drop()
                return
            self._gap = None
            self._bytes += len(line)
            self._waiting.append(line)
        if self._idle:
            self._ring()

    def _drop(self) -> None:
        if self._gap is None:
            self._gap = _Gap()
            self._waiting.append(self._gap)
        self._gap.lines += 1
        self.dropped += 1

    def _ring(self) -> None:
        """Wake the thread, if it is idle."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_out, name="stderr", daemon=True)
                self._thread.start()
            if self._idle:
                self._idle = False
                self._bell.release()

    def _write_out(self) -> None:
        """Write waiting lines for as long as the process lives."""
        while True:
            self._bell.acquire()
            self._hurry.acquire(timeout=_LINGER_SECONDS)
            while batch := self._taken():
                for chunk, lines, size in _chunks(batch, self.dropped_line):
                    written = not chunk or _write(self._descriptor, chunk)
                    with self._lock:
                        self._bytes -= size
                        if not written:
                            self.dropped += lines

    def _taken(self) -> list[bytes | _Gap | threading.Event]:
        with self._lock:
            batch, self._waiting, self._gap = self._waiting, [], None
            self._idle = not batch
            return batch


def _chunks(
    batch: list[bytes | _Gap | threading.Event], dropped_line: Callable[[int], str]
) -> Iterator[tuple[bytes, int, int]]:
    """Yield whole lines together, with their number and the bytes that they took in the buffer."""
    chunk, size = list[bytes](), 0
    for item in batch:
        if isinstance(item, threading.Event):
            yield b"".join(chunk), len(chunk), size
            chunk, size = [], 0
            item.set()
            continue
        line = item if isinstance(item, bytes) else f"{dropped_line(item.lines)}\n".encode()
        if chunk and size + len(line) > _AT_ONCE:
            yield b"".join(chunk), len(chunk), size
            chunk, size = [], 0
        chunk.append(line)
        size += len(item) if isinstance(item, bytes) else 0
    yield b"".join(chunk), len(chunk), size


def _write(descriptor: int, data: bytes) -> bool:
    """Write all of the data, however long it takes; return whether that succeeded."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another process has made the shared pipe non-blocking
            select.select((), (descriptor,), ())
        except OSError:
            return False
    return True


@contextlib.contextmanager
def unblocked_stderr() -> Iterator[None]:
    """Replace sys.stderr inside the `with` block by one that never waits; drain it when the block ends."""
    try:
        stream = UnblockedStderr(sys.stderr.fileno())
    except (OSError, AttributeError):  # no file at all: a test's buffer, or a closed stderr
        yield
        return
    with contextlib.redirect_stderr(stream):
        try:
            yield
        finally:
            stream.drain()
