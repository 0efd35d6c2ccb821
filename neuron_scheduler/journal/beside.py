"""
Blocking calls, one after the other, in a thread that does not keep the process from its end.

A disk or the reader of a pipe may hang, and then nothing ends a write. The interpreter waits at its end for every other
kind of thread, also for anyio's. Refuses to know what is called.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

import attrs

_Call: TypeAlias = tuple[Callable[[], object], "asyncio.Future[None]"]


@attrs.define(eq=False)
class Beside:
    """Calls functions in the thread, which is started with the first call."""

    _calls: SimpleQueue[_Call] = attrs.field(factory=SimpleQueue, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)

    async def call(self, function: Callable[[], object]) -> None:
        """Wait until the function has returned, and raise what it raises; cancelled, leave it to the thread."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="journal", daemon=True)
            thread.start()
            self._thread = thread
        done = asyncio.get_running_loop().create_future()
        self._calls.put((function, done))
        await done

    def _work(self) -> None:
        while True:
            function, done = self._calls.get()
            error: Exception | None = None
            try:
                function()
            except Exception as raised:  # noqa: BLE001 - it is raised in the caller
                error = raised
            with suppress(RuntimeError):  # the caller's event loop is closed
                done.get_loop().call_soon_threadsafe(partial(_settle, done, error))


def _settle(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
