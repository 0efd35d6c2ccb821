"""
A standard error that never makes its writers wait.

The reader of stderr (the container runtime) may stall. A write to the full pipe would block the event loop, including
its signals. So text goes to a bounded buffer, and a thread writes it: non-blocking writes would change the pipe for all
processes that share it. What does not fit is dropped and counted, and a line in its place says how much.
"""

import contextlib
import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

MOST_BYTES: Final = 4 << 20
"""Bytes of text that waits, about ten thousand lines; as many may be on their way to the reader."""
FLUSH_SECONDS: Final = 1.0
_LINGER_SECONDS: Final = 0.01
"""Seconds for which the thread collects lines: waking it for each line costs more than writing the line."""


def _dropped_line(lines: int) -> str:
    return f"Dropped {lines} log lines: stderr did not take them"


class UnblockedStderr(io.TextIOBase):
    """
    Text that a thread writes to a file descriptor; the first text starts the thread.

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
        self._waiting = bytearray()
        self._gap = 0  # lines that were dropped since the thread took what waited
        self._writes = False
        self._changed = threading.Condition()  # reentrant: a finalizer may write in the middle of another write
        self._thread: threading.Thread | None = None

    def fileno(self) -> int:
        return self._descriptor

    def write(self, text: str, /) -> int:
        data = text.encode(errors="backslashreplace")
        with self._changed:
            if self._gap or (self._waiting and len(self._waiting) + len(data) > self._most_bytes):
                self._gap += 1
                self.dropped += 1
                return len(text)
            self._waiting += data
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_out, name="stderr", daemon=True)
                self._thread.start()
        return len(text)

    def drain(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything is written, for so many seconds at most; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._waiting or self._writes), seconds)

    def _write_out(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
            time.sleep(_LINGER_SECONDS)
            with self._changed:
                if self._gap:
                    self._waiting += f"{self.dropped_line(self._gap)}\n".encode()
                data, self._waiting, self._gap, self._writes = bytes(self._waiting), bytearray(), 0, True
            written = _write(self._descriptor, data)
            with self._changed:
                self._writes = False
                self.dropped += 0 if written else data.count(b"\n")
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
