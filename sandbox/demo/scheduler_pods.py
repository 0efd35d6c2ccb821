"""
The real scheduler in the pods of its Deployment: for a pod of our image a process runs on this machine.

So what a user does to such a pod happens to a real scheduler: one that is deleted is replaced, and `kubectl logs` shows
what it writes. Arguments are the pod's; the API server and the addresses, and what needs a certificate or token, are
this machine's. All have one port, so that the page keeps its address: a second pod waits until the first has ended.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import aiohttp
import anyio
import anyio.abc
import attrs
from anyio.streams.text import TextReceiveStream

from sandbox import containers
from sandbox.apiserver.logs import Log
from sandbox.apiserver.resources import PODS
from sandbox.apiserver.store import Object
from sandbox.demo.installation import IMAGE
from sandbox.demo.workload import DemoError
from sandbox.server import ApiServer

Program: TypeAlias = Callable[[Sequence[str]], Sequence[str]]

_LOOPBACK: Final = "127.0.0.1"
_LAST_LINES: Final = 50
_GRACE: Final = 10.0  # seconds between SIGTERM and SIGKILL
_PROBE_PERIOD: Final = 0.25  # seconds

# Ctrl-C in a terminal is for the demo alone, which then ends its schedulers in good order.
_OWN_SESSION: Final[Mapping[str, Any]] = {
    "stdin": subprocess.DEVNULL,
    "stdout": subprocess.DEVNULL,
    "start_new_session": True,
}


def scheduler(arguments: Sequence[str]) -> Sequence[str]:
    """Return the command line of the package of this checkout."""
    return [sys.executable, "-m", "neuron_scheduler", *arguments]


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server((_LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


@attrs.define(eq=False)
class SchedulerPods:
    """
    Runs the pods of our image, one at a time.

    Attributes:
        program: makes the command line of the container's arguments.
        page: whether the scheduler serves its page.
        port: where it serves its page and answers probes.
        bad_ends: what is wrong with the ends of schedulers that were stopped.
    """

    _server: ApiServer
    program: Program = scheduler
    page: bool = False
    port: int = attrs.field(factory=free_port)
    bad_ends: list[str] = attrs.field(factory=list)
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock)

    def runs(self, pod: Object) -> bool:
        """Return whether the pod's first container has our image, from whatever registry."""
        image = str(pod["spec"]["containers"][0]["image"])
        return image.rpartition("/")[2].partition(":")[0] == IMAGE

    async def run(self, pod: Object, address: str) -> None:
        """
        Run a pod until cancelled.

        Raises:
            DemoError: the scheduler has ended by itself.
        """
        self._report(pod, containers.creating)
        log = self._server.logs.begin(pod["metadata"]["uid"])
        try:
            async with self._turn:
                code = await self._run(pod, address, log)
        finally:
            self._server.logs.forget(pod["metadata"]["uid"])
        last = "\n".join(log.lines[-_LAST_LINES:])
        raise DemoError(f"the scheduler ended by itself with exit code {code}. Its last lines:\n{last}")

    async def _run(self, pod: Object, address: str, log: Log) -> int:
        """Return the exit code of a scheduler that ended by itself; its whole log was written then."""
        environment = {**os.environ, "POD_NAME": pod["metadata"]["name"]}
        with anyio.CancelScope(shield=True):  # a start that is cut off would leave a process behind
            started = await anyio.open_process(self.program(self._arguments(pod)), env=environment, **_OWN_SESSION)
        async with started as process, anyio.create_task_group() as listening:
            listening.start_soon(_listen, process, log)
            try:
                async with anyio.create_task_group() as probing:
                    probing.start_soon(self._probe, pod, address)
                    code = await process.wait()
                    probing.cancel_scope.cancel()
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await _stopped(process)
                self._note_end(process.returncode, log)
                raise
        return code

    def _arguments(self, pod: Object) -> list[str]:
        return [
            *(pod["spec"]["containers"][0].get("args") or []),
            f"--master={self._server.url}",
            f"--bind-address={_LOOPBACK}",
            f"--port={self.port}",
            "--secure-port=0",
            "--authorize-metrics=false",
            *(("--answer-questions=true", "--serve-page=true") if self.page else ()),
        ]

    def _note_end(self, code: int | None, log: Log) -> None:
        """Note a bad exit code. A process that was stopped before its first line did not handle signals yet."""
        if code != 0 and (log.lines or code != -signal.SIGTERM):
            self.bad_ends.append(f"the scheduler ended with exit code {code}, not 0")

    async def _probe(self, pod: Object, address: str) -> None:
        """Report the pod running, and whenever its readiness changes."""
        reported: bool | None = None
        url = f"http://{_LOOPBACK}:{self.port}/readyz"
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                ready = False if reported is None else await _is_ready(session, url)
                if ready is not reported:
                    reported, now = ready, self._server.registry.clock()
                    self._report(pod, lambda current: containers.running(current, address, now, is_ready=ready))  # noqa: B023 - called at once
                await anyio.sleep(_PROBE_PERIOD)

    def _report(self, pod: Object, change: Callable[[Object], Object]) -> None:
        store, meta = self._server.store, pod["metadata"]
        current = store.get(PODS.storage, meta["namespace"], meta["name"])
        if current is not None and current["metadata"]["uid"] == meta["uid"]:
            store.put(PODS.storage, change(current))


async def _listen(process: anyio.abc.Process, log: Log) -> None:
    """Read the log of a process line by line, so that it never blocks on a full pipe."""
    if process.stderr is None:
        return
    rest = ""
    async for chunk in TextReceiveStream(process.stderr, errors="replace"):
        *lines, rest = (rest + chunk).split("\n")
        for line in lines:
            log.write(line)
    if rest:
        log.write(rest)


async def _stopped(process: anyio.abc.Process) -> None:
    """Send SIGTERM, and SIGKILL if the process has not ended after `_GRACE`."""
    if process.returncode is None:
        process.terminate()
    with anyio.move_on_after(_GRACE):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
