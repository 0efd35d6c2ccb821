"""
One API server for all tests of the whole process, on which its ServiceAccount has exactly the rights of `manifests/`.

The admission policies are not in place here: tests that need them run a control plane of their own. Every request of
the ServiceAccount is in an audit log, for the test of its rights.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.process import ACQUIRED, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import clear, clear_below


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the control plane, so that `-m "not control_plane"` leaves it out."""
    for item in items:
        if {"plane", "fenced_plane"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("control_plane")


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the API server's audit log of the ServiceAccount, one JSON object a line."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="session")
async def plane(audit_log: Path) -> AsyncIterator[ControlPlane]:
    """Run etcd and kube-apiserver, with the rights of `manifests/base/rbac.yaml`."""
    async with run_control_plane(api_server_flags=rights.audit_flags(audit_log)) as plane:
        await rights.grant(plane.admin)
        yield plane


@pytest.fixture(scope="session")
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
