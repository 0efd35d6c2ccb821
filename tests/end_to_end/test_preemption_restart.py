"""A nomination outlives the scheduler that made it."""

from pathlib import Path

from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, run_scheduler
from tests.end_to_end.workload import PODS, add_nodes, add_priority_classes, ids_of, kubelets, placed, remove


async def test_a_nomination_outlives_a_restart(account: Path, empty: RestClient) -> None:
    """
    A scheduler is killed while the victim leaves; its successor keeps the space for the pod and evicts no other pod.

    A lower pod that came meanwhile, and would fit into the half that becomes free, has to wait.
    """
    await add_priority_classes(empty, low=10, middle=50, high=100)
    async with run_scheduler(account, *SHORT_LEASE) as first:
        await first.line(ACQUIRED)
        await add_nodes(first, empty, trn1="trn1.32xlarge")
        async with kubelets(empty):
            for name in ("victim", "neighbour"):
                await placed(empty, name, neuron=8, priorityClassName="low")
                await empty.wait_for(f"{PODS}/{name}", lambda pod: pod["status"]["phase"] == "Running")
        await create_pod(empty, pod_manifest("half", neuron=8, priorityClassName="high"))
        await empty.wait_for(f"{PODS}/half", lambda pod: pod["status"].get("nominatedNodeName") == "trn1")
        pods = await empty.wait_until(
            PODS, lambda pods: any("deletionTimestamp" in p["metadata"] for p in pods.values())
        )
        await first.kill()
    await create_pod(empty, pod_manifest("late", neuron=8, priorityClassName="middle"))
    (leaving,) = [pod for pod in pods.values() if "deletionTimestamp" in pod["metadata"]]
    async with run_scheduler(account, *SHORT_LEASE) as second:
        await second.line(ACQUIRED)
        await second.line("no fit", 'pod="default/half"', "not eligible due to a terminating pod on the nominated node")
        await second.line("Preempting pods", 'pod="default/late"')
        await remove(empty, leaving["metadata"]["name"])
        half = await placed(empty, "half")
        assert ids_of(half) == ids_of(leaving)
        assert "nodeName" not in (await empty.get(f"{PODS}/late"))["spec"]
        assert await second.stop() == 0
