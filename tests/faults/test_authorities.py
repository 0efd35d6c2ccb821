"""A file of certificate authorities that is replaced while the process runs, and connections that are made anew."""

import json
from pathlib import Path
from typing import Final

from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.faults.relay import run_relay
from tests.faults.waves import waves
from tests.support.certificates import Authority

PATIENTLY: Final = ("--leader-elect-lease-duration=100s", "--leader-elect-renew-deadline=98s")
UNTRUSTED: Final = "not trusted"
KEPT: Final = "Could not reload the certificates, keeping those in use"
UNREADABLE: Final = (b"-----BEGIN CERTIFICATE-----\nMII", None)
"""What the file has while it is replaced; None: there is no file."""


async def test_authorities_that_are_replaced(fault_plane: ControlPlane, tmp_path: Path) -> None:
    """What cannot be read changes nothing; others are used at once, and pods are bound once the right ones are back."""
    file = tmp_path / "ca.crt"
    right = fault_plane.ca_file.read_bytes()
    file.write_bytes(right)
    token = await fault_plane.token_for("kube-system", "neuron-scheduler")
    async with run_relay(fault_plane.port) as relay:
        path = fault_plane.kubeconfig(tmp_path / "kubeconfig", token=token, server=f"https://127.0.0.1:{relay.port}")
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["certificate-authority"] = str(file)
        path.write_text(json.dumps(config))
        async with waves(fault_plane.admin) as wave, run_scheduler(path, *PATIENTLY) as scheduler:
            await scheduler.line(ACQUIRED)
            for number, content in enumerate(UNREADABLE, start=1):
                file.unlink() if content is None else file.write_bytes(content)
                await scheduler.line(KEPT, count=number)
                for server in relay.servers:
                    server.reset()
                await wave.begin()
                await wave.bound()
            file.write_bytes(Authority().pem)
            seen = len(scheduler.lines_with(UNTRUSTED))
            await wave.begin()
            for server in relay.servers:
                server.reset()
            await scheduler.line(UNTRUSTED, count=seen + 1)
            file.write_bytes(right + Authority().pem)
            await wave.bound()
            assert await wave.judged() == []
            assert await scheduler.stop() == 0
        assert "Traceback" not in scheduler.log
