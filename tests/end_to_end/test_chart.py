"""
The chart on a real API server with the real helm: install, upgrade, rollback, uninstall, and install again.

Its own control plane: after the last policy with a Lease as parameter is deleted, an API server keeps the Leases as
they were then, until it is restarted (kubernetes/kubernetes#130887).
"""

import shlex
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest
import yaml

from tests.control_plane.binaries import require
from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.fence import fenced, in_force, leading, not_in_force
from tests.end_to_end.process import ROOT, until
from tests.end_to_end.workload import LEASE, placed
from tests.support.documented_commands import run_by
from tests.support.helm import CHART, RELEASE, Helm, values

IMAGE = "--set=image.repository=neuron-scheduler"
ON = ("--set", "scheduler.enabled=true", "--set", "npd.enabled=false", IMAGE)  # as AWS's documentation writes the first
POLICIES = "/apis/admissionregistration.k8s.io/v1"
KEEPER = f"{POLICIES}/validatingadmissionpolicybindings/neuron-scheduler-lease-watch"
IN_KUBE_SYSTEM = "/apis/apps/v1/namespaces/kube-system"
DEPLOYMENT = f"{IN_KUBE_SYSTEM}/deployments/my-scheduler"
# A chart like AWS's, with the two objects of it that are at stake.
AWS_CHART = {"apiVersion": "v2", "name": "neuron-helm-chart", "version": "1.9.0"}
AWS_LABELS = {"app.kubernetes.io/name": "neuron-helm-chart", "app.kubernetes.io/component": "my-scheduler"}
AWS_SPEC = {
    "selector": {"matchLabels": AWS_LABELS},
    "template": {"metadata": {"labels": AWS_LABELS}, "spec": {"containers": [{"name": "aws", "image": "aws"}]}},
}


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane with nothing installed, and with a node."""
    async with run_control_plane() as plane:
        await create_node(plane.admin, node_manifest("inf2", "inf2.24xlarge"))
        yield plane


@pytest.fixture
def helm(plane: ControlPlane, tmp_path: Path) -> Helm:
    """Return the administrator's Helm."""
    return Helm(tmp_path / "helm", plane.kubeconfig(tmp_path / "kubeconfig"))


async def run(helm: Helm, *arguments: str | Path) -> str:
    return await anyio.to_thread.run_sync(partial(helm.run, *arguments))


async def refusal(helm: Helm, *arguments: str | Path) -> str:
    return await anyio.to_thread.run_sync(partial(helm.refusal, *arguments))


async def kubectl(helm: Helm, *arguments: str | Path, given: str = "") -> str:
    """Run kubectl in the same cluster."""
    command = [str(require("kubectl")), f"--kubeconfig={helm.kubeconfig}", *map(str, arguments)]
    done = await anyio.run_process(command, input=given.encode(), cwd=ROOT)
    return done.stdout.decode()


async def lift_the_fence_and_restore(helm: Helm) -> None:
    """Do what the runbook says of a stale fence."""
    lift, restore = run_by("tests/end_to_end/test_reinstall.py::test_a_server_that_lost_the_watch")
    for line in (*lift.text.splitlines(), restore.text.splitlines()[0]):
        await kubectl(helm, *shlex.split(line, comments=True)[1:])
    await run(helm, "upgrade", "--install", RELEASE, CHART, "--reset-then-reuse-values", *ON)


async def test_a_release_from_its_installation_to_the_next_one(plane: ControlPlane, helm: Helm) -> None:
    """
    The selector never changes and the keeper stays, so a new scheduler binds, and the old one's identity is refused.

    A revision does what it says: the settings change with the upgrade and change back with the rollback.
    """
    api = plane.admin

    async def state() -> tuple[Object, int]:
        deployment = await api.get(DEPLOYMENT)
        config = await api.get("/api/v1/namespaces/kube-system/configmaps/neuron-scheduler-config")
        return deployment["spec"], yaml.safe_load(config["data"]["config.yaml"])["verbosity"]

    await run(helm, "install", RELEASE, CHART, *ON)
    installed, verbosity = await state()
    assert verbosity == 2
    await until(lambda: in_force(plane))
    async with leading(plane):
        await placed(api, "first", neuron=1)
        former = (await api.get(LEASE))["spec"]["holderIdentity"]
    keeper = (await api.get(KEEPER))["metadata"]["uid"]
    await lift_the_fence_and_restore(helm)
    assert (await state())[0]["replicas"] == 2
    await api.get(f"{POLICIES}/validatingadmissionpolicybindings/neuron-scheduler-leader")

    await run(helm, "upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set", "config.verbosity=4")
    upgraded, verbosity = await state()
    assert verbosity == 4
    assert upgraded["selector"] == installed["selector"]
    assert upgraded["template"] != installed["template"], "the pods restart"
    await run(helm, "rollback", RELEASE, "2")
    assert await state() == (installed, 2)

    await run(helm, "uninstall", RELEASE)
    assert (await api.request("GET", DEPLOYMENT))[0] == 404
    assert (await api.get(KEEPER))["metadata"]["uid"] == keeper
    await until(lambda: not_in_force(plane))

    await run(helm, "install", RELEASE, CHART, *ON)
    assert (await api.get(KEEPER))["metadata"]["uid"] == keeper, "the release has adopted it"
    assert (await api.get(DEPLOYMENT))["spec"]["selector"] == installed["selector"]
    await until(lambda: in_force(plane))
    async with leading(plane):
        await placed(api, "second", neuron=1)
        await create_pod(api, pod_manifest("third", scheduler_name="nobody"))
        assert await fenced(plane, "third", former)


async def test_from_kubectl_to_helm_and_back(plane: ControlPlane, helm: Helm) -> None:
    """Helm refuses kubectl's objects; kubectl takes Helm's over, and then an upgrade conflicts. A removal ends both."""
    ours = "manifests/my-scheduler"
    await kubectl(helm, "apply", "-k", "manifests/lease-watch")
    await kubectl(helm, "apply", "-k", ours)
    assert "cannot be imported into the current release" in await refusal(helm, "install", RELEASE, CHART, *ON)
    await kubectl(helm, "delete", "-k", ours)
    await run(helm, "install", RELEASE, CHART, *ON)
    await kubectl(helm, "apply", "-k", ours)
    assert "conflicts" in await refusal(helm, "upgrade", RELEASE, CHART, "--set", "config.verbosity=4", *ON)
    await run(helm, "uninstall", RELEASE)
    assert (await plane.admin.request("GET", DEPLOYMENT))[0] == 404
    await kubectl(helm, "apply", "-k", ours)
    await plane.admin.get(DEPLOYMENT)
    await plane.admin.get(KEEPER)


async def test_an_upgrade_changes_the_road(plane: ControlPlane, helm: Helm) -> None:
    """
    There is always one Deployment only; the keeper stays.

    Without the values of the installation, or with the scheduler switched off, an upgrade is refused: it would remove
    the scheduler.
    """

    async def upgraded(**switches: bool) -> list[str]:
        flags = values(**{f"scheduler__{name}": value for name, value in switches.items()})
        await run(helm, "upgrade", "--install", RELEASE, CHART, "--reset-then-reuse-values", IMAGE, *flags)
        items = (await plane.admin.get(f"{IN_KUBE_SYSTEM}/deployments"))["items"]
        services = (await plane.admin.get("/api/v1/namespaces/kube-system/services"))["items"]
        return [item["metadata"]["name"] for item in (*items, *services)]

    assert await upgraded(enabled=True) == ["my-scheduler"]
    assert await upgraded(defaultScheduler__enabled=True) == ["my-scheduler", "k8s-neuron-scheduler"]
    assert await upgraded(customScheduler__enabled=False) == ["k8s-neuron-scheduler", "k8s-neuron-scheduler"]
    for values_lost in ((IMAGE,), ("--reset-then-reuse-values", "--set", "scheduler.enabled=false")):
        refused = await refusal(helm, "upgrade", RELEASE, CHART, *values_lost)
        assert "would remove the Deployment kube-system/k8s-neuron-scheduler and its policies" in refused
        assert "add --reset-then-reuse-values" in refused
    assert await upgraded() == ["k8s-neuron-scheduler", "k8s-neuron-scheduler"]
    await run(helm, "uninstall", RELEASE)
    await plane.admin.get(KEEPER)
    assert await upgraded(enabled=False) == await upgraded() == [], "there is nothing to remove"
    assert await upgraded(enabled=True) == ["my-scheduler"]


async def test_the_keeper_of_the_kustomization_stays_as_it_is(plane: ControlPlane, helm: Helm) -> None:
    """So both roads can install, remove and install again in any order."""
    await kubectl(helm, "apply", "-k", "manifests/lease-watch")
    before = await plane.admin.get(KEEPER)
    await run(helm, "install", RELEASE, CHART, *ON)
    await run(helm, "upgrade", RELEASE, CHART, *ON, "--set", "replicas=1")
    assert await plane.admin.get(KEEPER) == before
    await run(helm, "uninstall", RELEASE)
    await run(helm, "install", RELEASE, CHART, "--namespace", "kube-system", *ON)
    assert await plane.admin.get(KEEPER) == before


async def test_a_release_takes_over_from_the_kustomization_and_gives_back(plane: ControlPlane, helm: Helm) -> None:
    """
    Without stopping the scheduler: the Deployment stays the same object.

    Of the two flags Helm 3 knows only the first one, and needs only that one.
    """
    for folder in ("manifests/lease-watch", "manifests/my-scheduler"):
        await kubectl(helm, "apply", "-k", folder)
    before = await plane.admin.get(DEPLOYMENT)
    flags = ("install", RELEASE, CHART, *ON)
    assert "invalid ownership metadata" in await refusal(helm, *flags)
    await run(
        helm,
        *flags,
        "--take-ownership",
        "--force-conflicts",
        "--set",
        "image.repository=registry.example/neuron-scheduler",
    )
    after = await plane.admin.get(DEPLOYMENT)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (container,) = after["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example/neuron-scheduler:")

    await kubectl(helm, "delete", "secret", "--selector", f"owner=helm,name={RELEASE}")
    await kubectl(helm, "apply", "-k", "manifests/my-scheduler")
    again = await plane.admin.get(DEPLOYMENT)
    assert again["metadata"]["uid"] == before["metadata"]["uid"]
    (container,) = again["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "neuron-scheduler"


@pytest.fixture
def aws_chart(tmp_path: Path) -> Path:
    """Return a chart with a device plugin, and with a scheduler that can be switched off, as AWS's has them."""
    folder = tmp_path / "neuron-helm-chart"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(yaml.safe_dump(AWS_CHART))
    (folder / "values.yaml").write_text("scheduler: {enabled: true}\n")
    metadata = {"name": "neuron-device-plugin", "namespace": "kube-system"}
    plugin = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": AWS_SPEC}
    labels = {"helm.sh/chart": "neuron-helm-chart-1.9.0"}
    scheduler = plugin | {"kind": "Deployment", "metadata": metadata | {"name": "my-scheduler", "labels": labels}}
    (folder / "templates" / "plugin.yaml").write_text(yaml.safe_dump(plugin))
    text = f"{{{{- if .Values.scheduler.enabled }}}}\n{yaml.safe_dump(scheduler)}{{{{- end }}}}\n"
    (folder / "templates" / "scheduler.yaml").write_text(text)
    return folder


async def test_awss_release_loses_nothing(plane: ControlPlane, helm: Helm, aws_chart: Path) -> None:
    """Its name is refused, under another name its device plugin is recognised; its scheduler has to go first."""
    await run(helm, "install", "neuron", aws_chart)
    upgraded = await refusal(helm, "upgrade", "--install", "neuron", CHART, *ON)
    assert "the release neuron is AWS's chart, and an upgrade of it to this chart would delete its" in upgraded
    installed = await refusal(helm, "upgrade", "--install", RELEASE, CHART, *ON)
    assert "there is another Deployment kube-system/my-scheduler already" in installed
    assert "--version 1.9.0 --reuse-values --set scheduler.enabled=false" in installed
    await run(helm, "upgrade", "neuron", aws_chart, "--reuse-values", "--set", "scheduler.enabled=false")
    await run(helm, "upgrade", "--install", RELEASE, CHART, *ON)
    await run(helm, "upgrade", "neuron", aws_chart, "--reuse-values")
    assert (await plane.admin.get(DEPLOYMENT))["spec"]["selector"] != AWS_SPEC["selector"]
    await plane.admin.get(f"{IN_KUBE_SYSTEM}/daemonsets/neuron-device-plugin")
