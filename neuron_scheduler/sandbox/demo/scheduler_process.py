"""
The real scheduler as a child process: starts it, keeps the end of its log, and stops it.
"""

import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.abc
import attrs
from anyio.streams.text import TextReceiveStream

_GRACE: Final = 10.0  # seconds between SIGTERM and SIGKILL

# Ctrl-C in a terminal is for the demo alone, which then ends its scheduler in good order.
_OWN_SESSION: Final[dict[str, Any]] = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.DEVNULL,
    "start_new_session": True,
}


def command(url: str, scheduler_name: str) -> list[str]:
    """Return `neuron-scheduler run` against an API server at `url`, with leader election and without any port."""
    return [
        sys.executable,
        "-m",
        "neuron_scheduler",
        "run",
        f"--master={url}",
        f"--scheduler-name={scheduler_name}",
        "--leader-elect=true",
        "--port=0",
        "--secure-port=0",
        "--v=2",
    ]


@attrs.define(eq=False)
class SchedulerProcess:
    """A scheduler that runs until its block is left."""

    _process: anyio.abc.Process
    _lines: deque[str] = attrs.field(factory=lambda: deque(maxlen=50))

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.returncode

    def last_words(self) -> str:
        """Return the end of its log."""
        return "\n".join(self._lines)

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
            self._lines.extend(lines)

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
async def running(argv: Sequence[str]) -> AsyncIterator[SchedulerProcess]:
    """Start it; at the end of the block it has ended."""
    async with await anyio.open_process(argv, **_OWN_SESSION) as process:
        scheduler = SchedulerProcess(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.listen)
            try:
                yield scheduler
            finally:
                await scheduler.stop()
