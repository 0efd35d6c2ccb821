"""
The control plane as pytest fixtures: one API server for the whole session, and a clean one for each test.

A missing program is an error and never a skip: a suite that passes without its control plane proves nothing.
"""

from collections.abc import AsyncIterator

import pytest

from tests.control_plane.binaries import KUBERNETES_VERSION, RELEASE
from tests.control_plane.objects import wipe
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, run_control_plane


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the control plane, so that `-m "not control_plane"` leaves it out."""
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker("control_plane")


def pytest_report_header() -> str:
    """Say which release the tests with a control plane run on."""
    return f"Kubernetes {KUBERNETES_VERSION} (KUBERNETES={RELEASE})"


@pytest.fixture(scope="session")
async def control_plane() -> AsyncIterator[ControlPlane]:
    """Run etcd and kube-apiserver, which all tests of the session share."""
    async with run_control_plane() as plane:
        yield plane


@pytest.fixture
async def cluster_api(control_plane: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster without nodes, pods, leases, events and policies."""
    await wipe(control_plane.admin)
    return control_plane.admin
