"""One control plane for all faults, with controllers that bind volumes, and the rights of `manifests/`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the control plane, so that `-m "not control_plane"` leaves it out."""
    for item in items:
        if "fault_plane" in getattr(item, "fixturenames", ()):
            item.add_marker("control_plane")


@pytest.fixture(scope="session")
async def fault_plane() -> AsyncIterator[ControlPlane]:
    """Run etcd, kube-apiserver and kube-controller-manager."""
    async with run_control_plane(with_controller_manager=True) as plane:
        await rights.grant(plane.admin)
        yield plane


@pytest.fixture(scope="session")
async def fault_account(fault_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of the ServiceAccount that the Deployment runs under."""
    token = await fault_plane.token_for("kube-system", "neuron-scheduler")
    return fault_plane.kubeconfig(tmp_path_factory.mktemp("faults") / "kubeconfig", token=token)
