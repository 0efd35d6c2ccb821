"""
A resource version as a number, where two of them are compared.

Upstream's volume binder does that, too. Refuses to guess: a proxy may have damaged the text, and what is no number
cannot be compared.
"""

from typing import Final

MOST_DIGITS: Final = 20  # of a uint64


def as_number(version: str) -> int | None:
    """Return the number; None if the text is none that an API server sends."""
    return int(version) if len(version) <= MOST_DIGITS and version.isascii() and version.isdigit() else None
