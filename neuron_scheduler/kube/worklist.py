"""A bounded queue between code that must not wait and the few tasks that write for it; an item wakes one of them."""

from collections import deque
from typing import Generic, TypeVar

import anyio
import attrs

T = TypeVar("T")


@attrs.define(eq=False)
class Worklist(Generic[T]):
    """
    First in, first out; `put` never waits, `give` and `next` do.

    Attributes:
        capacity: items beyond it are refused, or wait.
    """

    capacity: int
    _items: deque[T] = attrs.field(factory=deque, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _takers: deque[anyio.Event] = attrs.field(factory=deque, init=False)
    _givers: deque[anyio.Event] = attrs.field(factory=deque, init=False)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Append the item; False if the list is full or closed."""
        if self._closed or len(self._items) >= self.capacity:
            return False
        self._items.append(item)
        _wake_one(self._takers)
        return True

    async def give(self, item: T) -> None:
        """Append the item to a list that is not closed, waiting while it is full."""
        while len(self._items) >= self.capacity:
            await _turn(self._givers)
        self.put(item)

    def close(self) -> None:
        """Take nothing more; `next` gives what is left, then None."""
        self._closed = True
        while self._takers:
            _wake_one(self._takers)

    async def next(self) -> T | None:
        """Return the next item, waiting for it; None when the list is closed and empty."""
        while not self._items:
            if self._closed:
                return None
            await _turn(self._takers)
        item = self._items.popleft()
        _wake_one(self._givers)
        return item


def _wake_one(waiting: deque[anyio.Event]) -> None:
    if waiting:
        waiting.popleft().set()


async def _turn(waiting: deque[anyio.Event]) -> None:
    """Wait to be woken; one that is cancelled then passes it on."""
    event = anyio.Event()
    waiting.append(event)
    try:
        await event.wait()
    except BaseException:
        if event.is_set():
            _wake_one(waiting)
        else:
            waiting.remove(event)
        raise
