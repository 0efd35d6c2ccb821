"""
One replica of the scheduler as a process, and the pair of them that the Deployment runs.

A replica is known by its name in the Lease. Its log goes to a file.
"""

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import anyio
import attrs

from benchmarks.replicas.plane import Cluster
from tests.control_plane.component import Component
from tests.control_plane.server import free_port
from tests.end_to_end.process import SAMPLE
from tests.end_to_end.workload import LEASE

LONGEST_END: Final = 45.0  # seconds; the Deployment's grace period is 40


@attrs.define(eq=False)
class Replica:
    """
    A running process.

    Attributes:
        name: as POD_NAME has it in a cluster.
    """

    name: str
    component: Component

    async def ended(self) -> int:
        """Wait until it has ended; return its exit code, negative for a signal."""
        with anyio.fail_after(LONGEST_END):
            while self.component.returncode is None:  # noqa: ASYNC110 - another process's state
                await anyio.sleep(0.01)
        return self.component.returncode

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.component.send_signal(number)

    async def metrics(self) -> Mapping[str, float]:
        """Return every sample of /metrics by its name with labels."""
        url = self.component.health.replace("/readyz", "/metrics")
        async with aiohttp.request("GET", url) as answer:
            return {name: float(value) for name, value in SAMPLE.findall(await answer.text())}


@attrs.define(eq=False)
class Replicas:
    """
    Starts replicas with the same flags; all of them end with it.

    Attributes:
        flags: beside those that a test process needs.
    """

    cluster: Cluster
    flags: tuple[str, ...]
    _stack: AsyncExitStack
    _count: int = attrs.field(default=0, init=False)

    async def start(self) -> Replica:
        """Start another one, and return when it is ready."""
        self._count += 1
        name, port = f"replica-{self._count}", free_port()
        argv = ["/usr/bin/env", f"POD_NAME={name}", sys.executable, "-m", "neuron_scheduler", "run"]
        argv += [f"--kubeconfig={self.cluster.account}", "--bind-address=127.0.0.1", f"--port={port}", *self.flags]
        log = self.cluster.plane.folder / f"{name}.log"
        component = Component(name, argv, f"http://127.0.0.1:{port}/readyz", log)
        self._stack.push_async_callback(component.stop)
        await component.start()
        return Replica(name, component)


@asynccontextmanager
async def run_replicas(cluster: Cluster, *flags: str) -> AsyncIterator[Replicas]:
    """Start replicas in the block, and end them after it."""
    async with AsyncExitStack() as stack:
        yield Replicas(cluster, flags, stack)


async def holder(cluster: Cluster) -> str:
    """Wait until somebody holds the Lease; return the identity."""
    lease = await cluster.api.wait_for(LEASE, lambda lease: bool(lease["spec"].get("holderIdentity")))
    return str(lease["spec"]["holderIdentity"])


def name_in(identity: str) -> str:
    """Return the name of the replica in an identity."""
    return identity.rpartition("_")[0]
