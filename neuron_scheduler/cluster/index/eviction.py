"""
Which entries of a bounded cache to evict.

To evict only the least recently used ones would be the worst choice if slightly more entries are used in turn than the
cache can keep: each entry would be evicted just before its next use.
"""

from collections.abc import Hashable
from typing import Protocol, TypeVar


class _Entry(Protocol):
    """An entry of a cache."""

    @property
    def asked(self) -> int:
        """When it was last asked for: any number that grows."""


_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value", bound=_Entry)


def evict_if_full(cache: dict[_Key, _Value], most: int) -> None:
    """
    Evict a quarter of the entries if there are `most` of them: every third, apart from the most recently used quarter.

    A quarter at once, because sorting by age costs more than evicting.
    """
    if len(cache) >= most:
        by_age = sorted(cache, key=lambda key: cache[key].asked)
        for key in by_age[: -(-most * 3 // 4) : 3]:
            del cache[key]
