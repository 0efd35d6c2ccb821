"""docs/upgrading.md: its commands leave an older installation behind, and none of its objects."""

import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.control_plane.binaries import require
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.support.documented_commands import ROOT, reader_shell, run_by

THIS = "tests/end_to_end/test_upgrading.py"
# Where the objects were called `my-scheduler`, with the same suffixes as today.
RENAMED = re.compile(
    r"((?:name|policyName|serviceAccountName): |serviceaccount:kube-system:)neuron-scheduler(?!-config)"
)
KINDS = {
    "/api/v1/namespaces/kube-system": ("serviceaccounts",),
    "/apis/rbac.authorization.k8s.io/v1": ("clusterroles", "clusterrolebindings"),
    "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system": ("roles", "rolebindings"),
    "/apis/admissionregistration.k8s.io/v1": (
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    ),
    "/apis/networking.k8s.io/v1/namespaces/kube-system": ("networkpolicies",),
    "/apis/policy/v1/namespaces/kube-system": ("poddisruptionbudgets",),
    "/apis/apps/v1/namespaces/kube-system": ("deployments",),
}
pytestmark = pytest.mark.control_plane


@pytest.fixture
async def upgraded_plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane with the controllers that delete a Deployment in the foreground."""
    async with run_control_plane(with_controller_manager=True) as plane:
        yield plane


async def names(api: RestClient) -> set[str]:
    """Return `kind/name` of everything of the listed kinds that has the scheduler's old or new name."""
    listed: set[str] = set()
    for path, plurals in KINDS.items():
        for plural in plurals:
            items: list[Object] = (await api.get(f"{path}/{plural}"))["items"]
            listed |= {f"{plural}/{item['metadata']['name']}" for item in items}
    return {name for name in listed if re.search(r"/(my|neuron)-scheduler", name)}


async def install_old(kubeconfig: Path) -> None:
    """Apply today's manifests with the names that they once had, on which alone the page's commands depend."""
    kubectl = str(require("kubectl"))
    for folder in ("manifests/lease-watch", "manifests/"):
        rendered = await anyio.run_process([kubectl, "kustomize", folder], cwd=ROOT)
        old = RENAMED.sub(r"\1my-scheduler", rendered.stdout.decode())
        apply = [kubectl, f"--kubeconfig={kubeconfig}", "apply", "-f", "-"]
        await anyio.run_process(apply, input=old.encode(), stderr=subprocess.STDOUT)


async def test_from_the_old_names(upgraded_plane: ControlPlane, tmp_path: Path) -> None:
    """Afterwards the cluster has what a new installation has, under the new names only."""
    plane = upgraded_plane
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    await install_old(kubeconfig)
    before = await names(plane.admin)
    assert not [name for name in before if "/neuron-scheduler" in name]
    shell = reader_shell(tmp_path, kubeconfig)
    for block in run_by(f"{THIS}::{test_from_the_old_names.__name__}"):
        await shell.run(block)
    kept = "deployments/my-scheduler"
    assert kept in before
    assert await names(plane.admin) == {kept} | {name.replace("/my-", "/neuron-") for name in before - {kept}}
