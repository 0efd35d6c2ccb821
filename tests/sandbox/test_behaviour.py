"""The sandbox behaves as the table says, and so do a real kube-apiserver and kube-controller-manager."""

from collections.abc import AsyncIterator

import pytest

from sandbox.server import ApiServer
from tests.control_plane.binaries import RELEASE, before
from tests.control_plane.server import ADMIN, ControlPlane, run_control_plane
from tests.sandbox.behaviour import BEHAVIOURS, CLEARED, EXPIRED, OF_CONTROLLERS
from tests.support.sandbox_api import connect


@pytest.mark.parametrize("sentence", BEHAVIOURS)
async def test_of_the_sandbox(sentence: str) -> None:
    """The embedded server, without a kubelet, as the real one."""
    async with ApiServer(kubelet=False).serving() as server, connect(server.url) as api:
        await BEHAVIOURS[sentence](api)


NOT_HERE = {EXPIRED, *({CLEARED} if before(RELEASE, "1.35") else ())}


@pytest.mark.control_plane
@pytest.mark.parametrize("sentence", [sentence for sentence in BEHAVIOURS if sentence not in NOT_HERE])
async def test_of_a_real_api_server(control_plane: ControlPlane, sentence: str) -> None:
    """The real one, as its administrator."""
    async with connect(control_plane.server, token=ADMIN.token, ssl_context=control_plane.trust) as api:
        await BEHAVIOURS[sentence](api)


@pytest.mark.control_plane
async def test_of_a_real_api_server_that_has_forgotten() -> None:
    """A restarted server's watch cache begins at its start: older versions are expired."""
    async with run_control_plane() as plane:
        async with connect(plane.server, token=ADMIN.token, ssl_context=plane.trust):
            await plane.components["kube-apiserver"].stop()
            await plane.components["kube-apiserver"].start()
        async with connect(plane.server, token=ADMIN.token, ssl_context=plane.trust) as api:
            await BEHAVIOURS[EXPIRED](api)


@pytest.fixture(scope="module")
async def with_controllers() -> AsyncIterator[ControlPlane]:
    """Run a control plane with kube-controller-manager for all tests of controllers."""
    async with run_control_plane(with_controller_manager=True) as plane:
        yield plane


@pytest.mark.parametrize("sentence", OF_CONTROLLERS)
async def test_of_the_sandbox_s_controllers(sentence: str) -> None:
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
