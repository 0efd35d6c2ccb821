"""
Paragraphs for a terminal: wrapped to its width, in colour where it takes it, with nothing in them that controls it.

Does not depend on what the text is about. A command is never wrapped, so that it can be copied.
"""

import textwrap
from collections.abc import Iterator
from typing import Final

import attrs

from neuron_scheduler.telemetry.line_formats import printable

WIDEST: Final = 120
NARROWEST: Final = 40

BOLD: Final = "1"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"


@attrs.frozen
class Paragraphs:
    """Lines of a text; `width` in characters."""

    width: int = 100
    colour: bool = False

    def wrapped(self, text: str, *, first: str = "", rest: str = "") -> Iterator[str]:
        """Yield the lines of a text, indented by `first` and then by `rest`; control characters are shown."""
        yield from textwrap.wrap(
            printable(text),
            max(NARROWEST, min(self.width, WIDEST)),
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def bold(self, text: str) -> str:
        """Return a text that stands out; it must be printable."""
        return self.coloured(text, BOLD)

    def coloured(self, text: str, code: str) -> str:
        """Return a text in a colour, as it is where there is none; it must be printable."""
        return f"\033[{code}m{text}\033[0m" if self.colour else text
