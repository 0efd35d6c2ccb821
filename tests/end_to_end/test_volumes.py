"""Volumes on a real API server: the volume controller binds existing ones, a stand-in provisions others."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from tests.control_plane.objects import create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.claims import (
    CLAIMS,
    VOLUMES,
    ZONE,
    add_claim,
    add_classes,
    add_volume,
    in_zone,
    provision,
    selected_node,
    with_claims,
)
from tests.end_to_end.process import ACQUIRED, BOUND, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import PODS, placed, refused

pytestmark = pytest.mark.control_plane


@pytest.fixture(scope="module")
async def volume_plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane whose controllers bind volumes, with two classes, and nodes in two zones."""
    async with run_control_plane(with_controller_manager=True) as plane:
        await rights.grant(plane.admin)
        await add_classes(plane.admin)
        for name, zone in (("a", "x"), ("b", "y")):
            node = node_manifest(name, "m5.large", labels={ZONE: zone})
            created = await plane.admin.post("/api/v1/nodes", node)
            version = {"resourceVersion": created["metadata"]["resourceVersion"]}
            await plane.admin.patch(f"/api/v1/nodes/{name}", {"metadata": version, "spec": {"taints": None}})
        yield plane


@pytest.fixture(scope="module")
async def volume_scheduler(
    volume_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SchedulerProcess]:
    """Run one scheduler; it must end without an error, even if a pod still waits for its volume."""
    token = await volume_plane.token_for("kube-system", "neuron-scheduler")
    path: Path = tmp_path_factory.mktemp("volumes") / "kubeconfig"
    async with run_scheduler(volume_plane.kubeconfig(path, token=token), "-v=4") as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler
        assert await scheduler.stop() == 0


@pytest.fixture
async def volumes(volume_plane: ControlPlane, volume_scheduler: SchedulerProcess) -> RestClient:
    """Return the administrator's client of a cluster with a scheduler and without pods that use claims."""
    await volume_plane.admin.delete(PODS, gracePeriodSeconds=0)
    await volume_scheduler.until(lambda metrics: metrics['scheduler_cache_size{type="pods"}'] == 0)
    return volume_plane.admin


async def test_a_volume_that_is_there(volumes: RestClient, volume_scheduler: SchedulerProcess) -> None:
    """The pod goes where the volume is, and the controller binds the claim before the pod is bound."""
    await add_volume(volumes, "static", nodeAffinity=in_zone("y"))
    await add_claim(volumes, "static")
    await create_pod(volumes, with_claims("static", "static"))
    pod = await placed(volumes, "static")
    assert pod["spec"]["nodeName"] == "b"
    claim = await volumes.wait_for(  # the controller writes the status last; the scheduler does not wait for it
        f"{CLAIMS}/static", lambda pod: pod["status"]["phase"] == "Bound"
    )
    assert claim["spec"]["volumeName"] == "static"
    assert claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"
    volume = await volumes.get(f"{VOLUMES}/static")
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
    await volume_scheduler.line("All PVCs for pod are bound", 'pod="default/static"')


async def test_a_volume_that_is_made(volumes: RestClient, volume_scheduler: SchedulerProcess) -> None:
    """The node is selected for the claim; other pods are bound while the pod waits for its volume."""
    await add_claim(volumes, "dynamic", "made")
    await create_pod(volumes, with_claims("dynamic", "dynamic"))
    claim = await volumes.wait_for(f"{CLAIMS}/dynamic", lambda seen: selected_node(seen) is not None)
    assert selected_node(claim) == "a"
    await placed(volumes, "passing", cpu="1m")
    assert "nodeName" not in (await volumes.get(f"{PODS}/dynamic"))["spec"]
    async with anyio.create_task_group() as tasks:
        await tasks.start(provision, volumes)
        seen = await placed(volumes, "dynamic")
        tasks.cancel_scope.cancel()
    assert seen["spec"]["nodeName"] == "a"
    await volume_scheduler.line(BOUND, 'pod="default/dynamic"')
    assert (await volumes.get(f"{CLAIMS}/dynamic"))["spec"]["volumeName"] == "made-dynamic"


async def test_a_claim_that_comes_later(volumes: RestClient) -> None:
    """The refusal names the claim, and the claim wakes the pod; ephemeral volumes get their claims."""
    await create_pod(volumes, with_claims("early", "late"))
    condition = await refused(volumes, "early")
    assert condition["message"].startswith('0/2 nodes are available: persistentvolumeclaim "late" not found.')
    assert condition["reason"] == "SchedulerError"
    await add_volume(volumes, "late")
    await add_claim(volumes, "late")
    await placed(volumes, "early")
    await add_volume(volumes, "scratch", nodeAffinity=in_zone("y"))
    template = {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "local",
        }
    }
    volume = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}
    await create_pod(volumes, pod_manifest("scratch", volumes=[volume]))
    assert (await placed(volumes, "scratch"))["spec"]["nodeName"] == "b"


async def test_a_pod_may_wait_when_the_scheduler_stops(volumes: RestClient) -> None:
    """The next leader continues with its volume; the fixture asserts that the scheduler ends without an error."""
    await add_claim(volumes, "never", "made")
    await create_pod(volumes, with_claims("never", "never"))
    await volumes.wait_for(f"{CLAIMS}/never", lambda claim: selected_node(claim) is not None)
