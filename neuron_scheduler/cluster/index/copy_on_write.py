"""
Values by key that a table and its forks share until one of them changes a value.

A question forks the cluster, and changes a few of a hundred thousand sets; copying all of them would be one long step.
"""

from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

import attrs


class _Copyable(Protocol):
    def copy(self) -> Self: ...


_Key = TypeVar("_Key")
_Value = TypeVar("_Value", bound=_Copyable)


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
