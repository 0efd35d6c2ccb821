"""The shared API server for all faults, with the rights of `manifests/`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.objects import wipe
from tests.control_plane.server import ControlPlane, running_controllers
from tests.end_to_end import rights


@pytest.fixture(scope="module")
async def fault_plane(control_plane: ControlPlane) -> ControlPlane:
    """Return the shared control plane, emptied, with the rights of `manifests/base/rbac.yaml`."""
    await wipe(control_plane.admin)
    await rights.grant(control_plane.admin)
    return control_plane


@pytest.fixture(scope="module")
async def controllers(fault_plane: ControlPlane) -> AsyncIterator[None]:
    """Run kube-controller-manager, which binds volumes."""
    async with running_controllers(fault_plane):
        yield


@pytest.fixture(scope="module")
async def fault_account(fault_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of the ServiceAccount that the Deployment runs under."""
    token = await fault_plane.token_for("kube-system", "neuron-scheduler")
    return fault_plane.kubeconfig(tmp_path_factory.mktemp("faults") / "kubeconfig", token=token)
