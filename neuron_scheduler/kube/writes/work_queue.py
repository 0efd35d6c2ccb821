"""
A queue between code that must not wait and the few tasks of its slow work; an item wakes one task.

`DelayingQueue` is client-go's (`util/workqueue`), made fair. A failed item is put back with a due time, so no worker
sleeps, and a namespace with a thousand failing objects delays no other.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

import anyio
import attrs

T = TypeVar("T")
Waiting: TypeAlias = deque[asyncio.Future[None]]  # an anyio.Event costs as much as a decision


def wake_one(waiting: Waiting) -> None:
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


@attrs.define(eq=False, kw_only=True)
class DelayingQueue(Generic[T]):
    """
    Items by due time; among items that are due, the namespaces take turns.

    Attributes:
        clock: seconds, monotonic.
        share: items of one namespace that are worked on at once; fewer than there are workers, or a namespace whose
            requests hang would take all of them.
    """

    clock: Callable[[], float]
    share: int
    _later: list[tuple[float, int, str, T]] = attrs.field(factory=list, init=False)
    _due: dict[str, deque[T]] = attrs.field(factory=dict, init=False)  # by namespace, in the order of their turns
    _busy: Counter[str] = attrs.field(factory=Counter, init=False)
    _tickets: int = attrs.field(default=0, init=False)
    _length: int = attrs.field(default=0, init=False)  # counted: thousands of namespaces may have items
    _idle: Waiting = attrs.field(factory=deque, init=False)  # workers
    closed: bool = attrs.field(default=False, init=False)

    def __len__(self) -> int:
        return self._length

    def add(self, item: T, namespace: str, due: float) -> None:
        """Queue the item; it is worked on at the time `due`, or as soon as possible after it."""
        self._tickets += 1
        self._length += 1
        heapq.heappush(self._later, (due, self._tickets, namespace, item))
        wake_one(self._idle)

    def close(self) -> None:
        """End `serve` once the queue is empty; an item that is being worked on may still be put back."""
        self.closed = True
        self._wake_all()

    async def serve(self, work: Callable[[T], Awaitable[object]]) -> None:
        """Work on one item after the other, until the queue is closed and empty; `work` may put its item back."""
        while (taken := await self._next()) is not None:
            namespace, item = taken
            try:
                await work(item)
            finally:
                self._busy[namespace] -= 1
                if not self._busy[namespace]:
                    del self._busy[namespace]
                if self._due:
                    wake_one(self._idle)  # a worker that waited for its namespace's share
                elif self.closed:
                    self._wake_all()

    async def _next(self) -> tuple[str, T] | None:
        while True:
            self._move_due_items()
            for namespace in self._due:
                if self._busy[namespace] < self.share:
                    return namespace, self._take(namespace)
            if self.closed and not self:
                return None
            with anyio.move_on_after(self._later[0][0] - self.clock() if self._later else None):
                await turn(self._idle)

    def _move_due_items(self) -> None:
        now = self.clock()
        while self._later and self._later[0][0] <= now:
            _, _, namespace, item = heapq.heappop(self._later)
            self._due.setdefault(namespace, deque()).append(item)

    def _take(self, namespace: str) -> T:
        """Remove and return the first item of the namespace; its next turn comes after those of all others."""
        items = self._due.pop(namespace)
        item = items.popleft()
        self._length -= 1
        if items:
            self._due[namespace] = items
        self._busy[namespace] += 1
        if self._due or self._later:
            wake_one(self._idle)  # another worker takes the next item, or waits for its time
        return item

    def _wake_all(self) -> None:
        while self._idle:
            wake_one(self._idle)
