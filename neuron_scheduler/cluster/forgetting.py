"""
What to forget where only so much is remembered.

Whoever remembers says up to which position of its log each thing is true, which is about when it was last asked for.
To forget strictly what was asked longest ago is the worst choice where things are asked in turn and are a few more than
there is room for: each is then gone just before it is asked again.
"""

from collections.abc import Hashable
from typing import Protocol, TypeVar


class _Positioned(Protocol):
    """Something that is true up to a position in a log."""

    @property
    def position(self) -> int:
        """The position."""


_Key = TypeVar("_Key", bound=Hashable)
_Thing = TypeVar("_Thing", bound=_Positioned)


def make_room(remembered: dict[_Key, _Thing], most: int) -> None:
    """
    Forget a quarter if there is as much as there may be: every third of all but those asked last.

    A quarter at once, since to look for what is old costs more than to forget it.
    """
    if len(remembered) >= most:
        by_age = sorted(remembered, key=lambda key: remembered[key].position)
        for key in by_age[: -(-most * 3 // 4) : 3]:
            del remembered[key]
