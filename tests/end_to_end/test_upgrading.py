"""The commands of `docs/upgrading.md`, on a cluster with the objects as they were named before."""

import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import yaml

from neuron_scheduler.capacity.placeholders import manifest
from tests.capacity.asked import asked
from tests.control_plane.binaries import require
from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.asking import PLACEHOLDERS
from tests.end_to_end.fence import ACCOUNT, fenced, leading
from tests.end_to_end.process import until
from tests.end_to_end.workload import LEASE, PODS, ids_of, placed, refused
from tests.support.documented_commands import ROOT, reader_shell, run_by
from tests.support.kustomize import customized

THIS = "tests/end_to_end/test_upgrading.py"
FORMER = "my-scheduler"
# What the two kustomizations create, except the ConfigMap, whose name has not changed, and the Deployment.
KINDS = (
    "validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,"
    "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,networkpolicies,poddisruptionbudgets"
)


async def kubectl(plane: ControlPlane, *arguments: str) -> str:
    """Run the user's own kubectl as the administrator; return what it prints."""
    kubeconfig = plane.kubeconfig(plane.folder / "admin.kubeconfig")
    command = [str(require("kubectl")), f"--kubeconfig={kubeconfig}", *arguments]
    done = await anyio.run_process(command, cwd=ROOT, check=False, stderr=subprocess.STDOUT)
    assert done.returncode == 0, (arguments, done.stdout.decode())
    return done.stdout.decode()


async def former_objects(plane: ControlPlane) -> list[Object]:
    """Return the objects of both kustomizations with their former names and the Deployment's former selector."""
    text = "---\n".join([await kubectl(plane, "kustomize", f"manifests/{folder}") for folder in ("lease-watch", "")])
    return [_former(item) for item in yaml.safe_load_all(text) if item["kind"] != "ConfigMap"]


def _former(item: Object) -> Object:
    text = json.dumps(item).replace(f"kube-system:{ACCOUNT}", f"kube-system:{FORMER}")
    text = re.sub(rf'("(?:name|policyName|serviceAccountName)": "){ACCOUNT}', rf"\1{FORMER}", text)
    former: Object = json.loads(text)
    if former["kind"] == "Deployment":
        del former["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        del former["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
    return former


@pytest.fixture
async def former_plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane with the objects as they were named before, and with a node."""
    async with run_control_plane(with_controller_manager=True) as plane:
        for item in await former_objects(plane):
            await plane.admin.apply(item, namespace=item["metadata"].get("namespace", "default"))
        await create_node(plane.admin, node_manifest("inf2", "inf2.48xlarge"))
        yield plane


@pytest.mark.control_plane
async def test_from_the_old_names(former_plane: ControlPlane, tmp_path: Path) -> None:
    """
    Running pods keep their devices, the Lease fences before and after, and nothing of the old names stays.

    The new keeper then keeps the watch of the Lease while the fence is deleted and created again.
    """
    plane, (first, second, third, fourth) = former_plane, run_by(f"{THIS}::test_from_the_old_names")
    shell = reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig"))
    await create_pod(plane.admin, pod_manifest("unscheduled", scheduler_name="nobody"))
    async with leading(plane, FORMER):
        before = await placed(plane.admin, "before", neuron=4)
        await until(lambda: fenced(plane, "unscheduled", "nobody", FORMER))
    await shell.run(first)
    await shell.run(second)
    async with leading(plane):
        await refused(plane.admin, "meanwhile", saying="only the Neuron scheduler may give a pod", neuron=2)
        await shell.run(third)
        meanwhile = await placed(plane.admin, "meanwhile")
    await shell.run(fourth)
    left = await kubectl(plane, "get", KINDS, "--all-namespaces", "--output=name")
    assert [name for name in left.splitlines() if FORMER in name] == []
    assert set(ids_of(before)).isdisjoint(ids_of(meanwhile))
    assert (await plane.admin.get(f"{PODS}/before"))["metadata"]["annotations"] == before["metadata"]["annotations"]
    former = (await plane.admin.get(LEASE))["spec"]["holderIdentity"]
    async with leading(plane):
        assert (await plane.admin.get(LEASE))["spec"]["holderIdentity"] != former
        await placed(plane.admin, "after", neuron=3)
        await until(lambda: fenced(plane, "unscheduled", "nobody"))
    await kubectl(plane, "delete", "-k", "manifests/")

    async def gone() -> bool:
        return "neuron-scheduler-leader" not in await kubectl(plane, "get", KINDS, "--output=name")

    await until(gone)
    await kubectl(plane, "apply", "-k", "manifests/")
    async with leading(plane):
        await placed(plane.admin, "again", neuron=1)
        await until(lambda: fenced(plane, "unscheduled", "nobody"))


@pytest.mark.control_plane
async def test_back_to_a_version_without_capacity_requests(tmp_path: Path) -> None:
    """What was asked for is gone with its namespace, and with it the rights and policies of the component."""
    (commands,) = run_by(f"{THIS}::test_back_to_a_version_without_capacity_requests")
    async with run_control_plane(with_controller_manager=True) as plane:
        await kubectl(plane, "apply", "-k", "manifests/lease-watch")
        await kubectl(plane, "apply", "-k", str(customized(".", tmp_path / "asking", "capacity-requests")))
        await plane.admin.post(PLACEHOLDERS, manifest(asked(), "registry.example/pause"))
        await reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig")).run(commands)
        kinds = "namespaces,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,roles,pods"
        left = await kubectl(plane, "get", kinds, "--all-namespaces", "--output=name")
        assert [name for name in left.splitlines() if "capacity" in name] == []
        assert "validatingadmissionpolicy.admissionregistration.k8s.io/neuron-scheduler-leader" in left.splitlines()
