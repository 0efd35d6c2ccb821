"""etcd stops, dies or hangs under the API server: the same scheduler goes on, and no device is held twice."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

import anyio
import pytest

from tests.control_plane.component import Component
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, BOUND, run_scheduler
from tests.faults.waves import waves

PATIENTLY: Final = ("--leader-elect-lease-duration=100s", "--leader-elect-renew-deadline=98s")
A_WHILE: Final = 4.0  # seconds without etcd; nothing is expected of them


async def killed(etcd: Component) -> None:
    """Crash, and come back with the same data."""
    await etcd.kill()
    await etcd.start()


async def stopped(etcd: Component) -> None:
    """Stop as for maintenance, and come back after a while."""
    await etcd.stop()
    await anyio.sleep(A_WHILE)
    await etcd.start()


async def hanging(etcd: Component) -> None:
    """Answer nothing for a while, and then everything that was asked meanwhile."""
    etcd.send_signal(SIGSTOP)
    await anyio.sleep(A_WHILE)
    etcd.send_signal(SIGCONT)


@pytest.mark.parametrize("fault", [killed, stopped, hanging])
async def test_etcd(
    fault_plane: ControlPlane, fault_account: Path, fault: Callable[[Component], Awaitable[None]]
) -> None:
    """It happens in the middle of a wave of Bindings; all pods of it and of the next are bound."""
    async with waves(fault_plane.admin) as wave, run_scheduler(fault_account, *PATIENTLY) as scheduler:
        await scheduler.line(ACQUIRED)
        await wave.begin()
        await scheduler.line(BOUND)
        await fault(fault_plane.components["etcd"])
        await wave.bound()
        await wave.begin()
        await wave.bound()
        await scheduler.until(lambda metrics: metrics["neuron_scheduler_binds_in_flight"] == 0)
        assert await wave.judged() == []
        assert await scheduler.stop() == 0
    assert "Traceback" not in scheduler.log
