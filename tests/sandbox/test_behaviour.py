"""The sandbox behaves as the table says, and so does a real kube-apiserver."""

import pytest

from neuron_scheduler.sandbox.server import ApiServer
from tests.control_plane.binaries import RELEASE, before
from tests.control_plane.server import ADMIN, ControlPlane, run_control_plane
from tests.sandbox.behaviour import BEHAVIOURS, CLEARED, EXPIRED
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
