"""
Pictures that follow one another on standard output.

On a terminal each is drawn over the one before, on the second screen, so nothing flickers and nothing is left behind;
in a file or a pipe they follow one another. Does not depend on what is drawn.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from neuron_scheduler.telemetry.terminal import terminal, write_out

_ENTER: Final = "\033[?1049h\033[?25l"  # the second screen, without a cursor
_LEAVE: Final = "\033[?25h\033[?1049l"
_BEGIN: Final = "\033[?2026h\033[H"  # shown only when it is complete, by a terminal that knows this
_END_OF_LINE: Final = "\033[K"
_END: Final = "\033[J\033[?2026l"


@contextmanager
def second_screen() -> Iterator[None]:
    """Use the second screen inside the block, if there is a terminal; afterwards it is as it was."""
    if not terminal().interactive:
        yield
        return
    write_out(_ENTER)
    try:
        yield
    finally:
        write_out(_LEAVE)


def draw(lines: Sequence[str]) -> bool:
    """Draw a picture, and return whether somebody still looks; lines are printable, apart from codes for colour."""
    if not terminal().interactive:
        return write_out("".join(f"{line}\n" for line in (*lines, "")))
    return write_out(_BEGIN + "\n".join(f"{line}{_END_OF_LINE}" for line in lines) + _END)
