"""
The contenders: how each is started, and the resources that it has used at the end.

Each is a process (or two) of its own with its best settings: unlimited client rates, no leader election where it is not
needed. Ours runs as its Deployment does: under its ServiceAccount, with Lease, Events and log. Only its allocate fence
is off, because no kubelet of the simulated nodes reports that it has admitted a pod.
"""

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import attrs

from benchmarks.contest.arena import Arena, cpu_seconds, peak_bytes
from benchmarks.contest.workloads import EVERYWHERE, WITH_EXTENDER, Workload
from tests.control_plane.binaries import cache_root
from tests.control_plane.build import go_environment
from tests.control_plane.component import Component
from tests.control_plane.kube_scheduler import kube_scheduler
from tests.control_plane.objects import NEURON
from tests.control_plane.server import free_port
from tests.end_to_end.kube_scheduler import configuration

EXTENDER: Final = Path(__file__).parent / "extender"
DROPPED: Final = re.compile(r"^neuron_scheduler_events_dropped_total (\S+)$", re.MULTILINE)


@attrs.define(eq=False, kw_only=True)
class Contender:
    """
    The processes of one contender for one run.

    Attributes:
        metrics: URL of the number of dropped Events; empty if there is none.
        events: whether it writes Events.
        started_at: the `time.perf_counter()` right before its processes were started.
    """

    components: tuple[Component, ...]
    metrics: str = ""
    events: bool = True
    started_at: float = attrs.field(default=0.0, init=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run its processes until the block is left."""
        async with AsyncExitStack() as stack:
            self.started_at = time.perf_counter()
            for component in self.components:
                await stack.enter_async_context(component.started())
            yield

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all its processes so far."""
        return sum(cpu_seconds(component.pid) for component in self.components)

    def peak_bytes(self) -> int:
        """Return the largest resident sets of its processes, added up."""
        return sum(peak_bytes(component.pid) for component in self.components)

    async def events_dropped(self) -> int | None:
        """Return how many Events it dropped; None if it does not report them."""
        if not self.metrics:
            return None
        async with aiohttp.request("GET", self.metrics) as answer:
            match = DROPPED.search(await answer.text())
        return int(float(match[1])) if match else None


@attrs.frozen(kw_only=True)
class Kind:
    """
    A contender in the matrix.

    Attributes:
        make: returns it for one run.
        policies: whether the admission policies apply to it.
        workloads: the names of those that it takes part in; None for all.
    """

    make: Callable[[Arena, Workload], Contender]
    policies: bool = True
    workloads: tuple[str, ...] | None = None

    def takes(self, workload: str) -> bool:
        """Return whether it takes part in a workload."""
        return self.workloads is None or workload in self.workloads


def _ours(arena: Arena, workload: Workload) -> Contender:
    return ours(arena, arena.account, *(("--claims",) if workload.by_claims else ()))


def ours(arena: Arena, kubeconfig: Path, *flags: str) -> Contender:
    """Return this scheduler with a user's rights and further flags."""
    port = free_port()
    argv = [sys.executable, "-m", "neuron_scheduler", "run", "--kubeconfig", str(kubeconfig)]
    argv += ["--bind-address", "127.0.0.1", "--port", str(port), "--allocate-fence=false", *flags]
    url = f"http://127.0.0.1:{port}"
    component = Component("ours", argv, f"{url}/readyz", arena.plane.folder / "ours.log")
    return Contender(components=(component,), metrics=f"{url}/metrics")


def _binding_loop(arena: Arena, _workload: Workload) -> Contender:
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.contest.binding_loop", str(arena.account), str(port)]
    component = Component(
        "binding-loop", argv, f"http://127.0.0.1:{port}/readyz", arena.plane.folder / "binding-loop.log"
    )
    return Contender(components=(component,), events=False)


def _kube_scheduler(arena: Arena, workload: Workload) -> Contender:
    return Contender(components=(_kube_scheduler_process(arena, workload, {}),))


def _with_extender(arena: Arena, workload: Workload) -> Contender:
    port, plane = free_port(), arena.plane
    listen = f"127.0.0.1:{port}"
    argv = [str(extender_program()), listen, plane.server, str(plane.ca_file), str(arena.extender_token)]
    extender = Component("extender", argv, f"http://{listen}/healthz", plane.folder / "extender.log")
    entry = {
        "urlPrefix": f"http://{listen}",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "managedResources": [{"name": NEURON}],
    }
    return Contender(components=(extender, _kube_scheduler_process(arena, workload, {"extenders": [entry]})))


def _with_our_extender(arena: Arena, workload: Workload) -> Contender:
    """Run our extender and the entry of `manifests/default-scheduler`."""
    port, extender_port = free_port(), free_port()
    argv = [sys.executable, "-m", "neuron_scheduler", "extender", f"--kubeconfig={arena.account}"]
    argv += ["--bind-address=127.0.0.1", f"--port={port}", "--allocate-fence=false"]
    argv += [f"--extender-bind-address=127.0.0.1:{extender_port}"]
    extender = Component("extender", argv, f"http://127.0.0.1:{port}/readyz", arena.plane.folder / "our-extender.log")
    manifest = configuration(f"http://127.0.0.1:{extender_port}", arena.admin)
    fields: dict[str, Any] = {
        name: manifest[name] for name in ("extenders", "percentageOfNodesToScore") if name in manifest
    }
    return Contender(components=(extender, _kube_scheduler_process(arena, workload, fields)))


def _kube_scheduler_process(arena: Arena, workload: Workload, fields: Mapping[str, Any]) -> Component:
    profile: dict[str, Any] = {"schedulerName": "my-scheduler"}
    if workload.packed:
        strategy = {"type": "MostAllocated", "resources": [{"name": NEURON, "weight": 1}]}
        profile["pluginConfig"] = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(arena.admin), "qps": 100_000, "burst": 100_000},
        "leaderElection": {"leaderElect": False},
        "profiles": [profile],
        **fields,
    }
    return kube_scheduler(config, arena.plane.folder, v=0)


def extender_program() -> Path:
    """Return the compiled extender; compiling it takes seconds, once for each version of its source."""
    source = b"".join(file.read_bytes() for file in sorted(EXTENDER.iterdir()))
    program = cache_root() / "benchmarks" / f"extender-{hashlib.sha256(source).hexdigest()[:12]}"
    if not program.exists():
        environment = go_environment()
        command = [environment["GO"], "build", "-trimpath", "-buildvcs=false", "-o", str(program), "."]
        subprocess.run(command, cwd=EXTENDER, env=environment, check=True)
    return program


CONTENDERS: Final[Mapping[str, Kind]] = {
    "ours": Kind(make=_ours),
    "binding-loop": Kind(make=_binding_loop, workloads=EVERYWHERE),
    "binding-loop without policies": Kind(make=_binding_loop, policies=False, workloads=EVERYWHERE),
    "kube-scheduler": Kind(make=_kube_scheduler),
    "kube-scheduler with extender": Kind(make=_with_extender, workloads=WITH_EXTENDER),
    "kube-scheduler with our extender": Kind(make=_with_our_extender, workloads=WITH_EXTENDER),
}
