"""Killed at any moment and started again, the scheduler rebuilds its state from pods alone."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import BOUND, SHORT_LEASE, SYNCED, run_scheduler
from tests.end_to_end.workload import PODS, all_placed, held_cores, ids_of, kubelets, on, placed, refused
from tests.faults.calls import binding_of
from tests.faults.proxy import ALWAYS, HELD, Fault, run_proxy

pytestmark = pytest.mark.main_job

TYPES = {f"trn1-{n}": "trn1.32xlarge" for n in range(4)} | {"inf1": "inf1.6xlarge", "inf2": "inf2.24xlarge"}


def burst() -> list[Object]:
    """Return pods for which there is room, in any order."""
    trn1, inf1, inf2 = on("trn1.32xlarge"), on("inf1.6xlarge"), on("inf2.24xlarge")
    return [
        *(pod_manifest(f"one-{n}", neuron=1, **trn1) for n in range(12)),
        *(pod_manifest(f"four-{n}", neuron=4, **trn1) for n in range(4)),
        *(pod_manifest(f"eight-{n}", neuron=8, **trn1) for n in range(2)),
        *(pod_manifest(f"core-{n}", neuroncore=1, **inf1) for n in range(16)),
        *(pod_manifest(f"ring-{n}", neuron=1, **inf2) for n in range(6)),
    ]


async def test_killed_in_the_middle_of_a_burst(plane: ControlPlane, account: Path, empty: RestClient) -> None:
    """No core is used twice, bound pods stay as they were, and the next run places every pod."""
    pods = burst()
    names = [pod["metadata"]["name"] for pod in pods]
    for name, instance_type in TYPES.items():
        await create_node(empty, node_manifest(name, instance_type))
    async with kubelets(empty), anyio.create_task_group() as tasks:
        tasks.start_soon(create_all, partial(create_pod, empty), pods)
        async with (
            run_proxy(plane) as proxy,
            run_scheduler(account, f"--master={proxy.url}", *SHORT_LEASE) as scheduler,
        ):
            held = proxy.add(Fault(binding_of("core-1"), HELD, times=ALWAYS))  # core-1 and core-10 to core-15
            await scheduler.line(BOUND, count=7)
            await held.taken.wait()
            await scheduler.kill()
        pods = (await empty.get(PODS))["items"]
        held_cores(pods, TYPES)
        bound = {pod["metadata"]["name"]: ids_of(pod) for pod in pods if "nodeName" in pod["spec"]}
        assert 7 <= len(bound) < len(names), "the kill came in the middle"
    async with kubelets(empty), run_scheduler(account, *SHORT_LEASE) as scheduler:
        pods = list((await all_placed(empty, names)).values())
        held_cores(pods, TYPES)
        assert bound.items() <= {pod["metadata"]["name"]: ids_of(pod) for pod in pods}.items()
        assert await scheduler.stop() == 0


async def test_a_restart_takes_nothing_back_and_knows_what_is_free(account: Path, empty: RestClient) -> None:
    """After a clean stop the next run gives out exactly what the last one left free, and reports the waiting pods."""
    await create_node(empty, node_manifest("inf2", "inf2.24xlarge"))
    async with run_scheduler(account) as scheduler:
        await placed(empty, "first", neuron=3)
        await refused(empty, "five", neuron=5)
        assert await scheduler.stop() == 0
    before = await empty.get(f"{PODS}/five")
    async with run_scheduler(account) as scheduler:
        assert ids_of(await placed(empty, "second", neuron=2)) in ((3, 4), (4, 5))
        await scheduler.line('pod="default/five"', "Insufficient aws.amazon.com/neuron")
        assert await scheduler.stop() == 0
    after = await empty.get(f"{PODS}/five")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], (
        "the condition is not written again"
    )


async def test_an_api_server_that_restarts_is_waited_for(plane: ControlPlane, account: Path, empty: RestClient) -> None:
    """The same process continues: the devices of bound pods stay in use, the next pods are placed."""
    patiently = ("--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=100s")
    await create_node(empty, node_manifest("inf2", "inf2.24xlarge"))
    async with run_scheduler(account, *patiently) as scheduler:
        before = await placed(empty, "before", neuron=3)
        await plane.components["kube-apiserver"].kill()
        await plane.components["kube-apiserver"].start()
        after = await placed(empty, "after", neuron=2)  # no kubelet admits the first pod
        held_cores([before, after], TYPES)
        assert len(scheduler.lines_with(SYNCED)) == 1
        assert await scheduler.stop() == 0
