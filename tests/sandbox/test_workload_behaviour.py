"""The sandbox's controllers behave as the table says, and so does kube-controller-manager."""

from collections.abc import AsyncIterator

import pytest

from neuron_scheduler.sandbox.server import ApiServer
from tests.control_plane.server import ADMIN, ControlPlane, run_control_plane
from tests.sandbox.behaviour import OF_CONTROLLERS
from tests.support.sandbox_api import connect


@pytest.fixture(scope="module")
async def with_controllers() -> AsyncIterator[ControlPlane]:
    """Run a control plane with kube-controller-manager for all tests of this file."""
    async with run_control_plane(with_controller_manager=True) as plane:
        yield plane


@pytest.mark.parametrize("sentence", OF_CONTROLLERS)
async def test_of_the_sandbox(sentence: str) -> None:
    """The embedded server with its controllers, without a kubelet and without a scheduler."""
    async with ApiServer(kubelet=False, controllers=True).serving() as server, connect(server.url) as api:
        await OF_CONTROLLERS[sentence](api)


@pytest.mark.control_plane
@pytest.mark.parametrize("sentence", OF_CONTROLLERS)
async def test_of_a_real_controller_manager(with_controllers: ControlPlane, sentence: str) -> None:
    """The real one."""
    plane = with_controllers
    async with connect(plane.server, token=ADMIN.token, ssl_context=plane.trust) as api:
        await OF_CONTROLLERS[sentence](api)
