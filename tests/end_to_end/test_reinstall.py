"""
Removing the scheduler and installing it again on the same control plane, with the documented commands.

Its own control plane: after the last policy with a Lease as parameter is deleted, an API server keeps the Leases as
they were then, until it is restarted (kubernetes/kubernetes#130887).
"""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.fence import fenced, in_force, leading, not_in_force
from tests.end_to_end.process import ROOT, until
from tests.end_to_end.workload import PODS, condition_of, events_of, placed
from tests.support.documented_commands import reader_shell, run_by

KUBECTL = Path(sys.executable).with_name("kubectl")
DEPLOYMENT = "/apis/apps/v1/namespaces/kube-system/deployments/my-scheduler"
WATCH, ALL = "manifests/lease-watch", "manifests/my-scheduler"
STALE = "neuron_scheduler_stale_fence_refusals_total"


@pytest.fixture(scope="module")
async def fenced_plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane with the scheduler installed as documented, and with a node."""
    async with run_control_plane() as plane:
        await kubectl(plane, "apply", WATCH)
        await installed(plane)
        await create_node(plane.admin, node_manifest("inf2", "inf2.24xlarge"))
        yield plane


async def kubectl(plane: ControlPlane, verb: str, folder: str) -> None:
    """Apply or delete a kustomization with the user's own kubectl."""
    kubeconfig = plane.kubeconfig(plane.folder / "admin.kubeconfig")
    command = [str(KUBECTL), verb, "-k", folder, f"--kubeconfig={kubeconfig}"]
    await anyio.run_process(command, cwd=ROOT, stderr=subprocess.STDOUT)


async def found_by_check(plane: ControlPlane) -> set[str]:
    """Return the codes of the findings of `neuron-scheduler check`."""
    kubeconfig = plane.kubeconfig(plane.folder / "admin.kubeconfig")
    command = [sys.executable, "-m", "neuron_scheduler", "check", f"--kubeconfig={kubeconfig}", "-o", "json"]
    report = json.loads((await anyio.run_process(command, cwd=ROOT, check=False)).stdout)
    return {finding["code"] for finding in report["findings"]}


async def installed(plane: ControlPlane) -> None:
    """Install the scheduler, and return when its policies are in force."""
    await kubectl(plane, "apply", ALL)
    await until(lambda: in_force(plane))


async def removed(plane: ControlPlane) -> None:
    """Remove the scheduler, and return when no policy is in force: the server has dropped their parameters, too."""
    await kubectl(plane, "delete", ALL)
    await until(lambda: not_in_force(plane))


async def test_a_server_that_lost_the_watch(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """Without lease-watch a new leader's Bindings are refused, and all say why; the runbook's steps end that."""
    plane = fenced_plane
    renounce, restore = run_by("tests/end_to_end/test_reinstall.py::test_a_server_that_lost_the_watch")
    shell = reader_shell(tmp_path, plane.kubeconfig(tmp_path / "kubeconfig"), road="my-scheduler")
    # The Lease has a holder when the watch ends, who then loses his rights, and after a while the Lease.
    async with leading(plane, killed=True):
        await kubectl(plane, "delete", WATCH)
        await removed(plane)
    await installed(plane)
    async with leading(plane) as scheduler:
        await create_pod(plane.admin, pod_manifest("refused", neuron=1))
        line = await scheduler.line("Bindings are refused by mistake")
        assert "Restart kube-apiserver" in line
        assert (await scheduler.metrics())[STALE] >= 1
        (event,) = await events_of(
            plane.admin, "refused", "FailedScheduling", met=lambda event: "Restart kube-apiserver" in event["note"]
        )
        assert "lease-watch" in event["note"]
        pod = await plane.admin.wait_for(
            f"{PODS}/refused", lambda pod: "130887" in condition_of(pod).get("message", "")
        )
        assert condition_of(pod)["reason"] == "SchedulerError"
        assert "fence-stale" in await found_by_check(plane)
        await scheduler.until(lambda metrics: metrics[STALE] >= 2)
        assert len(scheduler.lines_with("Bindings are refused by mistake")) == 1
        await kubectl(plane, "apply", WATCH)
        await create_pod(plane.admin, pod_manifest("still-refused", neuron=1))
        await scheduler.until(lambda metrics: metrics[STALE] >= 4)
        await shell.run(renounce)
        await placed(plane.admin, "refused")
        await placed(plane.admin, "still-refused")
        assert "fence-stale" not in await found_by_check(plane)
    await plane.components["kube-apiserver"].stop()
    await plane.components["kube-apiserver"].start()
    await shell.run(restore)
    assert (await plane.admin.get(DEPLOYMENT))["spec"]["replicas"] == 2
    async with leading(plane):  # a new one: while the server restarts the old one may lose its Lease
        await create_pod(plane.admin, pod_manifest("fenced", neuron=1))
        await until(lambda: fenced(plane, "fenced", "another"))
        await placed(plane.admin, "fenced")
