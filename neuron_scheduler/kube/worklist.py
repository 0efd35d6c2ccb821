"""A bounded queue between code that must never wait and the few tasks that write for it."""

from collections import deque
from typing import Generic, TypeVar

import anyio
import attrs

T = TypeVar("T")


@attrs.define(eq=False)
class Worklist(Generic[T]):
    """
    First in, first out; `put` never waits, `next` does.

    Attributes:
        capacity: items beyond it are refused.
    """

    capacity: int
    _items: deque[T] = attrs.field(factory=deque, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _wake: anyio.Event | None = attrs.field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Append the item; False if the list is full or closed."""
        if self._closed or len(self._items) >= self.capacity:
            return False
        self._items.append(item)
        self._notify()
        return True

    def close(self) -> None:
        """Take nothing more; `next` gives what is left, then None."""
        self._closed = True
        self._notify()

    async def next(self) -> T | None:
        """Return the next item, waiting for it; None when the list is closed and empty."""
        while not self._items:
            if self._closed:
                return None
            if self._wake is None:
                self._wake = anyio.Event()
            await self._wake.wait()
        return self._items.popleft()

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake.set()
            self._wake = None
