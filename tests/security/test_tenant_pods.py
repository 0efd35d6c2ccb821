"""What a tenant's pods can do to the scheduler and to other tenants' pods: the whole process below the policies."""

import re
from typing import Any, Final

import pytest

from tests.control_plane.objects import NEURON, bind, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import ApiError, Object, RestClient
from tests.end_to_end.claims import CLAIMS, VOLUMES, add_classes, add_volume, clear_storage
from tests.end_to_end.process import BOUND, SchedulerProcess, until
from tests.end_to_end.workload import EVENTS, PODS, condition_of, events_of, ids_of, refused
from tests.security.conftest import OTHER_PODS, example_policy

HOSTILE: Final = 'x\nE1121 08:15:04.123456       1 scheduler.py:88] "forged"\r\x1b[2J\u2028\u202ey'
HEADER: Final = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \w+\.py:\d+\] ")
GATE: Final = [{"name": "example.com/gate"}]
FINALIZER: Final = "example.com/keep"
QUOTAS: Final = "/api/v1/namespaces/default/resourcequotas"
SIXTEEN: Final = "trn1.32xlarge"
LWS: Final = "leaderworkerset.sigs.k8s.io"


async def one_node(api: RestClient, scheduler: SchedulerProcess, instance_type: str = SIXTEEN) -> None:
    """Create a node, and return when the scheduler has it."""
    await create_node(api, node_manifest("n1", instance_type))
    await scheduler.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == 1)


async def placed_of_other(api: RestClient, name: str, **pod: Any) -> Object:
    """Create a pod of the other namespace and return it once it is bound."""
    await create_pod(api, pod_manifest(name, namespace="other", **pod))
    return await bound_of_other(api, name)


async def bound_of_other(api: RestClient, name: str) -> Object:
    """Return a pod of the other namespace once it is bound."""
    return await api.wait_for(f"{OTHER_PODS}/{name}", lambda pod: "nodeName" in pod["spec"])


async def refused_of_other(api: RestClient, name: str, **pod: Any) -> str:
    """Create a pod of the other namespace and return the message of its refusal."""
    await create_pod(api, pod_manifest(name, namespace="other", **pod))
    refused = await api.wait_for(f"{OTHER_PODS}/{name}", lambda pod: condition_of(pod).get("status") == "False")
    return str(condition_of(refused)["message"])


def mounting(name: str, claim: str) -> Object:
    return pod_manifest(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


# -- texts -------------------------------------------------------------------------------------------------------------


async def test_hostile_texts_forge_nothing(api: RestClient, tenant: RestClient, scheduler: SchedulerProcess) -> None:
    """The texts that the API server does not check reach no log line, condition or Event unescaped."""
    await one_node(api, scheduler)
    spread = {"maxSkew": 1, "topologyKey": HOSTILE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
    of_class = {"name": "of-class", "annotations": {"volume.beta.kubernetes.io/storage-class": HOSTILE}}
    await tenant.post(CLAIMS, claim | {"metadata": of_class})
    named = spec | {"volumeName": HOSTILE, "storageClassName": ""}
    await tenant.post(CLAIMS, claim | {"metadata": {"name": "named"}, "spec": named})
    pods = [
        mounting("no-claim", HOSTILE),
        mounting("long-claim", "x" * 900_000),
        mounting("claim-of-class", "of-class"),
        mounting("claim-of-volume", "named"),
        pod_manifest("spread", neuron=1, topologySpreadConstraints=[spread]),
        pod_manifest("annotated", neuron=17, annotations={"own": HOSTILE}),
        *(
            pod_manifest(f"member-{number}", neuron=17, annotations={"kueue.x-k8s.io/workload": HOSTILE})
            for number in range(2)
        ),
        pod_manifest(
            "leader", neuron=17, labels={f"{LWS}/group-key": "k"}, annotations={f"{LWS}/exclusive-topology": HOSTILE}
        ),
    ]
    for pod in pods:
        await create_pod(tenant, pod)
    by_hand = pod_manifest("elsewhere", neuron=1, scheduler_name=HOSTILE)
    await bind(api, await create_pod(tenant, by_hand), "n1")
    messages = [(await refused(tenant, pod["metadata"]["name"]))["message"] for pod in pods]
    assert [message for message in messages if not message.isprintable() or len(message) > 1000] == []
    assert r'persistentvolumeclaim "x\nE1121 08:15:04.123456       1 scheduler.py:88] "forged"\r\x1b[2J' in messages[0]
    blocked = await refused(tenant, "four", neuron=4, saying="Unknown ids")
    assert "n1 is blocked by default/elsewhere (schedulerName unusual)" in blocked["message"]
    notes = [event["note"] for event in (await api.get(EVENTS))["items"]]
    assert len(notes) >= len(pods)
    assert [note for note in notes if not note.isprintable()] == []
    assert [line for line in scheduler.lines if not (HEADER.match(line) and line.isprintable())] == []
    await clear_storage(api)


@pytest.mark.parametrize("count", ["9223372036854775807", "9223372036854775808", "1E", "1Pi"])
async def test_counts_beyond_any_machine(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess, count: str
) -> None:
    """The API server accepts such counts; the pod is refused with the figures, and the next pod is bound."""
    await one_node(api, scheduler)
    pod = pod_manifest("absurd")
    pod["spec"]["containers"][0]["resources"] = {"limits": {NEURON: count}}
    await create_pod(tenant, pod)
    condition = await refused(tenant, "absurd", saying="the largest node has 16")
    assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient aws.amazon.com/neuron. Capacity")
    await placed_of_other(api, "ordinary", neuron=1)


@pytest.mark.parametrize("count", ["-1", "0.5", "1n"])
async def test_counts_that_the_api_server_refuses(tenant: RestClient, api: RestClient, count: str) -> None:
    """Negative numbers and parts of a device never reach the scheduler."""
    pod = pod_manifest("absurd")
    pod["spec"]["containers"][0]["resources"] = {"limits": {NEURON: count}}
    with pytest.raises(ApiError, match="must be") as error:
        await create_pod(tenant, pod)
    assert error.value.status == 422


# -- getting a node, or keeping one ------------------------------------------------------------------------------------


async def test_a_pod_cannot_be_moved_to_a_node(api: RestClient, tenant: RestClient) -> None:
    """spec.nodeName cannot be added later, also not while scheduling gates keep the pod from us."""
    await create_pod(tenant, pod_manifest("gated", neuron=1, schedulingGates=GATE))
    with pytest.raises(ApiError, match="pod updates may not change fields") as error:
        await tenant.patch(f"{PODS}/gated", {"spec": {"nodeName": "n1"}})
    assert error.value.status == 422


async def test_a_nomination_at_creation_is_dropped(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess
) -> None:
    """The API server drops the status of a new pod, so the pod reserves nothing."""
    await one_node(api, scheduler)
    gated = pod_manifest("nominated", neuron=16, priorityClassName="urgent", schedulingGates=GATE)
    await create_pod(tenant, gated | {"status": {"nominatedNodeName": "n1"}})
    await placed_of_other(api, "ordinary", neuron=16)
    assert "nominatedNodeName" not in (await tenant.get(f"{PODS}/nominated"))["status"]


async def test_a_nomination_in_the_status_reserves_nothing(
    api: RestClient, owner: RestClient, scheduler: SchedulerProcess
) -> None:
    """A user who may write the status nominates a pod that waits, and other pods get the node all the same."""
    await one_node(api, scheduler)
    await create_pod(owner, pod_manifest("nominated", neuron=16, nodeSelector={"no": "where"}))
    await refused(owner, "nominated")
    await owner.patch(f"{PODS}/nominated/status", {"status": {"nominatedNodeName": "n1"}})
    await placed_of_other(api, "ordinary", neuron=16)


async def test_gated_and_terminating_pods_reserve_nothing(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess
) -> None:
    """A gated pod waits without a claim to a node; if it is being deleted, it is not bound when its gates go."""
    await one_node(api, scheduler)
    for i in range(50):
        await create_pod(
            tenant, pod_manifest(f"gated-{i}", neuron=16, priorityClassName="urgent", schedulingGates=GATE)
        )
    kept = pod_manifest("kept", neuron=16, priorityClassName="urgent", schedulingGates=GATE)
    kept["metadata"]["finalizers"] = [FINALIZER]
    await create_pod(tenant, kept)
    await tenant.delete(f"{PODS}/kept")
    await tenant.patch(f"{PODS}/kept", {"spec": {"schedulingGates": []}})
    await placed_of_other(api, "ordinary", neuron=16)
    listed = (await tenant.get(PODS))["items"]
    assert len(listed) == 51
    assert [pod["metadata"]["name"] for pod in listed if "nodeName" in pod["spec"]] == []


async def test_another_tenant_s_volume_is_not_taken(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess
) -> None:
    """The scheduler may write every volume, but gives none that is reserved for a claim of another namespace."""
    await one_node(api, scheduler)
    await add_classes(api)
    theirs = {"kind": "PersistentVolumeClaim", "namespace": "other", "name": "data"}
    await add_volume(api, "theirs", claimRef=theirs)
    await api.patch(f"{VOLUMES}/theirs/status", {"status": {"phase": "Available"}})
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "local",
    }
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
    await tenant.post(CLAIMS, claim | {"metadata": {"name": "data"}})
    await tenant.post(CLAIMS, claim | {"metadata": {"name": "named"}, "spec": spec | {"volumeName": "theirs"}})
    for name in ("data", "named"):
        await create_pod(tenant, mounting(f"with-{name}", name))
        await refused(tenant, f"with-{name}")
    assert (await api.get(f"{VOLUMES}/theirs"))["spec"]["claimRef"] == theirs
    await clear_storage(api)


# -- ending ------------------------------------------------------------------------------------------------------------


async def test_a_finalizer_keeps_devices_until_the_pod_has_ended(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess
) -> None:
    """A deleted pod holds its devices until its kubelet reports the end; then they are free, finalizer or not."""
    await one_node(api, scheduler)
    pod = pod_manifest("kept", neuron=16)
    pod["metadata"]["finalizers"] = [FINALIZER]
    await create_pod(tenant, pod)
    await api.wait_for(f"{PODS}/kept", lambda pod: "nodeName" in pod["spec"])
    await tenant.delete(f"{PODS}/kept", gracePeriodSeconds=0)
    message = await refused_of_other(api, "next", neuron=16)
    assert "0 Neuron devices free on 1 node" in message
    await api.patch(f"{PODS}/kept/status", {"status": {"phase": "Succeeded"}})
    await bound_of_other(api, "next")
    assert (await api.get(f"{PODS}/kept"))["metadata"]["finalizers"] == [FINALIZER]


async def test_a_deletion_by_force_frees_the_devices_at_once(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess
) -> None:
    """Nobody can see whether the containers have ended: the pod is gone, and the next one gets its devices."""
    await one_node(api, scheduler)
    await create_pod(tenant, pod_manifest("hasty", neuron=16))
    await api.wait_for(f"{PODS}/hasty", lambda pod: "nodeName" in pod["spec"])
    await api.patch(f"{PODS}/hasty/status", {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}})
    await tenant.delete(f"{PODS}/hasty", gracePeriodSeconds=0)
    assert ids_of(await placed_of_other(api, "next", neuron=16)) == tuple(range(16))


async def test_a_status_that_lies_about_the_end(
    api: RestClient, owner: RestClient, scheduler: SchedulerProcess
) -> None:
    """Who may write the status can free devices that are in use; when the truth is back, both pods are reported."""
    await one_node(api, scheduler)
    await create_pod(owner, pod_manifest("liar", neuron=16))
    await api.wait_for(f"{PODS}/liar", lambda pod: "nodeName" in pod["spec"])
    await owner.patch(f"{PODS}/liar/status", {"status": {"phase": "Succeeded"}})
    await placed_of_other(api, "next", neuron=16)
    await owner.patch(f"{PODS}/liar/status", {"status": {"phase": "Running"}})
    await scheduler.line("Pods claim the same Neuron cores", 'pod="default/liar"')
    (event,) = await events_of(api, "liar", "NeuronConflict")
    assert "other/" not in event["note"]
    assert "related" not in event


# -- taking from others ------------------------------------------------------------------------------------------------


async def test_every_priority_class_is_everybody_s(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess
) -> None:
    """Without a quota a tenant may name any class, also the system's, and pods of other tenants leave for it."""
    await one_node(api, scheduler)
    await placed_of_other(api, "victim", neuron=16)
    await create_pod(tenant, pod_manifest("greedy", neuron=16, priorityClassName="system-node-critical"))
    await api.wait_for(f"{PODS}/greedy", lambda pod: pod["status"].get("nominatedNodeName") == "n1")
    victim = await api.wait_for(f"{OTHER_PODS}/victim", lambda pod: "deletionTimestamp" in pod["metadata"])
    conditions = {condition["type"]: condition for condition in victim["status"]["conditions"]}
    assert conditions["DisruptionTarget"]["reason"] == "PreemptionByScheduler"


async def test_a_quota_keeps_priority_classes_from_a_namespace(api: RestClient, tenant: RestClient) -> None:
    """The quota to which docs/security.md leads: pods of these classes are refused, others are not."""
    (quota,) = example_policy("quota-for-priority-classes")
    await api.apply(quota, namespace="default")
    # What the controller does, which does not run here.
    status = {"status": {"hard": quota["spec"]["hard"], "used": {"pods": "0"}}}
    path = f"{QUOTAS}/{quota['metadata']['name']}"
    await api.patch(f"{path}/status", status)
    (classes,) = (part["values"] for part in quota["spec"]["scopeSelector"]["matchExpressions"])
    assert classes == ["system-node-critical", "system-cluster-critical"]

    async def refused_all() -> bool:
        answers = [
            await tenant.request("POST", PODS, pod_manifest("greedy", priorityClassName=name), dryRun="All")
            for name in classes
        ]
        return all(status == 403 and "exceeded quota" in answer["message"] for status, answer in answers)

    await until(refused_all)
    for usual in (pod_manifest("usual"), pod_manifest("usual", priorityClassName="urgent")):
        assert (await tenant.request("POST", PODS, usual, dryRun="All"))[0] == 201
    await api.delete(path)


async def test_a_hand_written_binding_blocks_a_node_for_several_devices(
    api: RestClient, owner: RestClient, scheduler: SchedulerProcess
) -> None:
    """A pod that is bound without an allocation is named to its own namespace only."""
    await one_node(api, scheduler)
    pod = await create_pod(owner, pod_manifest("by-hand", neuron=1))
    await scheduler.line(BOUND, 'pod="default/by-hand"')
    pod = await create_pod(owner, pod_manifest("by-hand-2", neuron=1, scheduler_name="mine"))
    await bind(owner, pod, "n1")
    message = await refused_of_other(api, "four", neuron=4)
    assert "Unknown ids: n1 is blocked by a pod of another namespace (schedulerName mine)." in message
    assert "by-hand" not in message
    await placed_of_other(api, "single", neuron=1)


async def test_a_flood_of_pods_is_one_event_and_one_condition_each(
    api: RestClient, tenant: RestClient, scheduler: SchedulerProcess
) -> None:
    """Of 300 pods that fit nowhere, each gets what one gets, and a pod of another tenant is bound all the same."""
    await one_node(api, scheduler)
    before = len(scheduler.lines)
    for i in range(300):
        await create_pod(tenant, pod_manifest(f"flood-{i}", neuron=16, nodeSelector={"no": "where"}))
    await placed_of_other(api, "ordinary", neuron=1)
    await tenant.wait_until(PODS, lambda pods: len(pods) == 300 and all(condition_of(pod) for pod in pods.values()))
    for i in range(5):  # events that could let pods fit, and change nothing
        await api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"changed": str(i)}}})
        await placed_of_other(api, f"ordinary-{i}", neuron=1)
    events = [e for e in (await api.get(EVENTS))["items"] if e["regarding"]["name"].startswith("flood-")]
    assert len(events) <= 300
    attempts = [line for line in scheduler.lines[before:] if "Unable to schedule pod" in line and "flood-" in line]
    assert len(attempts) <= 300 + 5, "one of the equal pods is tried for all"
