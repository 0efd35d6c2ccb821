"""
The road with the default scheduler, installed from manifests/default-scheduler: the real kube-scheduler and policies.

The replicas run with the arguments and settings that the manifests give them; only addresses and paths are the test's.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ControlPlane, free_port, run_control_plane
from tests.end_to_end.fence import in_force
from tests.end_to_end.kube_scheduler import run_kube_scheduler
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, SchedulerProcess, run_scheduler, until
from tests.end_to_end.workload import ids_of, placed, refused
from tests.support.kustomize import kubectl, rendered

ROAD = "default-scheduler"


@pytest.fixture(scope="module")
async def fenced_plane() -> AsyncIterator[ControlPlane]:
    """Run an API server on which the road is installed as documented, and whose policies are in force."""
    async with run_control_plane() as plane:
        kubeconfig = plane.kubeconfig(plane.folder / "kubeconfig")
        for folder in ("manifests/lease-watch", f"manifests/{ROAD}"):
            await anyio.to_thread.run_sync(partial(kubectl, "apply", "-k", folder, "--kubeconfig", kubeconfig))
        await until(lambda: in_force(plane))
        await create_node(plane.admin, node_manifest("inf2", "inf2.48xlarge"))
        await create_node(plane.admin, node_manifest("plain", "m5.large"))
        yield plane


@asynccontextmanager
async def replica(
    plane: ControlPlane, items: Mapping[str, Object], folder: Path, port: int
) -> AsyncIterator[SchedulerProcess]:
    """Run a replica of the Deployment with the files of a folder, until the block is left."""
    (folder / "config.yaml").write_text(items["ConfigMap/neuron-scheduler-config"]["data"]["config.yaml"])
    (container,) = items["Deployment/k8s-neuron-scheduler"]["spec"]["template"]["spec"]["containers"]
    command, *flags = container["args"]
    given = [re.sub(r"/etc/[\w-]+", str(folder), flag).replace("=:12345", f"=127.0.0.1:{port}") for flag in flags]
    token = await plane.token_for("kube-system", "neuron-scheduler")
    kubeconfig = plane.kubeconfig(folder / "kubeconfig", token=token)
    async with run_scheduler(kubeconfig, *given, *SHORT_LEASE, command=command) as process:
        yield process


def with_neuron(name: str, neuron: int) -> Object:
    """Return a pod that names no scheduler."""
    pod = pod_manifest(name, neuron=neuron)
    del pod["spec"]["schedulerName"]
    return pod


async def test_a_pod_that_names_no_scheduler_gets_devices(fenced_plane: ControlPlane, tmp_path: Path) -> None:
    """While no replica answers, it waits, and pods without Neuron do not; a new replica places it beside the first."""
    plane, items, port = fenced_plane, rendered(f"manifests/{ROAD}"), free_port()
    async with run_kube_scheduler(plane, f"http://127.0.0.1:{port}"):
        async with replica(plane, items, tmp_path, port) as process:
            await process.line(ACQUIRED)
            await create_pod(plane.admin, with_neuron("first", 3))
            first = await placed(plane.admin, "first")
            assert (first["spec"]["schedulerName"], ids_of(first)) == ("default-scheduler", (0, 1, 2))
            assert await process.stop() == 0
        await create_pod(plane.admin, with_neuron("second", 2))
        await refused(plane.admin, "second", saying="connection refused")
        await placed(plane.admin, "without", scheduler_name="default-scheduler")
        async with replica(plane, items, tmp_path, port):
            assert ids_of(await placed(plane.admin, "second")) == (3, 4)
