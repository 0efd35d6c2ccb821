"""
The shared API server for the tests of the whole process; its ServiceAccount has exactly the rights of `manifests/`.

The admission policies are not in place here: tests that need them run a control plane of their own. Every request of
the ServiceAccount is in an audit log, for the test of its rights.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.objects import wipe
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end import rights
from tests.end_to_end.process import ACQUIRED, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import clear, clear_below


@pytest.fixture(scope="module")
async def plane(control_plane: ControlPlane) -> ControlPlane:
    """Return the shared control plane, emptied, with the rights of `manifests/base/rbac.yaml`."""
    await wipe(control_plane.admin)
    await rights.grant(control_plane.admin)
    return control_plane


@pytest.fixture(scope="module")
async def account(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of the ServiceAccount that the Deployment runs under."""
    token = await plane.token_for("kube-system", "neuron-scheduler")
    return plane.kubeconfig(tmp_path_factory.mktemp("account") / "kubeconfig", token=token)


@pytest.fixture
async def empty(plane: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster that is empty before any scheduler is started."""
    await clear(plane.admin)
    return plane.admin


@pytest.fixture(scope="module")
async def scheduler(plane: ControlPlane, account: Path) -> AsyncIterator[SchedulerProcess]:
    """Run one scheduler for the tests of a module; it must end without an error."""
    await clear(plane.admin)
    async with run_scheduler(account, "-v=6") as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler
        assert await scheduler.stop() == 0


@pytest.fixture
async def api(plane: ControlPlane, scheduler: SchedulerProcess) -> RestClient:
    """Return the administrator's client of an empty cluster; the running scheduler has seen that it is empty."""
    await clear_below(scheduler, plane.admin)
    return plane.admin
