"""
The scheduler as its users run it: a process of its own, with flags, signals, a log and an exit code.

Its log is read line by line as it is written and passed on to pytest, which shows it beside a failure. A test waits
for a line, a metric or the end; if it waits in vain, the error shows the log. The process dies with pytest.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import anyio.abc
import attrs
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.control_plane.component import DIE_WITH_PARENT
from tests.control_plane.server import free_port
from tests.support.patience import PATIENCE

ROOT: Final = Path(__file__).parents[2]
LONGEST_LINE: Final = 1 << 20
ACQUIRED: Final = "Successfully acquired lease"
BOUND: Final = "Successfully bound pod to node"
SYNCED: Final = "Caches are synced"
# Short, because tests wait for its expiry; but a machine that stalls for some seconds does not cost the Lease.
SHORT_LEASE: Final = (
    "--leader-elect-lease-duration=11s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=500ms",
)

SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)$", re.MULTILINE)


@attrs.define(eq=False)
class SchedulerProcess:
    """
    One run of `neuron-scheduler run`.

    Attributes:
        port: of its endpoints, on 127.0.0.1.
        lines: its log so far, without the line ends.
    """

    port: int
    _process: anyio.abc.Process
    lines: list[str] = attrs.field(factory=list, init=False)
    _heard: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _silent: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _scraped: str = attrs.field(default="", init=False)

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def tail(self) -> str:
        return "\n".join(self.lines[-20:])

    def lines_with(self, *parts: str) -> list[str]:
        """Return the lines that contain all these texts."""
        return [line for line in self.lines if all(part in line for part in parts)]

    async def line(self, *parts: str, count: int = 1, within: float = PATIENCE) -> str:
        """
        Wait until so many lines contain all these texts; return the last of them.

        Raises:
            TimeoutError: they did not come in so many seconds, or the process has ended without them.
        """
        with anyio.move_on_after(within):
            while len(matching := self.lines_with(*parts)) < count and not self._silent.is_set():
                self._heard = anyio.Event()
                await self._heard.wait()
        if len(matching := self.lines_with(*parts)) < count:
            raise TimeoutError(
                f"{len(matching)} of {count} lines with {parts} came within {within:g} s; its last ones:\n{self.tail}"
            )
        return matching[count - 1]

    async def ended(self, within: float = PATIENCE) -> int:
        """Wait until it has ended and its log is complete; return its exit code, negative for a signal."""
        try:
            with anyio.fail_after(within):
                code = await self._process.wait()
                await self._silent.wait()
        except TimeoutError:
            raise TimeoutError(f"it did not end within {within:g} s; its last lines:\n{self.tail}") from None
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, SIGSTOP and SIGCONT for one."""
        self._process.send_signal(number)

    async def stop(self) -> int:
        """Stop it as Kubernetes does, and return its exit code."""
        self.send_signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """End it with SIGKILL, as a crash or a lost machine would."""
        self.send_signal(signal.SIGKILL)
        assert await self.ended() == -signal.SIGKILL

    async def get(self, path: str) -> tuple[int, str]:
        """Ask one of its endpoints; return status and text."""
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.text()

    async def metrics(self) -> Mapping[str, float]:
        """
        Return every sample of /metrics by its name with labels, as it is written there, and as it is now.

        A text is kept for a second; in a new one the CPU time of the process is another.
        """
        text = self._scraped
        with anyio.fail_after(PATIENCE):
            while text == self._scraped:
                await anyio.sleep(0.005)
                status, text = await self.get("/metrics")
                assert status == 200
        self._scraped = text
        return {name: float(value) for name, value in SAMPLE.findall(text)}

    async def until(self, met: Callable[[Mapping[str, float]], bool], within: float = PATIENCE) -> Mapping[str, float]:
        """
        Read the metrics until a condition on them holds; return them.

        Raises:
            TimeoutError: it does not hold within so many seconds.
        """
        metrics: Mapping[str, float] = {}

        async def look() -> bool:
            nonlocal metrics
            metrics = await self.metrics()
            return met(metrics)

        try:
            await until(look, within=within)
        except TimeoutError:
            raise TimeoutError(f"its metrics did not get there within {within:g} s: {metrics}") from None
        return metrics

    async def listen(self) -> None:
        try:
            assert self._process.stderr is not None
            stream = BufferedByteReceiveStream(self._process.stderr)
            async with aclosing(stream):
                with suppress(anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                    while True:
                        line = (await stream.receive_until(b"\n", LONGEST_LINE)).decode(errors="replace")
                        self.lines.append(line)
                        sys.stderr.write(f"{line}\n")  # pytest shows it beside a failure
                        self._heard.set()
        finally:
            self._silent.set()
            self._heard.set()


async def until(met: Callable[[], Awaitable[bool]], *, within: float = PATIENCE) -> None:
    """Call until the result is true, where there is no event to wait for; a TimeoutError names what did not come."""
    try:
        with anyio.fail_after(within):
            while not await met():  # noqa: ASYNC110 - the condition is another process's
                await anyio.sleep(0.02)
    except TimeoutError:
        condition = getattr(met, "__qualname__", None) or repr(met)
        raise TimeoutError(f"this did not come true within {within:g} s: {condition}") from None


@asynccontextmanager
async def run_scheduler(
    kubeconfig: Path,
    *flags: str,
    module: str = "neuron_scheduler",
    command: str = "run",
    python: Path = Path(sys.executable),
) -> AsyncIterator[SchedulerProcess]:
    """Run the scheduler with these flags until the block is left; if it still runs then, kill it."""
    port = free_port()
    launcher = [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())]
    argv = [str(python), "-m", module, command, f"--kubeconfig={kubeconfig}"]
    process = await anyio.open_process(
        [*launcher, *argv, "--bind-address=127.0.0.1", f"--port={port}", *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        start_new_session=True,
    )
    scheduler = SchedulerProcess(port, process)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scheduler.listen)
        try:
            yield scheduler
        finally:
            with anyio.CancelScope(shield=True):
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                tasks.cancel_scope.cancel()
                await process.aclose()
