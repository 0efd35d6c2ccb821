"""
Log lines in klog's formats, text or JSON; lines of libraries come through the standard library's logging.

A line is a constant message and key/value pairs, so that it can be searched and counted:

    log = logs.logger(__name__)
    log.info("Successfully bound pod to node", pod="default/a", node="n1", evaluatedNodes=16)
    log.v(4).info("Filtered nodes", nodes=names)

Values are never part of the message, so no value can forge a second line.
"""

import contextlib
import logging
import math
import os
import sys
import time
import traceback as tracebacks
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TextIO

import attrs

from neuron_scheduler.telemetry.line_formats import json_line, klog_line, sentence
from neuron_scheduler.telemetry.stderr import UnblockedStderr

ROOT: Final = "neuron_scheduler"
MOST_VERBOSE: Final = 10
REMIND: Final = 600.0  # seconds after which a lasting failure is logged again

_Form = Callable[[int, float, str, str, Mapping[str, Any] | None], str]


@attrs.frozen
class Logger:
    """
    Writes the lines of one module, at one verbosity.

    Pairs are keyword arguments, written in the order given. Strings are quoted, numbers and lists are JSON, an
    exception is its sentence. `exc` adds the pair `err`, as klog names it.
    """

    _log: logging.Logger
    _verbosity: int = 0

    def v(self, verbosity: int) -> "Logger":
        """Return the logger whose `info` lines appear from `-v=<verbosity>` on."""
        return Logger(self._log, min(verbosity, MOST_VERBOSE))

    @property
    def is_enabled(self) -> bool:
        """Whether `info` writes anything: ask before computing expensive pairs."""
        return self._log.isEnabledFor(logging.INFO - self._verbosity)

    def info(self, message: str, /, *, v: int | None = None, **pairs: Any) -> None:
        """Write a line of severity I, at verbosity `v` if it is given."""
        level = logging.INFO - (self._verbosity if v is None else min(v, MOST_VERBOSE))
        if self._log.isEnabledFor(level):
            self._write(level, message, pairs)

    def warning(self, message: str, /, *, exc: BaseException | None = None, **pairs: Any) -> None:
        """Write a line of severity W: something is wrong, and the scheduler copes."""
        self._write(logging.WARNING, message, _with_error(pairs, exc))

    def error(
        self, message: str, /, *, exc: BaseException | None = None, traceback: bool = False, **pairs: Any
    ) -> None:
        """Write a line of severity E; `traceback` is for unexpected exceptions, whose place in the code matters."""
        self._write(logging.ERROR, message, _with_error(pairs, exc, traceback=traceback))

    def fatal(self, message: str, /, *, exc: BaseException | None = None, **pairs: Any) -> None:
        """Write a line of severity F with the exception's traceback: the process is about to end. Does not end it."""
        self._write(logging.CRITICAL, message, _with_error(pairs, exc, traceback=True))

    def _write(self, level: int, message: str, pairs: Mapping[str, Any]) -> None:
        """Write to the target of `configure`; before it is called, through `logging`."""
        if _output is None:
            self._log.log(level, message, extra={"pairs": pairs}, stacklevel=3)
            return
        caller = sys._getframe(2)  # noqa: SLF001 - as `logging` finds it
        _output.write(level, time.time(), _place(caller.f_code.co_filename, caller.f_lineno), message, pairs)


@attrs.define(eq=False)
class Once:
    """
    Returns whether something happens for the first time, so that a warning about an object is written once.

    It keeps the most recent subjects, each with a limited number of details; dropped ones count as new.
    """

    _limit: int = 10_000
    _details: int = 100
    _seen: dict[Hashable, set[Hashable]] = attrs.field(factory=dict, init=False)

    def __call__(self, subject: Hashable, detail: Hashable = None) -> bool:
        known = self._seen[subject] = self._seen.pop(subject, set())  # moves it to the end
        if len(self._seen) > self._limit:
            del self._seen[next(iter(self._seen))]
        if detail in known:
            return False
        if len(known) >= self._details:
            known.clear()
        known.add(detail)
        return True

    def forget(self, subject: Hashable) -> None:
        self._seen.pop(subject, None)


@attrs.define(eq=False)
class Trouble:
    """
    Writes the first of equal failures, a reminder every ten minutes while they last, and the recovery.

    Attributes:
        ends: the line of the recovery; empty for none.
        clock: monotonic seconds.
        verbosity: None for lines of severity W.
        pairs: part of every line.
    """

    log: Logger
    ends: str
    clock: Callable[[], float]
    verbosity: int | None = None
    pairs: Mapping[str, Any] = attrs.field(factory=dict)
    _written_at: dict[Hashable, float] = attrs.field(factory=dict, init=False)

    def report(self, message: str, error: Exception | None = None, *, kind: Hashable = None) -> None:
        """Write a failure, unless one with this message and kind was written in the last ten minutes."""
        now = self.clock()
        if now - self._written_at.get((message, kind), -math.inf) < REMIND:
            return
        self._written_at[message, kind] = now
        level = logging.WARNING if self.verbosity is None else logging.INFO - self.verbosity
        if self.verbosity is None or self.log.v(self.verbosity).is_enabled:
            self.log._write(level, message, _with_error(dict(self.pairs), error))  # noqa: SLF001 - names the caller's line

    def report_end(self) -> None:
        if self._written_at:
            self._written_at.clear()
            if self.ends:
                self.log._write(logging.INFO, self.ends, self.pairs)  # noqa: SLF001 - as above


def logger(module: str) -> Logger:
    return Logger(logging.getLogger(module))


def configure(*, verbosity: int = 2, logging_format: str = "text", stream: TextIO | None = None) -> None:
    """Send the process's log lines to a stream (stderr, as klog does); `logging_format` is `text` or `json`."""
    global _output  # noqa: PLW0603 - as the root logger is
    form = json_line if logging_format == "json" else klog_line
    _output = _Output(sys.stderr if stream is None else stream, form)
    if isinstance(sys.stderr, UnblockedStderr):
        sys.stderr.dropped_line = partial(_dropped_line, form)
    logging.basicConfig(level=logging.WARNING, handlers=[_output], force=True)
    logging.getLogger(ROOT).setLevel(logging.INFO - min(verbosity, MOST_VERBOSE))
    logging.captureWarnings(capture=True)


def dropped_lines() -> int:
    return sys.stderr.dropped if isinstance(sys.stderr, UnblockedStderr) else 0


def _with_error(pairs: dict[str, Any], exc: BaseException | None, *, traceback: bool = False) -> dict[str, Any]:
    if exc is None:
        return pairs
    pairs = {"err": sentence(exc), **pairs}
    if traceback:
        pairs["stack"] = "".join(tracebacks.format_exception(exc)).rstrip()
    return pairs


@lru_cache(maxsize=1024)
def _place(path: str, line: int) -> str:
    return f"{os.path.basename(path)}:{line}"  # noqa: PTH119 - as `logging` does


def _dropped_line(form: _Form, lines: int) -> str:
    return form(
        logging.WARNING, time.time(), "stderr.py", "Dropped log lines: stderr did not take them", {"lines": lines}
    )


class _Output(logging.Handler):
    """The target of all lines: ours come directly, at a third of the cost of `logging`, and libraries' through it."""

    def __init__(self, stream: TextIO, form: _Form) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter())
        self._stream = stream
        self._form = form

    def emit(self, record: logging.LogRecord) -> None:
        place = _place(record.pathname, record.lineno)
        self.write(record.levelno, record.created, place, self.format(record), None)

    def write(self, level: int, created: float, place: str, message: str, pairs: Mapping[str, Any] | None) -> None:
        """Write a line; an error, such as a full disk, is ignored."""
        with contextlib.suppress(OSError):
            self._stream.write(f"{self._form(level, created, place, message, pairs)}\n")
            self._stream.flush()


_output: _Output | None = None
