"""
Standard output for people: its width, whether it takes colour, paragraphs for it, and a reader who may leave early.

Colour is used on a terminal only, and never where NO_COLOR is set (no-color.org) or TERM is `dumb`.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

NOT_ON_A_TERMINAL: Final = 100
"""Characters of a line in a file or a pipe."""

WIDEST: Final = 120
NARROWEST: Final = 40
INDENT: Final = "  "

BOLD: Final = "1"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"


def write_out(text: str) -> None:
    """
    Write to standard output; after `| head` nobody reads it, and the rest goes to the null device.

    Raises:
        ConfigurationError: it cannot be written for another reason, such as a full disk.
    """
    try:
        sys.stdout.write(_writable(text))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise ConfigurationError(f"the output cannot be written: {error.strerror or error}") from error


def _writable(text: str) -> str:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


@attrs.frozen
class Paragraphs:
    """Lines of a text; `width` in characters."""

    width: int = NOT_ON_A_TERMINAL
    colour: bool = False

    def wrap(self, text: str, *, first: str = "", rest: str = "", code: str = "") -> Iterator[str]:
        """Yield the lines of a text, indented by `first` and then by `rest`; control characters are shown."""
        lines = textwrap.wrap(
            printable(text),
            max(NARROWEST, min(self.width, WIDEST)),
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from (self.in_colour(line, code) for line in lines)

    def indent(self, text: str, depth: int = 1, *, code: str = "") -> Iterator[str]:
        return self.wrap(text, first=INDENT * depth, rest=INDENT * depth, code=code)

    def section(self, title: str) -> Iterator[str]:
        yield ""
        yield from self.wrap(title, code=BOLD)

    def notes(self, sentences: Sequence[str]) -> Iterator[str]:
        if sentences:
            yield ""
        for sentence in sentences:
            yield from self.wrap(f"Note: {sentence}", rest=INDENT)

    def in_colour(self, text: str, code: str) -> str:
        """Return a printable text in a colour; as it is where there is none, or without a code."""
        return f"\033[{code}m{text}\033[0m" if self.colour and code else text


def terminal() -> Paragraphs:
    if not sys.stdout.isatty():
        return Paragraphs()
    colour = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return Paragraphs(shutil.get_terminal_size((NOT_ON_A_TERMINAL, 24)).columns, colour)
