"""
The real scheduler as a child process: starts it, passes its log on line by line, and stops it.
"""

import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.abc
import attrs
from anyio.streams.text import TextReceiveStream

_GRACE: Final = 10.0  # seconds between SIGTERM and SIGKILL

# Ctrl-C in a terminal is for the demo alone, which then ends its schedulers in good order.
_OWN_SESSION: Final[dict[str, Any]] = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.DEVNULL,
    "start_new_session": True,
}


@attrs.define(eq=False)
class SchedulerProcess:
    """A scheduler that runs until its block is left; `write` gets each line of its log."""

    _process: anyio.abc.Process
    _write: Callable[[str], None]

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until it ends by itself, and return its exit code."""
        return await self._process.wait()

    async def listen(self) -> None:
        """Read its log, so that it never blocks on a full pipe."""
        if self._process.stderr is None:
            return
        rest = ""
        async for chunk in TextReceiveStream(self._process.stderr, errors="replace"):
            *lines, rest = (rest + chunk).split("\n")
            for line in lines:
                self._write(line)
        if rest:
            self._write(rest)

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if it has not ended after `_GRACE`."""
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._process.terminate()
            with anyio.move_on_after(_GRACE):
                await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running(
    argv: Sequence[str], environment: Mapping[str, str], write: Callable[[str], None]
) -> AsyncIterator[SchedulerProcess]:
    """Start it; at the end of the block it has ended, and its whole log was written."""
    with anyio.CancelScope(shield=True):  # a start that is cut off would leave a process behind
        started = await anyio.open_process(argv, env=environment, **_OWN_SESSION)
    async with started as process:
        scheduler = SchedulerProcess(process, write)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.listen)
            try:
                yield scheduler
            finally:
                await scheduler.stop()
