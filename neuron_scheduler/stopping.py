"""
Requests to stop: SIGTERM and SIGINT, handled from the first import to the interpreter's last line.

The event loop's own signal handling begins late and ends early, and outside of it a signal kills: the process would
exit with 143, and might leave the Lease held. Python's handlers also run while one step holds the event loop. Before
the scheduler listens nothing is held, and the process ends at once with 0; after it has ended, the exit code stands.
Refuses to know how to stop: that is for `app`. Imports little, so that nothing slow comes before `install`.
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
    """The requests, in the order in which they came."""

    def __init__(self) -> None:
        self._received: deque[signal.Signals] = deque()
        self._notify: Callable[[], object] = _exit

    def install(self) -> None:
        """Handle the signals from now on; call it in the main thread only."""
        for number in SIGNALS:
            signal.signal(number, self.receive)

    def ignore(self) -> None:
        """Ignore the signals from now on: the interpreter removes handlers before its end, but not this."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def receive(self, number: int, _frame: FrameType | None = None) -> None:
        """Take a signal; called by Python between any two steps of the main thread."""
        self._received.append(signal.Signals(number))
        self._notify()

    @contextmanager
    def listening(self) -> Iterator[AsyncIterator[signal.Signals]]:
        """Give the requests to this event loop; after the block, further ones have no effect."""
        import asyncio

        loop, came = asyncio.get_running_loop(), asyncio.Event()
        self._notify = lambda: loop.call_soon_threadsafe(came.set)
        try:
            yield self._each(came)
        finally:
            self._notify = _ignore

    async def _each(self, came: "asyncio.Event") -> AsyncIterator[signal.Signals]:
        while True:
            while not self._received:
                came.clear()
                await came.wait()
            yield self._received.popleft()


def _exit() -> None:
    os._exit(0)


def _ignore() -> None:
    """Do nothing: the process is about to end."""


REQUESTS: Final = StopRequests()
"""The requests to this process."""
