"""A token that is revoked while the process runs: it waits for the file to be replaced, and loses nothing meanwhile."""

from pathlib import Path
from typing import Final

from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, run_scheduler, until
from tests.end_to_end.workload import LEASE
from tests.faults.waves import waves

ACCOUNT: Final = "/api/v1/namespaces/kube-system/serviceaccounts/neuron-scheduler/token"
SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"
REFUSED: Final = "Error scheduling pod; retrying"
PATIENTLY: Final = ("--leader-elect-lease-duration=100s", "--leader-elect-renew-deadline=98s")
UNUSABLE: Final = ("", "rotating", "\x00\x1b[31m", None)
"""What the file has while it is replaced; None: there is no file."""


async def bound_token(api: RestClient, secret: str) -> str:
    """Return a token that is valid as long as a Secret exists."""
    stored = await api.post(SECRETS, {"metadata": {"name": secret}})
    reference = {"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": stored["metadata"]["uid"]}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    spec = {"expirationSeconds": 3600, "boundObjectRef": reference}
    return str((await api.post(ACCOUNT, request | {"spec": spec}))["status"]["token"])


async def test_a_revoked_token(fault_plane: ControlPlane, tmp_path: Path) -> None:
    """The API server answers 401 to everything, whatever the file has meanwhile; then all pods are bound."""
    api, file = fault_plane.admin, tmp_path / "token"
    await fault_plane.token_for("kube-system", "neuron-scheduler")  # the account exists
    old, new = await bound_token(api, "revoked"), await bound_token(api, "valid")
    file.write_text(old)
    kubeconfig = fault_plane.kubeconfig(tmp_path / "kubeconfig", token_file=file)
    async with waves(api) as wave, run_scheduler(kubeconfig, *PATIENTLY) as scheduler:
        await scheduler.line(ACQUIRED)
        await wave.begin()
        await wave.bound()
        await api.delete(f"{SECRETS}/revoked")
        async with fault_plane.client(old) as client:

            async def revoked() -> bool:
                return (await client.request("GET", "/api/v1/nodes"))[0] == 401

            await until(revoked)  # the API server remembers for 10 s that a token was valid
        await wave.begin()
        for text in UNUSABLE:
            seen = len(scheduler.lines_with(REFUSED))
            await scheduler.line(REFUSED, count=seen + 1)
            file.unlink() if text is None else file.write_text(text)
        file.write_text(new)
        await wave.bound()
        assert await wave.judged() == []
        assert (await api.get(LEASE))["spec"]["leaseTransitions"] == 0
        assert await scheduler.stop() == 0
    await api.delete(f"{SECRETS}/valid")
    assert "Traceback" not in scheduler.log
