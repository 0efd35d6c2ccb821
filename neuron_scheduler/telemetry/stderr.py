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

MOST_BYTES: Final = 4 << 20
"""Bytes of lines that wait, about ten thousand lines."""
FLUSH_SECONDS: Final = 1.0
_LINGER_SECONDS: Final = 0.01
"""Seconds for which the thread collects lines: waking it for each line costs more than writing the line."""


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
        self._lines: list[bytes] = []
        self._size = 0  # bytes of the lines that wait or are being written
        self._gap = 0  # lines that were dropped since the last one that was accepted
        self._lock = threading.RLock()  # a finalizer may write a line in the middle of another line's write
        self._changed = threading.Condition(self._lock)
        self._idle = False  # the thread waits for a line
        self._hurry = threading.Event()  # `drain` waits
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
        self._hurry.set()
        with self._lock:
            self._say_gap()
            return self._changed.wait_for(lambda: not self._size, seconds)

    def _put(self, line: bytes) -> None:
        with self._lock:
            most = self._most_bytes // 2 if self._gap else self._most_bytes  # fewer, longer gaps
            if self._size and self._size + len(line) > most:
                self._gap += 1
                self.dropped += 1
                return
            self._say_gap()
            self._accept(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_out, name="stderr", daemon=True)
                self._thread.start()

    def _say_gap(self) -> None:
        """Let the line that says how many lines were dropped stand where they are missing."""
        if self._gap:
            lines, self._gap = self._gap, 0
            self._accept(f"{self.dropped_line(lines)}\n".encode())

    def _accept(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._idle:
            self._changed.notify_all()

    def _write_out(self) -> None:
        """Write waiting lines for as long as the process lives."""
        while True:
            with self._lock:
                self._idle = True
                self._changed.wait_for(lambda: self._lines)
                self._idle = False
            self._hurry.wait(_LINGER_SECONDS)
            self._hurry.clear()
            with self._lock:
                lines, self._lines = self._lines, []
            data = b"".join(lines)
            written = _write(self._descriptor, data)
            with self._lock:
                self._size -= len(data)
                self.dropped += 0 if written else len(lines)
                if not self._lines:
                    self._say_gap()
                self._changed.notify_all()


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
