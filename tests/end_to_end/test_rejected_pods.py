"""Pods that a kubelet rejects: their replacements get another node, or at least other ids."""

from tests.control_plane.rest import STRATEGIC, RestClient
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import PODS, add_nodes, placed

REASON = "UnexpectedAdmissionError"
MESSAGE = "Pod was rejected: Allocate failed due to rpc error: code = Unknown, which is unexpected"
REJECTED = f'neuron_scheduler_pods_rejected_total{{reason="{REASON}"}}'
MOST = 10


async def reject(api: RestClient, name: str) -> None:
    """Write the status of a pod that its kubelet does not admit."""
    status = {"phase": "Failed", "reason": REASON, "message": MESSAGE, "startTime": "2026-11-22T05:00:00Z"}
    await api.patch(f"{PODS}/{name}/status", {"status": status}, content_type=STRATEGIC)


async def rejections(scheduler: SchedulerProcess) -> float:
    """Return how many rejections the scheduler knows of."""
    return (await scheduler.metrics()).get(REJECTED, 0.0)


async def known(scheduler: SchedulerProcess, count: float) -> None:
    """Return when the scheduler knows of so many rejections."""
    await scheduler.until(lambda metrics: metrics.get(REJECTED, 0.0) == count)


async def test_a_node_that_rejects_every_pod_is_no_black_hole(api: RestClient, scheduler: SchedulerProcess) -> None:
    """A controller that recreates the pod as soon as it has failed does not get the same node for ever."""
    await add_nodes(scheduler, api, hole="trn1.32xlarge", well="trn1.32xlarge")
    nodes: list[str] = []
    while len(nodes) < MOST and "well" not in nodes:
        name = f"try-{len(nodes)}"
        pod = await placed(api, name, neuron=4)
        nodes.append(pod["spec"]["nodeName"])
        if nodes[-1] == "hole":
            await reject(api, name)
    assert nodes[0] == "hole"
    assert nodes[-1] == "well"
    assert len(nodes) <= 4, "of a pod or two it may not have been known yet"


async def test_a_rejected_pod_that_is_deleted_at_once(api: RestClient, scheduler: SchedulerProcess) -> None:
    """A StatefulSet deletes a failed pod before it recreates it; the scheduler still learns how it failed."""
    await add_nodes(scheduler, api, first="trn1.32xlarge", second="trn1.32xlarge")
    before = await rejections(scheduler)
    for number in range(5):
        await placed(api, f"web-{number}", neuron=1, nodeSelector={"kubernetes.io/hostname": "first"})
        await reject(api, f"web-{number}")
        await api.delete(f"{PODS}/web-{number}")
    await known(scheduler, before + 5)
    assert (await placed(api, "next", neuron=1))["spec"]["nodeName"] == "second"
