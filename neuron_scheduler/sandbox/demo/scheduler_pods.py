"""
The real scheduler in the pods of its Deployment: for each pod of our image a process runs on this machine.

So what a user does to the Deployment happens to real schedulers: a second replica stands by, a deleted leader is
replaced, a rollout waits for readiness, `kubectl logs` shows what they write.
"""

import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import aiohttp
import anyio
import attrs

from neuron_scheduler.sandbox import pod_status
from neuron_scheduler.sandbox.apiserver.logs import Log
from neuron_scheduler.sandbox.apiserver.resources import PODS
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.controllers.owned import record
from neuron_scheduler.sandbox.demo import installation, scheduler_container, scheduler_process
from neuron_scheduler.sandbox.demo.workload import DemoError
from neuron_scheduler.sandbox.server import ApiServer

Program: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
_Accompanying: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_LAST_LINES: Final = 50
_BACKOFF, _LONGEST_BACKOFF = 10.0, 300.0  # seconds; the first restart is at once
_PROBE_PERIOD: Final = 0.25  # seconds


def scheduler(arguments: Sequence[str]) -> Sequence[str]:
    """Return the command line of this very package."""
    return [sys.executable, "-m", "neuron_scheduler", *arguments]


@attrs.define(eq=False)
class SchedulerPods:
    """
    Runs the pods of our image.

    Attributes:
        bad_ends: what is wrong with the ends of schedulers that were stopped.
        program: makes the command line of the container's arguments.
        page: whether the schedulers serve their page.
        restarts: whether a scheduler that ended is started again; if not, its end is a `DemoError`.
    """

    _server: ApiServer
    program: Program = scheduler
    page: bool = False
    restarts: bool = False
    _ports: dict[str, int] = attrs.field(factory=dict, init=False)
    bad_ends: list[str] = attrs.field(factory=list)

    def port(self) -> int | None:
        """Return the port of the scheduler that leads, else of the one that started last; None if none runs."""
        leases = self._server.store.objects("leases", installation.NAMESPACE)
        leaders = {str(lease["spec"].get("holderIdentity")).partition("_")[0] for lease in leases}
        ports = [port for name, port in self._ports.items() if name in leaders] or list(self._ports.values())
        return ports[-1] if ports else None

    def runs(self, pod: Object) -> bool:
        """Return whether the pod has our image."""
        return scheduler_container.is_ours(pod)

    async def run(self, pod: Object, address: str) -> None:
        """Run a pod until cancelled."""
        self._report(pod, pod_status.creating)
        await self._mountable(pod)
        count = 0
        try:
            while True:
                code = await self._run_once(pod, address, count)
                delay = min(_BACKOFF * 2 ** (count - 1), _LONGEST_BACKOFF) if count else 0.0
                count, now = count + 1, self._server.registry.clock()
                self._report(
                    pod, partial(pod_status.backing_off, exit_code=code, seconds=delay, now=now, restarts=count)
                )
                await anyio.sleep(delay)
        finally:
            self._server.logs.forget(pod["metadata"]["uid"])

    async def _run_once(self, pod: Object, address: str, restarts: int) -> int:
        """Return the exit code of a scheduler that ended by itself."""
        server = self._server
        log = server.logs.begin(pod["metadata"]["uid"])
        with TemporaryDirectory(prefix="neuron-scheduler-demo-") as folder:
            launch = scheduler_container.launch(pod, server.store, server.url, Path(folder), page=self.page)
            url = f"http://127.0.0.1:{launch.port}{scheduler_container.probe_path(pod)}"
            argv, probe = self.program(launch.arguments), partial(self._probe, pod, address, restarts, url)
            async with scheduler_process.running(argv, launch.environment, log.write) as process:
                name = pod["metadata"]["name"]
                self._ports[name] = launch.port
                try:
                    code = await _while(probe, process.wait)
                except anyio.get_cancelled_exc_class():
                    await process.stop()
                    self._note_end(process.returncode, log)
                    raise
                finally:
                    del self._ports[name]
        log.end()
        if not self.restarts:
            last = "\n".join(line.text for line in log.lines()[-_LAST_LINES:])
            raise DemoError(f"the scheduler ended by itself with exit code {code}. Its last lines:\n{last}")
        return code

    def _note_end(self, code: int | None, log: Log) -> None:
        """Note a bad exit code. A process that was stopped before its first line did not handle signals yet."""
        if code != 0 and (log.written or code != -signal.SIGTERM):
            self.bad_ends.append(f"the scheduler ended with exit code {code}, not 0")

    async def _mountable(self, pod: Object) -> None:
        """Wait for the ConfigMaps that the pod mounts; an event says which are missing."""
        store, told = self._server.store, False
        while missing := scheduler_container.missing_config_maps(pod, store):
            if not told:
                told, text = True, f'MountVolume.SetUp failed: configmap "{missing[0]}" not found'
                about = {"component": "kubelet", "reason": "FailedMount", "message": text}
                record(self._server.registry, PODS, pod, **about, warning=True)
            await store.changed("configmaps")

    async def _probe(self, pod: Object, address: str, restarts: int, url: str) -> None:
        """Report the pod running, and whenever its readiness changes."""
        reported: bool | None = None
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                is_ready = False if reported is None else await _is_ready(session, url)
                if is_ready is not reported:
                    reported, now = is_ready, self._server.registry.clock()
                    self._report(
                        pod,
                        partial(pod_status.running, address=address, now=now, is_ready=is_ready, restarts=restarts),
                    )
                await anyio.sleep(_PROBE_PERIOD)

    def _report(self, pod: Object, change: Callable[[Object], Object]) -> None:
        store, meta = self._server.store, pod["metadata"]
        current = store.get(PODS.storage, meta["namespace"], meta["name"])
        if current is not None and current["metadata"]["uid"] == meta["uid"]:
            store.put(PODS.storage, change(current))


async def _while(accompany: _Accompanying, work: Callable[[], Awaitable[int]]) -> int:
    """Return what the work returns; the other function runs for as long."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(accompany)
        result = await work()
        tasks.cancel_scope.cancel()
    return result


async def _is_ready(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
