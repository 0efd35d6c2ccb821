"""Reports to users, autoscalers and monitoring: conditions and Events without a flood, health, metrics."""

import pytest

from tests.control_plane.objects import NEURON
from tests.control_plane.rest import RestClient
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import PODS, add_nodes, condition_of, events_of, placed, refused

pytestmark = pytest.mark.main_job

BLUE = {"team": "blue"}
AWAY = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nowhere"}}}


async def test_a_condition_is_written_only_when_it_changes(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Further attempts with the same result, or with other numbers in it, do not change the pod."""
    await add_nodes(scheduler, api, **dict.fromkeys(("a", "b", "c"), "trn1.32xlarge"))
    await api.patch("/api/v1/nodes/a", {"metadata": {"labels": BLUE}})
    alone = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [AWAY]}}
    first = await refused(api, "apart", saying="1 node(s) didn't match pod affinity", nodeSelector=BLUE, affinity=alone)
    before = await api.get(f"{PODS}/apart")
    reason = 'pod="default/apart"', "1 node(s) didn't match Pod's node affinity", "2 node(s)"
    for attempt, name in enumerate(("b", "c", "b"), start=1):
        await api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": BLUE}})
        await scheduler.line(*reason, count=attempt)
        await api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"team": None}}})
    after = await api.get(f"{PODS}/apart")
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert condition_of(after) == first
    assert len(await events_of(api, "apart", "FailedScheduling")) == 1


async def test_a_changed_reason_is_reported_at_once(api: RestClient, scheduler: SchedulerProcess) -> None:
    """A missing label is added, the reason changes: condition and Event follow, and the transition time stays."""
    await add_nodes(scheduler, api, trn1="trn1.32xlarge")
    first = await refused(api, "seven", neuron=7, nodeSelector={"team": "blue"})
    assert first["message"].startswith("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.")
    await api.patch("/api/v1/nodes/trn1", {"metadata": {"labels": {"team": "blue"}}})
    second = await refused(api, "seven", saying="does not support")
    assert second["lastTransitionTime"] == first["lastTransitionTime"]
    assert len(await events_of(api, "seven", "FailedScheduling", count=2)) == 2


async def test_a_bound_pod_gets_condition_and_event(api: RestClient, scheduler: SchedulerProcess) -> None:
    """The condition becomes True and an Event names the node, in kube-scheduler's words."""
    assert (await refused(api, "pod", neuron=1))["message"] == "no nodes available to schedule pods"
    await add_nodes(scheduler, api, inf2="inf2.xlarge")
    assert condition_of(await placed(api, "pod"))["status"] == "True"
    (event,) = await events_of(api, "pod", "Scheduled")
    assert event["note"] == "Successfully assigned default/pod to inf2 (device 0)"
    assert (event["type"], event["action"], event["reportingController"]) == ("Normal", "Binding", "my-scheduler")


async def test_the_endpoints(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Health is ok, and the metrics count devices and pods without their names."""
    await add_nodes(scheduler, api, inf1="inf1.6xlarge", trn1="trn1.32xlarge")
    await placed(api, "secret-project", neuron=4, nodeSelector={"kubernetes.io/hostname": "trn1"})
    await refused(api, "secret-plan", neuron=7)
    for path in ("/healthz", "/livez", "/readyz"):
        assert await scheduler.get(path) == (200, "ok")
    metrics = await scheduler.until(
        lambda metrics: (
            metrics['scheduler_pending_pods{queue="unschedulable"}'] == 1
            and metrics['scheduler_cache_size{type="assumed_pods"}'] == 0
        )
    )
    assert metrics['neuron_scheduler_free_devices{instance_type="inf1.6xlarge"}'] == 4
    assert metrics['neuron_scheduler_free_devices{instance_type="trn1.32xlarge"}'] == 12
    assert metrics['neuron_scheduler_largest_free_block{instance_type="trn1.32xlarge"}'] == 8
    assert metrics['neuron_scheduler_used_devices{instance_type="trn1.32xlarge"}'] == 4
    assert metrics['neuron_scheduler_withheld_devices{instance_type="trn1.32xlarge",reason="cordoned"}'] == 0
    assert metrics['neuron_scheduler_pods_waiting{cause="invalid_count"}'] == 1
    assert metrics['leader_election_master_status{name="my-scheduler"}'] == 1
    assert metrics['scheduler_unschedulable_pods{plugin="NeuronTopology",profile="my-scheduler"}'] == 1
    _, text = await scheduler.get("/metrics")
    assert "secret" not in text


async def test_a_pod_that_fails_closed_says_why(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Devices and cores in one pod are refused with a reason, and no autoscaler adds a node."""
    await add_nodes(scheduler, api, trn1="trn1.32xlarge")
    condition = await refused(api, "both", neuron=2, neuroncore=3)
    assert condition["reason"] == "SchedulerError"
    assert NEURON in condition["message"]
