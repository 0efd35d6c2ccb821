"""The cases of AWS's documentation, and its statements about annotations, on a real API server."""

import json
from functools import partial
from typing import Any

import pytest

from tests.control_plane.objects import MACHINES, NEURON, NEURONCORE, create_all, create_pod, pod_manifest
from tests.control_plane.rest import STRATEGIC, RestClient
from tests.end_to_end.process import BOUND, SchedulerProcess
from tests.end_to_end.workload import (
    PODS,
    add_nodes,
    all_placed,
    events_of,
    held_cores,
    ids_of,
    kubelets,
    on,
    placed,
    refused,
    remove,
)

pytestmark = pytest.mark.main_job

NINE = "0,1,2,3,4,5,6,7,8"
AT = "node runbook"
DEVICE_MAP = "true true true false"
CORE_MAP = " ".join(["true"] * 9 + ["false"] * 7)
FREE_CORES = " ".join(["false"] * 16)
FREE_DEVICES = " ".join(["false"] * 4)
SEVEN = (
    "Instance type trn1.32xlarge does not support requests for device: 7. Please request a different number of devices."
)
SERVED = "Invalid count: pod needs 7 Neuron devices, trn1.32xlarge serves 1, 4, 8 or 16."
NO_BLOCK = "0/1 nodes are available: 1 node(s) didn't have a free block of Neuron devices."
IN_PIECES = "Fragmentation: 3 Neuron devices free on 1 node, largest free block 1, pod needs 3."
TOO_FEW = f"0/1 nodes are available: 1 Insufficient {NEURON}."

# From AWS's documentation, with another image: requests name no Neuron, limits do.
SAMPLE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "nrt-test-5038", "namespace": "default"},
    "spec": {
        "restartPolicy": "Never",
        "schedulerName": "my-scheduler",
        "containers": [
            {
                "name": "nrt-test",
                "image": "nrt-test:1",
                "resources": {
                    "limits": {"cpu": "4", "memory": "4Gi", NEURONCORE: 9},
                    "requests": {"cpu": "1", "memory": "1Gi"},
                },
            }
        ],
    },
}


async def test_nine_cores_and_the_rest_of_an_inf1_6xlarge(api: RestClient, scheduler: SchedulerProcess) -> None:
    """AWS's sample pod gets cores 0 to 8 of 16; two devices do not fit beside it, one does, and it is device 3."""
    await add_nodes(scheduler, api, inf1="inf1.6xlarge")
    await create_pod(api, SAMPLE)
    nine = await placed(api, "nrt-test-5038")
    annotations = nine["metadata"]["annotations"]
    assert (annotations["AWS_NEURON_IDS"], annotations["NEURON_CORES"]) == (NINE, NINE)
    assert annotations["NEURON_ALLOCATED"] == "false"
    assert int(annotations["NEURON_ALLOC_TIME"]) > 1_700_000_000_000_000_000, "in nanoseconds"
    own = json.loads(annotations["neuron-scheduler/allocation"])
    assert own == {"node": "inf1", "cores": {"nrt-test": list(range(9))}, "ids": list(range(9))}
    assert (await refused(api, "two", neuron=2))["message"].startswith(TOO_FEW)
    single = await placed(api, "one", neuron=1)
    assert ids_of(single) == (3,)
    assert int(single["metadata"]["annotations"]["NEURON_ALLOC_TIME"]) > int(annotations["NEURON_ALLOC_TIME"])


async def test_the_log_has_the_lines_that_the_runbooks_look_for(api: RestClient, scheduler: SchedulerProcess) -> None:
    """The log has kube-scheduler's and the extension's own lines for the sample pod, usage maps included."""
    await add_nodes(scheduler, api, runbook="inf1.6xlarge")
    finished = "Finished executing Bind Request..."
    before = len(scheduler.lines_with(finished))
    await create_pod(api, SAMPLE)
    line = await scheduler.line(BOUND, 'node="runbook"')
    assert line.partition("] ")[2] == (
        f'"{BOUND}" pod="default/nrt-test-5038" node="runbook" evaluatedNodes=1 feasibleNodes=1 cores="{NINE}"'
    )
    await scheduler.line(finished, count=before + 1)
    seen = scheduler.lines[scheduler.lines.index(scheduler.lines_with("POD nrt-test-5038 fits in Node:runbook")[0]) :]
    extension_lines = [line.partition('] "')[2].rstrip('"') for line in seen if "extension_log.py" in line]
    assert [line.partition(" with &Binding{")[0] for line in extension_lines] == [
        "POD nrt-test-5038 fits in Node:runbook",
        "Filtered nodes: [runbook]",
        "Failed nodes: map[]",
        "Finished Processing Filter Request...",
        "Executing Bind Request!",
        "Determine if the pod %v is NeuronDevice podnrt-test-5038",
        "Updating POD Annotation with alloc devices!",
        "Return aws.amazon.com/neuroncore",
        f"neuronDevUsageMap for resource:aws.amazon.com/neuroncore in node: runbook is [{FREE_CORES}]",
        f"Allocated ids for POD nrt-test-5038 are: {NINE}",
        "Try to bind pod nrt-test-5038 in default namespace to node runbook",
        "Updating the DevUsageMap since the bind is successful!",
        "Return aws.amazon.com/neuroncore",
        f"neuronDevUsageMap for resource:aws.amazon.com/neuroncore in node: runbook is [{FREE_CORES}]",
        f"neuronDevUsageMap for resource:aws.amazon.com/neurondevice in node: runbook is [{FREE_DEVICES}]",
        f"Allocated devices list {NINE} for resource aws.amazon.com/neuroncore",
        *(f"Allocated devices list [{core // 4}] for other resource aws.amazon.com/neurondevice" for core in range(9)),
        "Return aws.amazon.com/neuroncore",
        f"Succesfully updated the DevUsageMap [{CORE_MAP}]  and otherDevUsageMap [{DEVICE_MAP}] after alloc for {AT}",
        finished,
    ]


async def test_the_log_has_the_filters_lines_of_a_refused_pod(api: RestClient, scheduler: SchedulerProcess) -> None:
    """The log has the reason for each refused node, before the pod has a node."""
    await add_nodes(scheduler, api, lines="trn1.32xlarge")
    await refused(api, "seven-lines", neuron=7)
    await scheduler.line("Failed nodes: map[lines:Instance type trn1.32xlarge does not support requests for device: 7.")


async def test_three_devices_on_inf2_are_neighbours_or_nothing(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Three devices are 0, 1, 2; with only 0, 2, 4 free they are refused, until a neighbour becomes free."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    assert ids_of(await placed(api, "first", neuron=3)) == (0, 1, 2)
    await remove(api, "first")
    await create_all(partial(create_pod, api), (pod_manifest(f"one-{n}", neuron=1) for n in range(6)))
    pods = await all_placed(api, [f"one-{n}" for n in range(6)])
    name_of = {ids_of(pod): name for name, pod in pods.items()}
    await remove(api, *(name_of[device,] for device in (0, 2, 4)))
    condition = await refused(api, "three", saying="free block", neuron=3)
    assert condition["message"].startswith(f"{NO_BLOCK} {IN_PIECES}")
    await remove(api, name_of[3,])
    assert ids_of(await placed(api, "three")) == (2, 3, 4)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [(on("trn1.32xlarge"), "SchedulerError"), ({}, "Unschedulable")],
    ids=["no new node could help", "another type could help"],
)
async def test_seven_devices_on_trn1(
    api: RestClient, scheduler: SchedulerProcess, spec: dict[str, Any], reason: str
) -> None:
    """AWS's sentence is in the Event and in the condition; autoscalers are asked only if another type is allowed."""
    await add_nodes(scheduler, api, trn1="trn1.32xlarge")
    condition = await refused(api, "seven", neuron=7, **spec)
    assert condition["message"].startswith(f"0/1 nodes are available: 1 {SEVEN} {SERVED}")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    (event,) = await events_of(api, "seven", "FailedScheduling")
    assert event["note"] == condition["message"]
    assert (event["type"], event["action"], event["reportingController"]) == ("Warning", "Scheduling", "my-scheduler")


@pytest.mark.parametrize("count", [4, 8])
async def test_four_and_eight_devices_on_trn1_get_only_documented_sets(
    api: RestClient, scheduler: SchedulerProcess, count: int
) -> None:
    """A full node has each documented set once, and a released set is used again."""
    await add_nodes(scheduler, api, trn1="trn1.32xlarge")
    names = [f"block-{n}" for n in range(16 // count)]
    async with kubelets(api):
        await create_all(partial(create_pod, api), (pod_manifest(name, neuron=count) for name in names))
        pods = await all_placed(api, names)
        documented = [tuple(range(first, first + count)) for first in range(0, 16, count)]
        assert sorted(ids_of(pod) for pod in pods.values()) == documented
        assert (await refused(api, "waits", neuron=count))["message"].startswith(TOO_FEW)
        await remove(api, "block-0")
        assert ids_of(await placed(api, "waits")) == ids_of(pods["block-0"])


async def test_a_pod_of_sixteen_waits_until_the_node_is_empty(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Its neighbours end, one by itself and the others deleted, and then it is placed without any further change."""
    await add_nodes(scheduler, api, trn1="trn1.32xlarge")
    async with kubelets(api):
        for name, count in (("one", 1), ("four", 4), ("eight", 8)):
            await placed(api, name, neuron=count)
            await api.wait_for(f"{PODS}/{name}", lambda pod: pod["status"]["phase"] == "Running")
        assert (await refused(api, "sixteen", neuron=16))["message"].startswith(TOO_FEW)
        await api.patch(f"{PODS}/one/status", {"status": {"phase": "Succeeded"}}, content_type=STRATEGIC)
        for name in ("four", "eight"):
            await api.delete(f"{PODS}/{name}")
        sixteen = await placed(api, "sixteen")
    assert ids_of(sixteen) == tuple(range(16))


async def test_every_machine_is_filled_to_the_last_core(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Mixed pods that together ask for everything get it, and no core twice."""
    types = {"inf1": "inf1.6xlarge", "inf2": "inf2.48xlarge", "trn1": "trn1.32xlarge", "trn2": "trn2.48xlarge"}
    await add_nodes(scheduler, api, **types)
    asked: dict[str, list[dict[str, Any]]] = {
        "inf1": [{"neuroncore": 9}, {"neuroncore": 3}, {"neuron": 1}],
        "inf2": [{"neuron": 5}, {"neuron": 4}, {"neuroncore": 3}, {"neuroncore": 3}],
        "trn1": [{"neuron": 8}, {"neuron": 4}, {"neuroncore": 2}, *([{"neuroncore": 1}] * 2), *([{"neuron": 1}] * 2)],
        "trn2": [{"neuron": 4}, {"neuroncore": 32}, {"neuroncore": 16}],
    }
    async with kubelets(api):
        for node, requests in asked.items():
            for number, request in enumerate(requests):
                await create_pod(api, pod_manifest(f"{node}-{number}", **on(types[node]), **request))
        pods = await all_placed(api, [f"{node}-{n}" for node, requests in asked.items() for n in range(len(requests))])
        assert held_cores(pods.values(), types) == {node: (1 << MACHINES[kind][3]) - 1 for node, kind in types.items()}


async def test_annotations_of_others_survive_and_forged_allocations_do_not(
    api: RestClient, scheduler: SchedulerProcess
) -> None:
    """A user's annotations from before the Binding do not count, and the Binding overwrites them."""
    await add_nodes(scheduler, api, inf2="inf2.24xlarge")
    forged = {
        "AWS_NEURON_IDS": "0,1,2,3,4,5",
        "NEURON_ALLOC_TIME": "1",
        "NEURON_ALLOCATED": "true",
        "NEURON_DEVS": "0,1,2,3,4,5",
        "neuron-scheduler/allocation": json.dumps({"node": "inf2", "devices": {"main": [5]}, "ids": [5]}),
        "neuron-scheduler/leader": "me",
    }
    unrelated = {"k8s.ovn.org/pod-networks": '{"default":{}}', "team.example/name": "vision"}
    await refused(api, "elsewhere", neuron=6, annotations=forged, nodeSelector={"nowhere": "else"})
    pod = await placed(api, "here", neuron=2, annotations=forged | unrelated)
    annotations = pod["metadata"]["annotations"]
    assert ids_of(pod) == (0, 1)
    assert annotations["NEURON_DEVS"] == "0,1"
    assert annotations["NEURON_ALLOCATED"] == "false"
    assert json.loads(annotations["neuron-scheduler/allocation"])["ids"] == [0, 1]
    assert annotations["neuron-scheduler/leader"] not in ("", "me")
    assert {key: annotations[key] for key in unrelated} == unrelated
