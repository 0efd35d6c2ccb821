"""An API server that has an IPv6 address only, and ports of our own on such an address."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from tests.control_plane.server import ControlPlane, free_port
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.faults.proxy import run_proxy
from tests.faults.relay import run_relay
from tests.faults.waves import Waves, waves

HOST: Final = "::1"


def has_ipv6() -> bool:
    """Return whether this machine has the loopback address of IPv6."""
    try:
        socket.create_server((HOST, 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback address ::1")


@pytest.fixture
async def wave(fault_plane: ControlPlane) -> AsyncIterator[Waves]:
    """Return pods for an empty cluster."""
    async with waves(fault_plane.admin) as wave:
        yield wave


async def test_a_kubeconfig_with_an_ipv6_address(fault_plane: ControlPlane, tmp_path: Path, wave: Waves) -> None:
    """Over TLS, whose certificate has the address: writes, reads, watches and the Lease."""
    token = await fault_plane.token_for("kube-system", "neuron-scheduler")
    async with run_relay(fault_plane.port, host=HOST) as relay:
        server = f"https://[{HOST}]:{relay.port}"
        kubeconfig = fault_plane.kubeconfig(tmp_path / "kubeconfig", token=token, server=server)
        async with run_scheduler(kubeconfig) as scheduler:
            await scheduler.line(ACQUIRED)
            for _ in range(2):
                await wave.begin()
                await wave.bound()
            assert await wave.judged() == []
            assert await scheduler.stop() == 0
        assert relay.servers[0].connections


async def test_master_and_our_own_ports(fault_plane: ControlPlane, fault_account: Path, wave: Waves) -> None:
    """`--master` takes brackets; health, metrics and the extender answer on ::1, and only there."""
    port = free_port()
    flags = (f"--bind-address={HOST}", f"--extender-bind-address=[{HOST}]:{port}")
    async with (
        run_proxy(fault_plane, host=HOST) as proxy,
        run_scheduler(fault_account, f"--master={proxy.url}", *flags) as scheduler,
        aiohttp.ClientSession() as client,
    ):
        await scheduler.line(ACQUIRED)
        await wave.begin()
        await wave.bound()
        for path in ("/livez", "/readyz", "/metrics"):
            async with client.get(f"http://[{HOST}]:{scheduler.port}{path}") as answer:
                assert answer.status == 200
        pod = {"metadata": {"name": "x", "namespace": "default", "uid": "x"}, "spec": {"containers": []}}
        question = {"Pod": pod, "NodeNames": ["trn1"]}
        async with client.post(f"http://[{HOST}]:{port}/filter", json=question) as answer:
            assert (answer.status, (await answer.json(content_type=None))["NodeNames"]) == (200, ["trn1"])
        for used in (port, scheduler.port):
            with pytest.raises(aiohttp.ClientConnectorError):
                await client.get(f"http://127.0.0.1:{used}/livez")
        assert await wave.judged() == []
        assert await scheduler.stop() == 0
