"""The process follows its kubeconfig, or ends with one sentence and exit code 2."""

import datetime as dt
import json
import os
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, run_scheduler
from tests.end_to_end.workload import LEASE


async def test_acting_as_somebody_without_rights(plane: ControlPlane, tmp_path: Path) -> None:
    """An administrator's kubeconfig with `as` has the rights of that user, and of no group: exit code 2."""
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    content = json.loads(kubeconfig.read_text())
    content["users"][0]["user"]["as"] = "somebody"
    kubeconfig.write_text(json.dumps(content))
    async with run_scheduler(kubeconfig) as scheduler:
        assert await scheduler.ended() == 2
    assert "does not allow this process to" in scheduler.lines[-1]
    assert ", get pods," in scheduler.lines[-1]

    content["users"][0]["user"]["as-groups"] = ["system:masters"]
    kubeconfig.write_text(json.dumps(content))
    async with run_scheduler(kubeconfig) as scheduler:
        await scheduler.line(ACQUIRED)
        assert await scheduler.stop() == 0


async def test_a_slow_plugin_does_not_cost_the_lease(plane: ControlPlane, empty: RestClient, tmp_path: Path) -> None:
    """While a plugin hangs on the next token, the old one is used, and the Lease is renewed."""
    token = await plane.token_for("kube-system", "neuron-scheduler")
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    content = json.loads(kubeconfig.read_text())
    script = tmp_path / "plugin"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}
    content["users"][0]["user"] = {"exec": plugin}
    kubeconfig.write_text(json.dumps(content))
    script.write_text(f"#!{sys.executable}\n{HANGS_THE_SECOND_TIME.format(token=token, folder=str(tmp_path))}")
    script.chmod(0o700)
    os.mkfifo(tmp_path / "hanging")
    async with run_scheduler(kubeconfig, *SHORT_LEASE) as scheduler:
        await scheduler.line(ACQUIRED)
        await anyio.to_thread.run_sync((tmp_path / "hanging").read_bytes, abandon_on_cancel=True)
        before = await empty.get(LEASE)
        await empty.wait_for(LEASE, lambda lease: several_renewals_after(lease, before))
        assert not scheduler.lines_with("Leaderelection lost")


HANGS_THE_SECOND_TIME = """
import datetime, json, os, time
if any(name.startswith("ran-") for name in os.listdir({folder!r})):
    open({folder!r} + "/hanging", "w").close()
    time.sleep(60)
open({folder!r} + "/ran-" + str(os.getpid()), "w").close()
expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=30)
status = {{"token": {token!r}, "expirationTimestamp": expires.isoformat()}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""


def several_renewals_after(lease: Object, before: Object) -> bool:
    """Return whether so much time has passed that a short Lease without renewals is lost."""
    at, since = (dt.datetime.fromisoformat(state["spec"]["renewTime"]) for state in (lease, before))
    return (at - since).total_seconds() > 2.5
