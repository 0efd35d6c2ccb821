"""
What to forget where only so much is remembered.

To forget strictly what was asked longest ago is the worst choice where things are asked in turn and are a few more than
there is room for: each is then gone just before it is asked again.
"""

from collections.abc import Hashable
from typing import Protocol, TypeVar


class _Asked(Protocol):
    """Something that is asked for from time to time."""

    @property
    def asked(self) -> int:
        """When it was asked for last: any number that grows."""


_Key = TypeVar("_Key", bound=Hashable)
_Thing = TypeVar("_Thing", bound=_Asked)


def make_room(remembered: dict[_Key, _Thing], most: int) -> None:
    """
    Forget a quarter if there is as much as there may be: every third of all but those asked last.

    A quarter at once, since to look for what is old costs more than to forget it.
    """
    if len(remembered) >= most:
        by_age = sorted(remembered, key=lambda key: remembered[key].asked)
        for key in by_age[: -(-most * 3 // 4) : 3]:
            del remembered[key]
