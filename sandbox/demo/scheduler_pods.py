"""
The real scheduler in the pods of its Deployment: for a pod of our image a process runs on this machine.

So what a user does to such a pod happens to a real scheduler: one that is deleted is replaced, one that ends is started
again, and `kubectl logs` shows what it writes. Arguments and mounted files are the pod's; the API server and the
addresses, and what needs a certificate or token, are this machine's. Each has a port of its own. The page has one
address, which leads to the holder of the Lease.
"""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import aiohttp
import anyio
import anyio.abc
import attrs
from anyio.abc import SocketStream
from anyio.streams.text import TextReceiveStream

from sandbox import containers
from sandbox.apiserver.logs import Log
from sandbox.apiserver.resources import LEASES, PODS
from sandbox.apiserver.store import Object
from sandbox.demo.installation import IMAGE, NAMESPACE
from sandbox.demo.workload import SCHEDULER_NAME, DemoError
from sandbox.server import ApiServer

Program: TypeAlias = Callable[[Sequence[str]], Sequence[str]]

_LOOPBACK: Final = "127.0.0.1"
_LAST_LINES: Final = 50
_GRACE: Final = 10.0  # seconds between SIGTERM and SIGKILL
_PROBE_PERIOD: Final = 0.25  # seconds
_PAUSES: Final = (10.0, 20.0, 40.0, 80.0, 160.0, 300.0)  # seconds before another start, as a kubelet's
_EXTENDER: Final = "--extender-bind-address"
_PAGE: Final = ("--answer-questions=true", "--serve-page=true")

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
    Runs the pods of our image.

    Attributes:
        program: makes the command line of the container's arguments.
        page: whether the scheduler serves its page.
        port: of the page.
        ends_with_a_scheduler: whether a scheduler that ends by itself is an error, as in the story.
        bad_ends: what is wrong with the ends of schedulers that were stopped.
    """

    _server: ApiServer
    program: Program = scheduler
    page: bool = False
    port: int = attrs.field(factory=free_port)
    ends_with_a_scheduler: bool = True
    bad_ends: list[str] = attrs.field(factory=list)
    _ports: dict[str, int] = attrs.field(factory=dict)  # by pod

    def runs(self, pod: Object) -> bool:
        """Return whether the pod's first container has our image, from whatever registry."""
        image = str(pod["spec"]["containers"][0]["image"])
        return image.rpartition("/")[2].partition(":")[0] == IMAGE

    async def run(self, pod: Object, address: str) -> None:
        """
        Run a pod until cancelled.

        Raises:
            DemoError: the scheduler has ended by itself, in the story.
        """
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self._report(pod, containers.creating)
        log = self._server.logs.begin(uid)
        self._ports[name] = free_port()
        folder = TemporaryDirectory(prefix="neuron-scheduler-pod-")
        try:
            for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
                code, now = await self._run(pod, address, log, Path(folder.name)), self._server.registry.clock()
                if self.ends_with_a_scheduler:
                    last = "\n".join(log.lines[-_LAST_LINES:])
                    raise DemoError(f"the scheduler ended by itself with exit code {code}. Its last lines:\n{last}")
                self._report(pod, lambda current: containers.crashed(current, code, now))  # noqa: B023 - called at once
                await anyio.sleep(pause)
        finally:
            folder.cleanup()
            self._ports.pop(name)
            self._server.logs.forget(uid)

    async def forward(self) -> None:
        """Forward the connections to the page, without end."""
        if self.page:
            listener = await anyio.create_tcp_listener(local_host=_LOOPBACK, local_port=self.port)
            await listener.serve(self._forward)

    async def _forward(self, browser: SocketStream) -> None:
        lease = self._server.store.get(LEASES.storage, NAMESPACE, SCHEDULER_NAME) or {}
        leader = str((lease.get("spec") or {}).get("holderIdentity") or "").partition("_")[0]
        async with browser:
            try:
                scheduler = await anyio.connect_tcp(_LOOPBACK, self._ports.get(leader, 0))
            except OSError:
                return
            async with scheduler, anyio.create_task_group() as directions:
                directions.start_soon(_pass_on, browser, scheduler, directions.cancel_scope)
                directions.start_soon(_pass_on, scheduler, browser, directions.cancel_scope)

    async def _run(self, pod: Object, address: str, log: Log, folder: Path) -> int:
        """Return the exit code of a scheduler that ended by itself; its whole log was written then."""
        environment = {**os.environ, "POD_NAME": pod["metadata"]["name"], "POD_IP": _LOOPBACK}
        arguments = await self._arguments(pod, folder)
        with anyio.CancelScope(shield=True):  # a start that is cut off would leave a process behind
            started = await anyio.open_process(self.program(arguments), env=environment, **_OWN_SESSION)
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

    async def _arguments(self, pod: Object, folder: Path) -> list[str]:
        """Return the arguments of the process, once all files that its container mounts are in the folder."""
        (container, *_), volumes = pod["spec"]["containers"], pod["spec"].get("volumes") or []
        arguments = list[str](container.get("args") or [])
        for mount in container.get("volumeMounts") or []:
            (volume,) = (one for one in volumes if one["name"] == mount["name"])
            place = folder / mount["name"]
            place.mkdir(exist_ok=True)
            for name, content in (await self._files(pod, volume)).items():
                (place / name).write_bytes(content)
            arguments = [argument.replace(mount["mountPath"], str(place)) for argument in arguments]
        port = self._ports[pod["metadata"]["name"]]
        return [
            *arguments,
            f"--master={self._server.url}",
            f"--bind-address={_LOOPBACK}",
            f"--port={port}",
            "--secure-port=0",
            "--authorize-metrics=false",
            *(f"{_EXTENDER}={_LOOPBACK}:{free_port()}" for argument in arguments if argument.startswith(_EXTENDER)),
            *(_PAGE if self.page and "run" in arguments else ()),
        ]

    async def _files(self, pod: Object, volume: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the files of a ConfigMap or a Secret, once it exists."""
        if "configMap" in volume:
            table, name = "configmaps", volume["configMap"]["name"]
        elif "secret" in volume:
            table, name = "secrets", volume["secret"]["secretName"]
        else:
            return {}
        while (found := self._server.store.get(table, pod["metadata"]["namespace"], name)) is None:
            await self._server.store.changed(table)
        data = found.get("data") or {}
        return {key: text.encode() if table == "configmaps" else b64decode(text) for key, text in data.items()}

    def _note_end(self, code: int | None, log: Log) -> None:
        """Note a bad exit code. A process that was stopped before its first line did not handle signals yet."""
        if code != 0 and (log.lines or code != -signal.SIGTERM):
            self.bad_ends.append(f"the scheduler ended with exit code {code}, not 0")

    async def _probe(self, pod: Object, address: str) -> None:
        """Report the pod running, and whenever its readiness changes."""
        reported: bool | None = None
        url = f"http://{_LOOPBACK}:{self._ports[pod['metadata']['name']]}/readyz"
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


async def _pass_on(source: SocketStream, target: SocketStream, both: anyio.CancelScope) -> None:
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for chunk in source:
            await target.send(chunk)
    both.cancel()


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
