"""
README.md and docs/eks.md: a reader installs, verifies, upgrades and removes the scheduler as they are written.

Deployments are rolled out by the real controllers and by simulated kubelets. The scheduler itself is one process with
the token and the configuration that its pods have.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_node, node_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.process import ACQUIRED, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import events_of
from tests.support.documented_commands import Shell, reader_shell, run_by

THIS = "tests/end_to_end/test_readme.py"
SYSTEM = "/namespaces/kube-system"
CONFIGS = f"/api/v1{SYSTEM}/configmaps"
DEPLOYMENT = f"/apis/apps/v1{SYSTEM}/deployments/my-scheduler"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
OURS = {"labelSelector": "app.kubernetes.io/name=neuron-scheduler"}
REGISTRY = {"REGISTRY": "registry.example"}

# As AWS's chart installs it; its pods are run by the simulated kubelets.
DEVICE_PLUGIN = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "neuron-device-plugin-daemonset", "namespace": "kube-system"},
    "spec": {
        "selector": {"matchLabels": {"name": "neuron-device-plugin-ds"}},
        "template": {
            "metadata": {"labels": {"name": "neuron-device-plugin-ds"}},
            "spec": {
                "serviceAccountName": "neuron-device-plugin",
                "containers": [{"name": "neuron-device-plugin", "image": "registry.example/neuron-device-plugin:1"}],
            },
        },
    },
}

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(300)]


@pytest.fixture
async def cluster() -> AsyncIterator[ControlPlane]:
    """Run a control plane with its controllers, a default scheduler and the kubelet of its one node."""
    async with run_control_plane(with_controller_manager=True, with_scheduler={}) as plane:
        labels = {"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": ""}
        await create_node(plane.admin, node_manifest("trn1-a", "trn1.32xlarge", labels=labels))
        async with anyio.create_task_group() as kubelets:
            kubelets.start_soon(FakeKubelet(plane.admin).run)
            await plane.admin.post(f"/apis/apps/v1{SYSTEM}/daemonsets", DEVICE_PLUGIN)
            yield plane
            kubelets.cancel_scope.cancel()


@pytest.fixture
def shell(cluster: ControlPlane, tmp_path: Path) -> Shell:
    """Return the reader's shell."""
    return reader_shell(tmp_path, cluster.kubeconfig(tmp_path / "kubeconfig"))


@asynccontextmanager
async def active(plane: ControlPlane, folder: Path) -> AsyncIterator[SchedulerProcess]:
    """Run one of the pods with the configuration and the rights that are installed; it leads."""
    pods = await plane.admin.wait_until(f"/api/v1{SYSTEM}/pods", bool, labelSelector=OURS["labelSelector"])
    pod = next(iter(pods.values()))
    token = await plane.token_for("kube-system", "neuron-scheduler")
    kubeconfig = plane.kubeconfig(folder / "account.kubeconfig", token=token)
    config = folder / "config.yaml"
    mounted = pod["spec"]["volumes"][0]["configMap"]["name"]
    config.write_text((await plane.admin.get(f"{CONFIGS}/{mounted}"))["data"]["config.yaml"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POD_NAME", pod["metadata"]["name"])
        async with run_scheduler(kubeconfig, f"--config={config}") as scheduler:
            await scheduler.line(ACQUIRED)
            yield scheduler
            assert await scheduler.stop() == 0


async def images(plane: ControlPlane) -> set[str]:
    """Return the images of the pods of our Deployments that are not being deleted."""
    pods: list[Object] = (await plane.admin.get(f"/api/v1{SYSTEM}/pods", **OURS))["items"]
    present = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return {pod["spec"]["containers"][0]["image"] for pod in present}


async def image_of(plane: ControlPlane, shell: Shell) -> str:
    """Return the image of all these pods: its tag is the revision of the reader's clone."""
    (image,) = await images(plane)
    tag = await shell.output("git describe --tags --always --dirty")
    assert image == f"registry.example/neuron-scheduler:{tag.strip()}"
    assert "dirty" not in tag
    return image


async def rolled_out(shell: Shell, deployment: str = "my-scheduler") -> None:
    """Return when the Deployment is rolled out, and no pod of an earlier template is left."""
    await shell.output(f"kubectl rollout status --namespace kube-system --timeout=60s deployment/{deployment}")


async def committed(shell: Shell) -> None:
    """Pull a new revision."""
    await shell.output("git -c user.name=a -c user.email=a@example.com commit --quiet --allow-empty --message=next")


async def configured(shell: Shell) -> None:
    """Change a setting as the kustomization's comments say, and apply it."""
    folder = shell.folder / "manifests"
    settings = (folder / "my-scheduler" / "config.yaml").read_text()
    (folder / "config.yaml").write_text(settings.replace("verbosity: 2", "verbosity: 4"))
    kustomization = folder / "kustomization.yaml"
    begin, end = "# configMapGenerator:", "# With other schedulers"
    before, lines, after = re.split(f"({begin}.*)(?={end})", kustomization.read_text(), flags=re.DOTALL)
    kustomization.write_text(before + re.sub(r"^# ", "", lines, flags=re.MULTILINE) + after)
    await shell.output("kubectl apply -k manifests/")


async def revision_is_clean(shell: Shell) -> bool:
    """Return whether no step has changed a tracked file, or left a file that git sees."""
    return not await shell.output("git status --porcelain")


async def left(plane: ControlPlane) -> set[str]:
    """Return which of our admission policies are there."""
    policies: list[Object] = (await plane.admin.get(POLICIES, **OURS))["items"]
    return {policy["metadata"]["name"] for policy in policies}


async def test_with_kubectl(cluster: ControlPlane, shell: Shell, tmp_path: Path) -> None:
    """The example pod gets its devices; a new revision and changed settings are rolled out; only lease-watch stays."""
    check, install, verify, remove = run_by(f"{THIS}::test_with_kubectl")
    await shell.run(check)
    await shell.run(install, replaced=REGISTRY)
    async with active(cluster, tmp_path) as scheduler:
        output = await shell.run(verify)
        assert 'deployment "my-scheduler" successfully rolled out' in output
        holder = (await cluster.admin.get(f"/apis/coordination.k8s.io/v1{SYSTEM}/leases/my-scheduler"))["spec"]
        assert holder["holderIdentity"] in output
        assert "0,1,2,3" in next(line for line in output.splitlines() if "AWS_NEURON_IDS" in line)
        (event,) = await events_of(cluster.admin, "four-devices-on-trn1", "Scheduled")
        assert event["note"].endswith("to trn1-a (devices 0-3)")
        first = await image_of(cluster, shell)
        await committed(shell)
        await shell.run(install, replaced=REGISTRY)
        await rolled_out(shell)
        assert await image_of(cluster, shell) != first
        before = (await cluster.admin.get(DEPLOYMENT))["metadata"]["generation"]
        await configured(shell)
        await rolled_out(shell)
        after = (await cluster.admin.get(DEPLOYMENT))["metadata"]["generation"]
        assert after == before + 1
        assert scheduler.lines_with("E1") == []
    assert await revision_is_clean(shell)
    await shell.run(remove)
    assert (await cluster.admin.request("GET", DEPLOYMENT))[0] == 404
    assert await left(cluster) == {"neuron-scheduler-lease-watch"}
    assert (await cluster.admin.get(f"/api/v1{SYSTEM}/configmaps", **OURS))["items"] == []


async def test_on_eks(cluster: ControlPlane, shell: Shell, tmp_path: Path) -> None:
    """The steps of docs/eks.md end with a first pod that has its devices, and with nothing that needs action."""
    check, install, first_pod = run_by(f"{THIS}::test_on_eks")
    await shell.run(check)
    assert 'deployment "my-scheduler" successfully rolled out' in await shell.run(install, replaced=REGISTRY)
    async with active(cluster, tmp_path):
        output = await shell.run(first_pod)
        assert "0,1,2,3" in next(line for line in output.splitlines() if "AWS_NEURON_IDS" in line)
        assert "Nothing needs action." in output


async def test_a_namespace_that_may_scrape(cluster: ControlPlane, shell: Shell) -> None:
    """The namespace has the label that the NetworkPolicy selects."""
    (block,) = run_by(f"{THIS}::test_a_namespace_that_may_scrape")
    await shell.run(block, replaced={"NAME": "default"})
    assert (await cluster.admin.get("/api/v1/namespaces/default"))["metadata"]["labels"]["metrics"] == "enabled"


async def extender_is_installed(plane: ControlPlane) -> None:
    """Assert that the Deployment and the Service of AWS's name are there, and no other Deployment."""
    deployments: list[Object] = (await plane.admin.get(f"/apis/apps/v1{SYSTEM}/deployments"))["items"]
    services: list[Object] = (await plane.admin.get(f"/api/v1{SYSTEM}/services"))["items"]
    assert [item["metadata"]["name"] for item in (*deployments, *services)] == ["k8s-neuron-scheduler"] * 2
    (container,) = deployments[0]["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "extender"
    assert [port["port"] for port in services[0]["spec"]["ports"]] == [12345]


async def test_the_extender_with_kubectl(cluster: ControlPlane, shell: Shell) -> None:
    """The extender of the default scheduler is rolled out."""
    _, install, _, _ = run_by(f"{THIS}::test_with_kubectl")
    (choose,) = run_by(f"{THIS}::test_the_extender_with_kubectl")
    await shell.run(choose)
    await shell.run(install, replaced=REGISTRY)
    await rolled_out(shell, "k8s-neuron-scheduler")
    await extender_is_installed(cluster)


async def test_the_extender_with_helm(cluster: ControlPlane, shell: Shell) -> None:
    """The same objects from the chart, with the values of AWS's command."""
    (install,) = run_by(f"{THIS}::test_the_extender_with_helm")
    await shell.run(install, replaced=REGISTRY)
    await rolled_out(shell, "k8s-neuron-scheduler")
    await extender_is_installed(cluster)


async def test_with_helm(cluster: ControlPlane, shell: Shell, tmp_path: Path) -> None:
    """A release is installed, upgraded to another revision, rolled back and removed; only lease-watch stays."""
    install, back, remove = run_by(f"{THIS}::test_with_helm")
    await shell.run(install, replaced=REGISTRY)
    async with active(cluster, tmp_path):
        await rolled_out(shell)
        first = await image_of(cluster, shell)
        await committed(shell)
        await shell.run(install, replaced=REGISTRY)
        await rolled_out(shell)
        assert await image_of(cluster, shell) != first
        await shell.run(back)
        await rolled_out(shell)
        assert await images(cluster) == {first}
    await shell.run(remove)
    assert (await cluster.admin.request("GET", DEPLOYMENT))[0] == 404
    assert await left(cluster) == {"neuron-scheduler-lease-watch"}
