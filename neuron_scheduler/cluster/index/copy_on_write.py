"""
Values by key that a table and its forks share until one of them changes a value.

A question forks the cluster, and changes a few of a hundred thousand sets; copying all of them would be one long step.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Final, Generic, Protocol, Self, TypeVar

import attrs

PARTS: Final = 8192
"""Of a dictionary with an entry for each pod: a copy of all parts, or of one, is short."""
MANY: Final = 1 << 14
"""Entries from which a dictionary is kept in parts: the pods of a DaemonSet are as many as the nodes."""


class _Copyable(Protocol):
    def copy(self) -> Self: ...


_Key = TypeVar("_Key")
_Value = TypeVar("_Value", bound=_Copyable)
_Item = TypeVar("_Item")


@attrs.define(eq=False)
class CopyOnWrite(Generic[_Key, _Value]):
    """
    Values by key; they may be such tables themselves.

    Attributes:
        by_key: to read only.
    """

    by_key: dict[_Key, _Value] = attrs.field(factory=dict)
    _own: set[_Key] | None = None  # whose values no copy has; None before the first copy: all

    def to_change(self, key: _Key, new: Callable[[], _Value]) -> _Value:
        """Return a value that may be changed, a new one if there is none."""
        value = self.by_key.get(key)
        if value is None:
            value = self.by_key[key] = new()
        elif self._own is None or key in self._own:
            return value
        else:
            value = self.by_key[key] = value.copy()
        if self._own is not None:
            self._own.add(key)
        return value

    def remove(self, key: _Key) -> None:
        del self.by_key[key]
        if self._own is not None:
            self._own.discard(key)

    def copy(self) -> Self:
        """Return an independent copy; from now on, a value is copied when one of the two changes it."""
        # The copy gets the old dictionary: after many removals the first copy is slow, and copies of a copy are fast.
        by_key, self.by_key = self.by_key, dict(self.by_key)
        self._own = set()
        return type(self)(by_key, set())


@attrs.define(eq=False)
class SharedDict(Collection[_Key], Generic[_Key, _Item]):
    """A dictionary in parts, each of which is shared with the copies until one of them changes it."""

    _parts: list[dict[_Key, _Item]] = attrs.field(factory=lambda: [{}] * PARTS)
    _count: int = 0
    _own: set[int] = attrs.field(factory=set, init=False)  # parts that no copy has

    def get(self, key: _Key) -> _Item | None:
        return self._parts[hash(key) % PARTS].get(key)

    def __getitem__(self, key: _Key) -> _Item:
        return self._parts[hash(key) % PARTS][key]

    def __setitem__(self, key: _Key, item: _Item) -> None:
        number = hash(key) % PARTS
        part = self._parts[number] if number in self._own else self._to_change(number)
        self._count += key not in part
        part[key] = item

    def pop(self, key: _Key, default: None) -> _Item | None:
        if key not in self:
            return default
        self._count -= 1
        return self._to_change(hash(key) % PARTS).pop(key)

    def values(self) -> Iterator[_Item]:
        return chain.from_iterable(map(dict.values, self._parts))

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) % PARTS]

    def __iter__(self) -> Iterator[_Key]:
        return chain.from_iterable(self._parts)

    def __len__(self) -> int:
        return self._count

    def copy(self) -> Self:
        self._own = set()
        return type(self)([*self._parts], self._count)

    def _to_change(self, number: int) -> dict[_Key, _Item]:
        if number not in self._own:
            self._own.add(number)
            self._parts[number] = self._parts[number].copy()
        return self._parts[number]
