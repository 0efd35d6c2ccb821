"""Pods that a kubelet rejects: their replacements get another node, or at least other ids."""

from tests.control_plane.rest import STRATEGIC, Object, RestClient
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import PODS, add_nodes, ids_of, placed, remove

REASON = "UnexpectedAdmissionError"
MESSAGE = "Pod was rejected: Allocate failed due to rpc error: code = Unknown, which is unexpected"
REJECTED = f'neuron_scheduler_pods_rejected_total{{reason="{REASON}"}}'
ASIDE = "neuron_scheduler_nodes_set_aside"
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


async def test_the_only_node_is_used_with_other_ids(api: RestClient, scheduler: SchedulerProcess) -> None:
    """It is a preference: a pod that fits nowhere else goes there again, on ids that have not failed."""
    await add_nodes(scheduler, api, only="trn1.32xlarge")
    before = await rejections(scheduler)
    seen: list[Object] = []
    for number in range(5):
        seen.append(await placed(api, f"try-{number}", neuron=4))
        await reject(api, f"try-{number}")
        await known(scheduler, before + number + 1)
    rows = [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]
    assert [ids_of(pod) for pod in seen] == [*rows, rows[0]]
    line = await scheduler.line("Pod was rejected by its node", 'pod="default/try-0"', 'node="only"')
    assert f'ids="0,1,2,3" reason="{REASON}" err="{MESSAGE}" setAsideSeconds=60' in line


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


async def test_a_pod_that_is_deleted_by_force_was_not_rejected(api: RestClient, scheduler: SchedulerProcess) -> None:
    """It disappears like a rejected pod, and the scheduler reads it; its node is not set aside."""
    await add_nodes(scheduler, api, first="trn1.32xlarge", second="trn1.32xlarge")
    before = await rejections(scheduler)
    for number in range(3):
        assert (await placed(api, f"pod-{number}", neuron=4))["spec"]["nodeName"] == "first"
        await remove(api, f"pod-{number}")
    await placed(api, "last", neuron=16, nodeSelector={"kubernetes.io/hostname": "second"})
    metrics = await scheduler.metrics()
    assert (metrics.get(REJECTED, 0), metrics[ASIDE]) == (before, 0)
