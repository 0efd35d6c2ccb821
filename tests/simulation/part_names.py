"""
Names of parts of a scenario as a person writes them: `d0-d3,f2` is `d0,d1,d2,d3,f2`.

Refuses to know what the parts are: that is for `reduction`.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final

_RANGE: Final = re.compile(r"([a-z])(\d{1,6})(?:-(?:\1)?(\d{1,6}))?")


def expanded(text: str) -> tuple[str, ...]:
    """
    Return the names in a text.

    Raises:
        ValueError: the text is not a list of names.
    """
    return tuple(name for word in text.split(",") if word for name in _names(word))


def compact(names: Collection[str]) -> str:
    """Return names as a short text, in alphabetical and numerical order."""
    ordered = sorted((name[0], int(name[1:])) for name in names)
    runs: list[tuple[str, int, int]] = []
    for letter, number in ordered:
        if runs and runs[-1][0] == letter and runs[-1][2] == number - 1:
            runs[-1] = (letter, runs[-1][1], number)
        else:
            runs.append((letter, number, number))
    return ",".join(f"{x}{first}" if first == last else f"{x}{first}-{x}{last}" for x, first, last in runs)


def _names(word: str) -> Iterator[str]:
    found = _RANGE.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no part of a scenario; write such as f0,d3-d7,r1,n2")
    first = int(found[2])
    yield from (f"{found[1]}{number}" for number in range(first, int(found[3] or first) + 1))
