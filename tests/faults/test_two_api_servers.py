"""Two API servers on one etcd behind one address: what one of them does wrong, late or not at all, costs no device."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

import anyio
import attrs
import pytest

from tests.control_plane.component import Component
from tests.control_plane.server import ControlPlane, another_api_server
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.faults.relay import Relay, Server, run_relay
from tests.faults.waves import waves

# A Binding is given up after 1.6 s; the Lease outlives everything that happens here.
PATIENTLY: Final = ("--leader-elect-lease-duration=100s", "--leader-elect-renew-deadline=98s")
A_WHILE: Final = 5.0  # seconds with the fault; nothing is expected of them


@attrs.frozen(eq=False)
class Pair:
    """
    Two API servers.

    Attributes:
        balancer: in front of both.
        second: the second one behind the balancer, which has the faults; `program` is its process.
        to_etcd: between the second one and etcd.
    """

    balancer: Relay
    second: Server
    program: Component
    to_etcd: Server


@pytest.fixture(scope="module")
async def pair(fault_plane: ControlPlane) -> AsyncIterator[Pair]:
    """Run the second API server, and the balancer."""
    async with (
        run_relay(fault_plane.etcd_port) as etcd,
        another_api_server(fault_plane, etcd.port) as (port, program),
        run_relay(fault_plane.port, port) as balancer,
    ):
        yield Pair(balancer, balancer.servers[1], program, etcd.servers[0])


@asynccontextmanager
async def cut(pair: Pair) -> AsyncIterator[None]:
    """Take the second server away: its connections end, and new ones go to the first."""
    pair.second.balanced = False
    pair.second.reset()
    yield
    pair.second.balanced = True


@asynccontextmanager
async def frozen(pair: Pair) -> AsyncIterator[None]:
    """Stop the second server's process; after a while the balancer notices. What it was sent it does in the end."""
    pair.program.send_signal(SIGSTOP)
    yield
    async with cut(pair):
        pair.program.send_signal(SIGCONT)


@asynccontextmanager
async def half_open(pair: Pair) -> AsyncIterator[None]:
    """Let connections to the second server stay open, and no byte go through, until they arrive after all."""
    pair.second.hold()
    yield
    pair.second.flow()


@asynccontextmanager
async def lagging(pair: Pair) -> AsyncIterator[None]:
    """Let the second server answer, and see nothing new; all clients connect again, half of them there."""
    pair.to_etcd.hold()
    for server in pair.balancer.servers:
        server.reset()
    yield
    pair.to_etcd.flow()


FAULTS: Final = (cut, frozen, half_open, lagging)


@pytest.mark.parametrize("fault", FAULTS)
async def test_two_api_servers(
    fault_plane: ControlPlane,
    pair: Pair,
    tmp_path: Path,
    fault: Callable[[Pair], AbstractAsyncContextManager[None]],
) -> None:
    """Before, during and after the fault pods come and go; all are bound, and no device is held twice."""
    token = await fault_plane.token_for("kube-system", "neuron-scheduler")
    server = f"https://127.0.0.1:{pair.balancer.port}"
    kubeconfig = fault_plane.kubeconfig(tmp_path / "kubeconfig", token=token, server=server)
    async with waves(fault_plane.admin) as wave, run_scheduler(kubeconfig, *PATIENTLY) as scheduler:
        await scheduler.line(ACQUIRED)
        await wave.begin()
        await wave.bound()
        assert all(server.connections for server in pair.balancer.servers)
        async with fault(pair):
            await wave.begin()
            with anyio.move_on_after(A_WHILE):
                await wave.bound()
        await wave.bound()
        await wave.begin()
        await wave.bound()
        assert await wave.judged() == []
        await scheduler.until(lambda metrics: metrics["neuron_scheduler_binds_in_flight"] == 0)
        assert await scheduler.stop() == 0
    assert "Traceback" not in scheduler.log
