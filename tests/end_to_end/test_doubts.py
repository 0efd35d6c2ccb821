"""A failure of some pods is retried, reported to their owners, and delays no other pod."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler.settings.config import BIND_CONCURRENCY
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.end_to_end.workload import LEASE, PODS, all_placed, condition_of, events_of, placed, remove
from tests.faults.answers import Page, Refusal
from tests.faults.calls import binding_of, status_of
from tests.faults.proxy import ALWAYS, HELD, Behaviour, Fault, Proxy, instead, run_proxy

MANY = BIND_CONCURRENCY + 12
SHORT_TRIES = ("--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=14s")  # 0.8 s for a Binding


@pytest.fixture
async def proxy(plane: ControlPlane, empty: RestClient) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a cluster with one machine."""
    await create_node(empty, node_manifest("m5", "m5.large"))
    async with run_proxy(plane) as proxy:
        yield proxy


@pytest.mark.parametrize("behaviour", [instead(Refusal(503)), instead(Refusal(429)), instead(Page(404)), HELD], ids=str)
async def test_bindings_in_doubt_delay_no_other(
    account: Path, empty: RestClient, proxy: Proxy, behaviour: Behaviour
) -> None:
    """More of them than workers keep their places, are counted and reported, and are bound in the end."""
    broken = proxy.add(Fault(binding_of("bad"), behaviour, times=ALWAYS))
    names = [f"bad{number}" for number in range(MANY)]
    flags = (f"--master={proxy.url}", *SHORT_TRIES)
    async with run_scheduler(account, *flags) as scheduler:
        await scheduler.line(ACQUIRED)
        await create_all(partial(create_pod, empty), (pod_manifest(name, requests={"cpu": "10m"}) for name in names))
        await scheduler.until(lambda metrics: metrics["neuron_scheduler_binds_in_flight"] > BIND_CONCURRENCY)
        for name in ("good", "fine"):
            await placed(empty, name, requests={"cpu": "10m"})
        (event, *_) = await events_of(empty, "bad0", "FailedBinding")
        assert event["note"].startswith("Binding to m5 has no definite outcome after 4 tries")
        await scheduler.line("Binding has no definite outcome", 'pod="default/bad0"', "tries=4")
        metrics = await scheduler.metrics()
        assert metrics['neuron_scheduler_write_retries_total{write="binding"}'] >= 3
        broken.times = 0
        broken.release()
        await all_placed(empty, names)
        await scheduler.until(lambda metrics: metrics["neuron_scheduler_binds_in_flight"] == 0)
        assert await scheduler.stop() == 0


async def stored(api: RestClient, name: str, size: int) -> bool:
    """Create a pod with so many bytes of environment, and with annotations; return whether etcd stored it."""
    whole, remainder = divmod(size, 100_000)
    manifest = pod_manifest(name, requests={"cpu": "10m"}, annotations={"ballast": "x" * 2_000})
    manifest["spec"]["containers"][0]["env"] = [
        {"name": f"E{number}", "value": "x" * length} for number, length in enumerate([100_000] * whole + [remainder])
    ]
    status, answer = await api.request("POST", PODS, manifest)
    assert status == 201 or "too large" in answer["message"]
    return status == 201


async def lighten(api: RestClient, name: str) -> None:
    """Remove the annotations: otherwise a pod at etcd's limit cannot even be deleted."""
    await api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {"ballast": None}}})
    # Until the API server's own cache has the change, a deletion begins with the large pod, and etcd refuses it.
    await api.wait_for(f"{PODS}/{name}", lambda pod: "ballast" not in pod["metadata"].get("annotations", {}))


async def largest_size(api: RestClient, name: str) -> int:
    """Return the largest size of environment, nearly, with which etcd stores a pod of this name."""
    low, high = 1_400_000, 1_573_000
    while high - low > 32:
        size = (low + high) // 2
        if await stored(api, name, size):
            await lighten(api, name)
            await remove(api, name)
            low = size
        else:
            high = size
    return low


async def test_pods_that_can_take_no_annotations_delay_no_other(account: Path, empty: RestClient, proxy: Proxy) -> None:
    """Their Bindings are refused and not repeated; the message says what to do, and doing it helps."""
    size, names = await largest_size(empty, "big0"), ["big0", "big1", "big2"]
    bindings = proxy.add(Fault(binding_of("big"), times=3))
    async with run_scheduler(account, f"--master={proxy.url}") as scheduler:
        await scheduler.line(ACQUIRED)
        for name in names:
            assert await stored(empty, name, size)
        try:
            (event, *_) = await events_of(empty, "big0", "FailedScheduling")
            assert "the pod is too large" in event["note"]
            await scheduler.until(lambda metrics: metrics['scheduler_pending_pods{queue="unschedulable"}'] == 3)
            await placed(empty, "good", requests={"cpu": "10m"})
            assert [(one.status, b"request is too large" in one.body) for one in bindings.answers] == [(409, True)] * 3
            await scheduler.until(lambda metrics: metrics["neuron_scheduler_binds_in_flight"] == 0)
            await scheduler.line(
                "PodScheduled condition cannot be written, trying again", "etcdserver: request is too large"
            )
        finally:
            for name in names:
                await lighten(empty, name)
        await all_placed(empty, names)
        assert await scheduler.stop() == 0
    assert (await empty.get(LEASE))["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("behaviour", [instead(Refusal(503)), instead(Page(403)), HELD], ids=str)
async def test_conditions_that_cannot_be_written_delay_nothing(
    account: Path, empty: RestClient, proxy: Proxy, behaviour: Behaviour
) -> None:
    """It delays neither other conditions nor the Bindings of the same pods, which end with the condition True."""
    broken = proxy.add(Fault(status_of("bad"), behaviour, times=ALWAYS))
    names = [f"bad{number}" for number in range(10)]
    blue: dict[str, Any] = {"requests": {"cpu": "10m"}, "nodeSelector": {"team": "blue"}}
    async with run_scheduler(account, f"--master={proxy.url}") as scheduler:
        await scheduler.line(ACQUIRED)
        await create_all(partial(create_pod, empty), (pod_manifest(name, **blue) for name in names))
        await broken.taken.wait()
        await create_namespace(empty, "other")
        other = pod_manifest("good", namespace="other", **blue)
        await create_pod(empty, other)
        await empty.wait_for("/api/v1/namespaces/other/pods/good", lambda pod: bool(condition_of(pod)))
        await empty.patch("/api/v1/nodes/m5", {"metadata": {"labels": {"team": "blue"}}})
        pods = await all_placed(empty, names)
        broken.times = 0
        broken.release()
        late = await broken.answered() if behaviour is HELD else (409, "")
        assert late[0] == 409
        assert await scheduler.stop() == 0
    pods = {name: await empty.get(f"{PODS}/{name}") for name in names}
    assert {condition_of(pod)["status"] for pod in pods.values()} == {"True"}
    await empty.delete("/api/v1/namespaces/other/pods", gracePeriodSeconds=0)


async def create_namespace(api: RestClient, name: str) -> None:
    """Create a namespace with the account that its pods run under, if it is not there."""
    for path, kind in (("/api/v1/namespaces", "Namespace"), (f"/api/v1/namespaces/{name}/serviceaccounts", "")):
        metadata = {"metadata": {"name": name if kind else "default"}}
        status, answer = await api.request("POST", path, metadata)
        assert status in (201, 409), answer
