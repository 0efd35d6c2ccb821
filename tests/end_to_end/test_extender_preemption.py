"""Space that the real kube-scheduler frees for a pod is kept for it against our own queue while its victims end."""

from functools import partial
from pathlib import Path

from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, free_port
from tests.end_to_end.kube_scheduler import NAME, run_kube_scheduler
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.end_to_end.workload import PODS, add_priority_classes, all_placed, ids_of, placed, refused, remove


async def test_victims_that_end_one_by_one_leave_a_block(plane: ControlPlane, account: Path, empty: RestClient) -> None:
    """A pod of our own queue waits all the time for one device; without the nomination it would take the first one."""
    await add_priority_classes(empty, high=100)
    await create_node(empty, node_manifest("trn1", "trn1.32xlarge"))
    low = [f"low-{number}" for number in range(16)]
    port = free_port()
    async with run_scheduler(account, f"--extender-bind-address=127.0.0.1:{port}") as process:
        await process.line(ACQUIRED)
        async with run_kube_scheduler(plane, f"http://127.0.0.1:{port}"):
            await create_all(partial(create_pod, empty), (pod_manifest(n, scheduler_name=NAME, neuron=1) for n in low))
            before = await all_placed(empty, low)
            await create_pod(empty, pod_manifest("greedy", neuron=1))
            await refused(empty, "greedy")
            await create_pod(empty, pod_manifest("high", scheduler_name=NAME, neuron=4, priorityClassName="high"))
            await process.line("Keeping space for a pod that kube-scheduler has nominated", 'pod="default/high"')
            pods = {pod["metadata"]["name"]: pod for pod in (await empty.get(PODS))["items"]}
            victims = [name for name in low if "deletionTimestamp" in pods[name]["metadata"]]
            assert len(victims) == 4
            for victim in victims:
                await remove(empty, victim)
            ids = ids_of(await placed(empty, "high"))
            assert sorted(ids) == sorted(ids_of(before[victim])[0] for victim in victims)
            assert "nodeName" not in (await empty.get(f"{PODS}/greedy"))["spec"]
