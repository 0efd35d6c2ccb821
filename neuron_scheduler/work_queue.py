"""A bounded queue between code that must not wait and the few tasks that do its slow work; an item wakes one task."""

import asyncio
from collections import deque
from typing import Generic, TypeAlias, TypeVar

import attrs

T = TypeVar("T")
Waiting: TypeAlias = deque[asyncio.Future[None]]  # an anyio.Event costs as much as a decision


@attrs.define(eq=False)
class WorkQueue(Generic[T]):
    """
    First in, first out; `put` never waits, `give` and `next` do.

    Attributes:
        capacity: items beyond it are refused, or wait.
    """

    capacity: int
    _items: deque[T] = attrs.field(factory=deque, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _takers: Waiting = attrs.field(factory=deque, init=False)
    _givers: Waiting = attrs.field(factory=deque, init=False)

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> bool:
        """Append the item; return False if the queue is full or closed."""
        if self._closed or len(self._items) >= self.capacity:
            return False
        self.push(item)
        return True

    def push(self, item: T) -> None:
        """Append the item even if the queue is full: the caller limits the number of items."""
        self._items.append(item)
        if self._takers:
            wake_one(self._takers)

    async def give(self, item: T) -> None:
        """Append the item to a queue that is not closed; wait while it is full."""
        while len(self._items) >= self.capacity:
            await turn(self._givers)
        self.put(item)

    def close(self) -> None:
        """Accept no more items; `next` returns those that are left, then None."""
        self._closed = True
        while self._takers:
            wake_one(self._takers)

    async def next(self) -> T | None:
        """Wait for the next item and return it; None when the queue is closed and empty."""
        while not self._items:
            if self._closed:
                return None
            await turn(self._takers)
        item = self._items.popleft()
        if self._givers:
            wake_one(self._givers)
        return item


def wake_one(waiting: Waiting) -> None:
    """Wake the task that has waited longest, if there is one."""
    while waiting:
        woken = waiting.popleft()
        if not woken.done():  # else it has just been cancelled
            woken.set_result(None)
            return


async def turn(waiting: Waiting) -> None:
    """Wait to be woken; a task that is cancelled when it was woken wakes the next one."""
    woken = asyncio.get_running_loop().create_future()
    waiting.append(woken)
    try:
        await woken
    except BaseException:
        if not woken.cancelled():
            wake_one(waiting)
        elif woken in waiting:
            waiting.remove(woken)
        raise
