"""
Keep the results of a function by its argument, in a bounded number of bytes.

`functools.lru_cache` counts entries, and users choose how large an entry is: 4,096 specs of a megabyte are 4 GB. A hit
costs the same as with `lru_cache`. Does not keep a large argument: its result is computed each time.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import attrs

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST: Final = 4 << 20
LONGEST: Final = 16 << 10
OBJECT: Final = 64  # bytes of any object, about


def byte_bounded_memo(*, most: int = MOST, longest: int = LONGEST) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """
    Return the decorator for a pure function of one argument.

    Args:
        most: bytes of all arguments that are kept, about.
        longest: bytes of the largest argument that is kept.
    """

    def decorate(function: Callable[[K], V]) -> Callable[[K], V]:
        return _Results(function, most // 2, longest).__getitem__

    return decorate


class _Results(dict[K, V]):
    """
    Results by argument, in two generations.

    When the young one is full it becomes the old one, and the old one is dropped. A result that is used becomes young.
    """

    __slots__ = ("_bytes", "_function", "_longest", "_most", "_old")

    def __init__(self, function: Callable[[K], V], most: int, longest: int) -> None:
        self._function = function
        self._most = most
        self._longest = longest
        self._bytes = 0
        self._old: dict[K, V] = {}

    def __missing__(self, key: K) -> V:
        value = self._old[key] if key in self._old else self._function(key)
        weight = weight_of(key, self._longest)
        if weight <= self._longest:
            if self._bytes + weight > self._most:
                self._old, self._bytes = dict(self), 0
                self.clear()
            self[key] = value
            self._bytes += weight
        return value


def weight_of(value: Any, most: int) -> int:
    """Return about how many bytes a value of strings, tuples, sets and attrs classes takes; it stops beyond `most`."""
    total, waiting = 0, [value]
    while waiting and total <= most:
        part = waiting.pop()
        total += OBJECT
        if isinstance(part, str | bytes):
            total += len(part)
        elif isinstance(part, tuple | frozenset):
            total += 8 * len(part)
            if total <= most:
                waiting.extend(part)
        elif attrs.has(type(part)):
            waiting.extend(getattr(part, field.name) for field in attrs.fields(type(part)))
    return total
