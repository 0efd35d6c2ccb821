"""
Both roads on a real API server: our own queue, and the extender, which a caller of the tests asks like kube-scheduler.

`test_extender` has the same with a real kube-scheduler, which takes minutes to build.
"""

from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import free_port
from tests.end_to_end.process import ACQUIRED
from tests.end_to_end.test_extender import NINE, SEVEN, bound, by_default, extender, mixed
from tests.end_to_end.workload import PODS, held_cores, kubelets
from tests.support.extender_caller import ExtenderCaller

pytestmark = pytest.mark.main_job


async def test_nine_cores_and_a_count_that_does_not_exist(account: Path, empty: RestClient) -> None:
    """AWS's sample of nine cores gets cores 0 to 8; for 7 devices of a trn1.32xlarge `filter` has AWS's sentence."""
    await create_node(empty, node_manifest("inf1", "inf1.6xlarge"))
    await create_node(empty, node_manifest("trn1", "trn1.32xlarge"))
    port = free_port()
    async with extender(account, port) as process:
        await process.line(ACQUIRED)
        await process.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == 2)
        caller = ExtenderCaller(port)
        nine = await create_pod(empty, by_default("nine", neuroncore=9))
        assert await caller.schedule(nine, ["inf1"]) == "inf1"
        stored = await empty.get(f"{PODS}/nine")
        assert stored["spec"]["nodeName"] == "inf1"
        assert stored["metadata"]["annotations"]["AWS_NEURON_IDS"] == NINE
        seven = await create_pod(empty, by_default("seven", neuron=7))
        answer = await caller.ask("filter", {"Pod": seven, "Nodes": None, "NodeNames": ["trn1"]})
        assert answer["FailedNodes"] | (answer.get("FailedAndUnresolvableNodes") or {}) == {"trn1": SEVEN}
        assert await process.stop() == 0


async def test_both_roads_in_one_cluster(account: Path, empty: RestClient) -> None:
    """One process serves its own pods and a caller's on the same nodes, and no core is given twice."""
    types, pods = mixed(100, seed=26, scheduler_names=("default-scheduler", "my-scheduler"))
    await create_all(partial(create_node, empty), (node_manifest(name, kind) for name, kind in types.items()))
    port = free_port()
    async with kubelets(empty), extender(account, port, command="run") as process:
        await process.line(ACQUIRED)
        await process.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == len(types))
        caller = ExtenderCaller(port)

        async def schedule(manifest: Object) -> None:
            pod = await create_pod(empty, manifest)
            if pod["spec"]["schedulerName"] == "default-scheduler":
                assert await caller.schedule(pod, list(types))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(create_all, schedule, pods))
        await empty.wait_until(PODS, lambda pods: bound(pods) == 100)
        assert await process.stop() == 0
    items = (await empty.get(PODS))["items"]
    assert {pod["spec"]["schedulerName"] for pod in items} == {"default-scheduler", "my-scheduler"}
    held_cores(items, types)
