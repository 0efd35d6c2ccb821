"""
Requests to stop: SIGTERM and SIGINT, handled from the first import until the interpreter ends.

The event loop handles signals only while it runs. Before and after that a signal would kill the process with 143, and
might not release the Lease. Python's handlers also run while one step blocks the event loop. Before the scheduler
listens there is no Lease yet, and the process ends at once with 0. After the scheduler has ended, a signal does not
change the exit code. This module imports little, so that nothing slow comes before `install`.
"""

import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequests:
    """The requests, in the order of their arrival."""

    def __init__(self) -> None:
        self._received: deque[signal.Signals] = deque()
        self._notify: Callable[[], object] | None = _exit

    def install(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self.receive)

    def ignore(self) -> None:
        """Ignore the signals from now on: the interpreter removes handlers before its end, but not this."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def receive(self, number: int, _frame: FrameType | None = None) -> None:
        """Accept a signal; called by Python between any two steps of the main thread."""
        self._received.append(signal.Signals(number))
        if self._notify is not None:
            self._notify()

    @contextmanager
    def listen(self) -> Iterator[AsyncIterator[signal.Signals]]:
        """Give the requests to this event loop; after the block, further ones have no effect."""
        import asyncio

        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        self._notify = lambda: loop.call_soon_threadsafe(arrived.set)
        try:
            yield self._arrivals(arrived)
        finally:
            self._notify = None  # the process is about to end

    async def _arrivals(self, arrived: "asyncio.Event") -> AsyncIterator[signal.Signals]:
        while True:
            while not self._received:
                arrived.clear()
                await arrived.wait()
            yield self._received.popleft()


def _exit() -> None:
    os._exit(0)


REQUESTS: Final = StopRequests()
"""The requests to this process."""
