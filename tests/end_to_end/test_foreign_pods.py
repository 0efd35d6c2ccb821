"""Pods that other schedulers bound: readable ids count, others may be anywhere, and no device is given twice."""

from typing import Any

import pytest

from tests.control_plane.objects import bind, create_pod, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import PODS, add_nodes, events_of, ids_of, kubelets, placed, refused, remove

UNKNOWN = "0/1 nodes are available: 1 node(s) had a pod with an unknown Neuron allocation."
WARNING = "Pod uses Neuron devices, but their ids are unknown"
EVENT = "NeuronAllocationUnknown"
CONFLICT = "Pods claim the same Neuron cores"


async def bound_elsewhere(
    api: RestClient, name: str, node: str, annotations: dict[str, str] | None = None, **request: Any
) -> Object:
    """Bind a pod of another scheduler, with the annotations that it writes."""
    pod = await create_pod(api, pod_manifest(name, scheduler_name="another", **request))
    await bind(api, pod, node, annotations)
    return pod


async def has_seen_all(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Return when the scheduler has seen every change of a pod made so far, as watch and log are in their order."""
    marker = ("Unable to schedule pod; no fit; waiting", 'pod="default/marker"')
    before = len(scheduler.lines_with(*marker))
    await refused(api, "marker", neuron=99)
    await scheduler.line(*marker, count=before + 1)
    await remove(api, "marker")


def complaints(scheduler: SchedulerProcess, *names: str) -> list[int]:
    """Return how many warnings and errors about each pod are in the log."""
    lines = [line for line in scheduler.lines if line[:1] in "WE"]
    return [sum(f'pod="default/{name}"' in line for line in lines) for name in names]


@pytest.mark.parametrize(
    ("instance_type", "request_", "annotations", "left", "ids"),
    [
        ("inf2.24xlarge", {"neuron": 2}, {"AWS_NEURON_IDS": "2,3"}, {"neuron": 2}, {(0, 1), (4, 5)}),
        (
            "inf1.6xlarge",
            {"neuroncore": 3},
            {"AWS_NEURON_IDS": "4,5,6", "NEURON_RESOURCE_TYPE": "aws.amazon.com/neuroncore"},
            {"neuron": 2},
            {(2, 3)},
        ),
    ],
    ids=["AWS's extension, devices", "HAMi, cores"],
)
async def test_readable_allocations_are_read(
    api: RestClient,
    scheduler: SchedulerProcess,
    *,
    instance_type: str,
    request_: dict[str, int],
    annotations: dict[str, str],
    left: dict[str, int],
    ids: set[tuple[int, ...]],
) -> None:
    """Ids of another scheduler count, in every known form of the annotations, without a warning."""
    before = len(scheduler.lines_with('pod="default/theirs"'))  # of other tests
    await add_nodes(scheduler, api, node=instance_type)
    await bound_elsewhere(api, "theirs", "node", annotations, **request_)
    await has_seen_all(api, scheduler)
    async with kubelets(api):  # the device plugin cannot confuse the two once the other pod has started
        assert ids_of(await placed(api, "ours", **left)) in ids
    metrics = await scheduler.metrics()
    assert metrics["neuron_scheduler_unknown_holders"] == 0
    assert metrics["neuron_scheduler_conflicting_cores"] == 0
    assert len(scheduler.lines_with('pod="default/theirs"')) == before


@pytest.mark.parametrize(
    ("name", "request_", "annotations"),
    [
        ("one-device", {"neuron": 1}, {}),
        ("out-of-range", {"neuron": 2}, {"AWS_NEURON_IDS": "5,6"}),
    ],
)
async def test_an_unknown_holder_may_be_anywhere(
    api: RestClient,
    scheduler: SchedulerProcess,
    *,
    name: str,
    request_: dict[str, int],
    annotations: dict[str, str],
) -> None:
    """Until it ends, its node gets one-device pods by count and no in-between pods; log, Event and refusal say so."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    await bound_elsewhere(api, name, "inf2", annotations, **request_)
    await has_seen_all(api, scheduler)
    message = (await refused(api, "pair", neuron=2))["message"]
    assert message.startswith(UNKNOWN)
    assert message.endswith(f"Unknown ids: inf2 is blocked by default/{name} (schedulerName another).")
    await placed(api, "single", neuron=1)
    await api.patch(f"{PODS}/{name}", {"metadata": {"labels": {"changed": "yes"}}})
    await has_seen_all(api, scheduler)
    assert complaints(scheduler, name) == [1]
    assert WARNING in scheduler.lines_with(f'pod="default/{name}"')[0]
    (event,) = await events_of(api, name, EVENT)
    assert event["type"] == "Warning"
    assert "Until it ends, node inf2 gets no pod that asks for more than one device or core" in event["note"]
    await scheduler.until(lambda metrics: metrics["neuron_scheduler_unknown_holders"] == 1)
    await remove(api, name)
    pair, single = await placed(api, "pair"), await api.get(f"{PODS}/single")
    assert not set(ids_of(pair)) & set(ids_of(single))
    await scheduler.until(lambda metrics: metrics["neuron_scheduler_unknown_holders"] == 0)


async def test_conflicting_claims_hold_until_both_are_gone(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Two pods that name the same device are reported once; no third pod gets it while one of them runs."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    await bound_elsewhere(api, "claims", "inf2", {"AWS_NEURON_IDS": "0,1,2"}, neuron=3)
    await bound_elsewhere(api, "claims-too", "inf2", {"AWS_NEURON_IDS": "2,3"}, neuron=2)
    await api.patch(f"{PODS}/claims-too", {"metadata": {"labels": {"changed": "yes"}}})
    await has_seen_all(api, scheduler)
    assert complaints(scheduler, "claims", "claims-too") == [0, 1]
    assert 'other="default/claims"' in scheduler.lines_with(CONFLICT)[0]
    for name, rival in (("claims", "claims-too"), ("claims-too", "claims")):
        (event,) = await events_of(api, name, "NeuronConflict")
        assert f"default/{rival}" in event["note"]
    await scheduler.until(lambda metrics: metrics["neuron_scheduler_conflicting_cores"] == 2)
    await remove(api, "claims")
    async with kubelets(api):
        assert ids_of(await placed(api, "ours", neuron=2)) in ((0, 1), (4, 5))
        await refused(api, "three", neuron=3)
        await remove(api, "claims-too")
        assert ids_of(await placed(api, "three"))[0] in (0, 2, 3)
    await scheduler.until(lambda metrics: metrics["neuron_scheduler_conflicting_cores"] == 0)


async def test_an_allocation_that_changes_later_is_not_followed(api: RestClient, scheduler: SchedulerProcess) -> None:
    """The first ids are the ones that the kubelet got; a change is reported once and frees nothing."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    ours = await placed(api, "ours", neuron=2)
    assert ids_of(ours) == (0, 1)
    forged = {"AWS_NEURON_IDS": "4,5", "NEURON_DEVS": "4,5", "neuron-scheduler/allocation": None}
    await api.patch(f"{PODS}/ours", {"metadata": {"annotations": forged}})
    await api.patch(f"{PODS}/ours", {"metadata": {"labels": {"changed": "yes"}}})
    await has_seen_all(api, scheduler)
    assert complaints(scheduler, "ours") == [1]
    async with kubelets(api):
        assert ids_of(await placed(api, "next", neuron=2)) in ((2, 3), (4, 5))


async def test_other_pods_are_not_ours_to_place(api: RestClient, scheduler: SchedulerProcess) -> None:
    """A pod of another scheduler is ignored; one of ours without Neuron is placed on a node without Neuron."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge", plain="m5.large")
    await create_pod(api, pod_manifest("theirs", scheduler_name="another", neuron=1))
    plain = await placed(api, "plain", requests={"cpu": "1"})
    assert plain["spec"]["nodeName"] == "plain"
    assert "AWS_NEURON_IDS" not in plain["metadata"].get("annotations", {})
    theirs = await api.get(f"{PODS}/theirs")
    assert "nodeName" not in theirs["spec"]
    assert "conditions" not in theirs["status"]
