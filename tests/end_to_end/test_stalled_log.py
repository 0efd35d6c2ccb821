"""A container runtime that stops reading the log stops nothing else."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from tests.control_plane.component import DIE_WITH_PARENT
from tests.control_plane.objects import create_node, node_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import free_port
from tests.end_to_end.process import ROOT, SchedulerProcess, until
from tests.end_to_end.workload import LEASE, placed
from tests.support.patience import PATIENCE
from tests.telemetry.test_stderr import fill

LEADS = 'leader_election_master_status{name="my-scheduler"}'


@asynccontextmanager
async def unheard(kubeconfig: Path, *flags: str) -> AsyncIterator[SchedulerProcess]:
    """Run the scheduler with a full pipe for its stderr that is never read."""
    reader, writer = os.pipe()
    fill(writer)
    port = free_port()
    process = await anyio.open_process(
        [
            *(sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid())),
            *(sys.executable, "-m", "neuron_scheduler", "run", f"--kubeconfig={kubeconfig}"),
            *("--bind-address=127.0.0.1", f"--port={port}", *flags),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=writer,
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(writer)
    try:
        yield SchedulerProcess(port, process)
    finally:
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            os.close(reader)


async def leads(scheduler: SchedulerProcess) -> bool:
    """Return whether it leads; False before it listens."""
    with suppress(OSError):
        return (await scheduler.metrics())[LEADS] == 1
    return False


async def test_it_schedules_and_stops_as_asked(account: Path, empty: RestClient) -> None:
    """A pod is bound, SIGTERM ends the process with 0, and the Lease is released."""
    await create_node(empty, node_manifest("trn1", "trn1.32xlarge"))
    async with unheard(account, "-v=10") as scheduler:
        await until(lambda: leads(scheduler), within=PATIENCE)
        await placed(empty, "a", neuron=1)
        scheduler.send_signal(signal.SIGTERM)
        with anyio.fail_after(PATIENCE):
            assert await scheduler._process.wait() == 0
    assert not (await empty.get(LEASE))["spec"].get("holderIdentity")
