"""
One program of the control plane as a child process that never outlives the tests.

Its output goes to a file, because a full pipe would stop it. Knows nothing about the program that it runs.
"""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self

import aiohttp
import anyio
import anyio.abc
import attrs

GRACE: Final = 5.0  # seconds between SIGTERM and SIGKILL
START_LIMIT: Final = 180.0  # seconds; kube-apiserver takes 5 to 10 on an idle machine
HEALTH_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
DIE_WITH_PARENT: Final = Path(__file__).parent / "die_with_parent.py"


class ComponentError(RuntimeError):
    """A program ended, or is not ready in time; the text carries its last lines."""


@attrs.define(eq=False)
class Component:
    """
    A program that is started, signalled and stopped, in its own session so that Ctrl-C reaches only the tests.

    Attributes:
        argv: the program's absolute path and its arguments.
        health: the URL that answers 200 once it is ready; its certificate is not checked.
        log: where its output is appended.
        environment: variables that it gets beside ours.
    """

    name: str
    argv: Sequence[str]
    health: str
    log: Path
    environment: Mapping[str, str] = attrs.field(factory=dict)
    _process: anyio.abc.Process | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; negative for a signal; None while it runs."""
        return self._running().returncode

    async def start(self) -> None:
        """
        Start it, for the first time or again, and return when it is ready.

        Raises:
            ComponentError: it ended before, or was not ready within `START_LIMIT`.
        """
        launcher = [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = await anyio.open_process(
                [*launcher, *self.argv],
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        with anyio.move_on_after(START_LIMIT):
            while self._process.returncode is None:
                if await self._ready():
                    return
                await anyio.sleep(0.05)
        returncode = self._process.returncode
        await self.stop()
        ending = "was not ready in time" if returncode is None else f"exited with {returncode}"
        raise ComponentError(f"{self.name} {ending}. Its last lines:\n{self.tail()}")

    @asynccontextmanager
    async def started(self) -> AsyncIterator[Self]:
        """Run it, from ready to ended, while the block runs."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, SIGSTOP and SIGCONT for one."""
        self._running().send_signal(number)

    async def stop(self) -> None:
        """End it with SIGTERM, then SIGKILL. It may have ended before."""
        process, self._process = self._process, None
        if process is None:
            return
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a stopped program does not get SIGTERM
                with anyio.move_on_after(GRACE):
                    await process.wait()
                process.kill()
            await process.wait()
            await process.aclose()

    async def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._running().kill()
        await self.stop()

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    async def _ready(self) -> bool:
        try:
            async with aiohttp.request("GET", self.health, ssl=False, timeout=HEALTH_TIMEOUT) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    def _running(self) -> anyio.abc.Process:
        if self._process is None:
            raise ComponentError(f"{self.name} is not running")
        return self._process
