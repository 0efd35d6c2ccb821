"""Preemption on a real API server: which pods leave, what is reported, and which pod gets the space."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.control_plane.binaries import RELEASE, before
from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, SchedulerProcess, run_scheduler, until
from tests.end_to_end.workload import (
    LEASE,
    PODS,
    add_nodes,
    add_priority_classes,
    condition_of,
    events_of,
    ids_of,
    placed,
    refused,
    remove,
)
from tests.faults.proxy import ALWAYS, HELD, Fault, run_proxy

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PRIORITIES = {"low": 10, "middle": 50, "high": 100}
GRACE = 1
GROUP = "pod-group.scheduling.sigs.k8s.io"


@pytest.fixture
async def scheduler(account: Path, empty: RestClient) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler for one test: another one's would hold the Lease."""
    async with run_scheduler(account, "-v=6") as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler


@asynccontextmanager
async def graceful_kubelets(api: RestClient) -> AsyncIterator[None]:
    """Let bound pods run, and terminating ones for their grace period."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FakeKubelet(api, obey_grace=True).run)
        yield
        tasks.cancel_scope.cancel()


def prior(name: str, **fields: Any) -> dict[str, Any]:
    """Return the part of a pod's spec with priority and a short grace period."""
    return {"priorityClassName": name, "terminationGracePeriodSeconds": GRACE, **fields}


async def running(api: RestClient, name: str, **pod: Any) -> Object:
    """Create a pod and return it once it runs."""
    await placed(api, name, **pod)
    return await api.wait_for(f"{PODS}/{name}", lambda pod: pod["status"].get("phase") == "Running")


async def names(api: RestClient) -> set[str]:
    """Return the names of all pods that are not terminating."""
    listing = await api.get(PODS)
    return {pod["metadata"]["name"] for pod in listing["items"] if "deletionTimestamp" not in pod["metadata"]}


def disruption_of(pod: Object) -> Mapping[str, str]:
    return next((c for c in pod["status"].get("conditions", []) if c["type"] == "DisruptionTarget"), {})


async def test_a_budget_turns_the_choice(empty: RestClient, account: Path) -> None:
    """The half whose budget allows no disruption stays, though its pod is of lower priority."""
    selector = {"matchLabels": {"app": "guarded"}}
    manifest = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guarded"}}
    await empty.post(BUDGETS, manifest | {"spec": {"minAvailable": 1, "selector": selector}})
    try:  # the scheduler starts when the budget is there: a watch of another kind could be late
        async with run_scheduler(account, "-v=6") as scheduler, graceful_kubelets(empty):
            await scheduler.line(ACQUIRED)
            await add_priority_classes(empty, **PRIORITIES)
            await add_nodes(scheduler, empty, trn1="trn1.32xlarge")
            await running(empty, "guarded", neuron=8, labels={"app": "guarded"}, **prior("low"))
            await running(empty, "free", neuron=8, **prior("middle"))
            await placed(empty, "half", neuron=8, **prior("high"))
            assert await names(empty) == {"guarded", "half"}
    finally:
        await empty.delete(f"{BUDGETS}/guarded")


async def test_a_pod_of_16_devices_evicts_the_cheapest_legal_set(api: RestClient, scheduler: SchedulerProcess) -> None:
    """The node with the fewest and lowest victims is emptied; they get the reason, and the pod gets all 16 devices."""
    await add_priority_classes(api, **PRIORITIES)
    await add_nodes(scheduler, api, costly="trn1.32xlarge", cheap="trn1.32xlarge")
    async with graceful_kubelets(api):
        on = {name: {"nodeSelector": {"kubernetes.io/hostname": name}} for name in ("costly", "cheap")}
        await running(api, "costly-a", neuron=8, **on["costly"], **prior("low"))
        await running(api, "costly-b", neuron=8, **on["costly"], **prior("middle"))
        victims = ("cheap-a", "cheap-b", "cheap-c")
        for name, count in zip(victims, (8, 4, 4), strict=True):
            await running(api, name, neuron=count, **on["cheap"], **prior("low"))
        await create_pod(api, pod_manifest("big", neuron=16, **prior("high")))
        victim = await api.wait_for(f"{PODS}/cheap-a", lambda pod: "deletionTimestamp" in pod["metadata"])
        assert disruption_of(victim)["reason"] == "PreemptionByScheduler"
        assert disruption_of(victim)["message"] == "my-scheduler: preempting to accommodate a higher priority pod"
        waiting = await api.wait_for(f"{PODS}/big", lambda pod: bool(pod["status"].get("nominatedNodeName")))
        assert waiting["status"]["nominatedNodeName"] == "cheap"
        assert condition_of(waiting)["reason"] == "Unschedulable"
        assert condition_of(waiting)["message"].startswith("0/2 nodes are available: 2 Insufficient")
        assert "preemption" not in condition_of(waiting)["message"]
        big = await placed(api, "big")
        assert big["spec"]["nodeName"] == "cheap"
        assert ids_of(big) == tuple(range(16))
        assert before(RELEASE, "1.35") or "nominatedNodeName" not in big["status"]  # older servers leave it
        assert await names(api) == {"costly-a", "costly-b", "big"}
    for name in victims:
        (event,) = await events_of(api, name, "Preempted")
        assert event["note"] == f"Preempted by pod {big['metadata']['uid']} on node cheap"
        assert (event["type"], event["action"], event["related"]["name"]) == ("Normal", "Preempting", "big")
    metrics = await scheduler.metrics()
    assert metrics["scheduler_preemption_victims_sum"] == 3
    assert metrics["scheduler_preemption_attempts_total"] >= 1


def member(group: str, rank: int, count: int = 4, **fields: Any) -> Object:
    """Return one of some members that take a machine each and start together."""
    labels = {f"{GROUP}/name": group, f"{GROUP}/min-available": str(count)}
    return pod_manifest(f"{group}-{rank}", neuron=16, labels=labels, **fields)


async def test_a_group_evicts_pods_for_all_of_its_members_or_nobody(
    api: RestClient, scheduler: SchedulerProcess
) -> None:
    """Beside a pod that it may not evict it waits and says why; once that ends, all four start."""
    await add_priority_classes(api, **PRIORITIES)
    await add_nodes(scheduler, api, **{f"n{number}": "trn1.32xlarge" for number in range(4)})
    async with graceful_kubelets(api):
        for number, prio in enumerate(("high", "low", "middle")):
            there = {"kubernetes.io/hostname": f"n{number}"}
            await running(api, f"used-{number}", neuron=8, nodeSelector=there, **prior(prio))
        for rank in range(4):
            await create_pod(api, member("train", rank, **prior("high")))
        for rank in range(4):
            refused = await api.wait_for(f"{PODS}/train-{rank}", lambda pod: bool(condition_of(pod)))
            assert condition_of(refused)["message"].endswith(
                "preemption: without all pods of lower priority, 3 of 4 missing members would have room."
            )
        assert await names(api) == {*(f"used-{number}" for number in range(3)), *(f"train-{rank}" for rank in range(4))}
        await remove(api, "used-0")
        nodes = {(await placed(api, f"train-{rank}"))["spec"]["nodeName"] for rank in range(4)}
        assert nodes == {f"n{number}" for number in range(4)}
        assert await names(api) == {f"train-{rank}" for rank in range(4)}
    for name in ("used-1", "used-2"):
        (event,) = await events_of(api, name, "Preempted")
        assert event["related"]["name"].startswith("train-")


@asynccontextmanager
async def no_deletion(api: RestClient, name: str) -> AsyncIterator[None]:
    """Let nobody delete a pod that has the label `protected`."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}]
    unlabelled = {"expression": "!('protected' in oldObject.metadata.?labels.orValue({}))"}
    policy = {"matchConstraints": {"resourceRules": rules}, "validations": [unlabelled]}
    binding = {"policyName": "protected", "validationActions": ["Deny"]}
    for kind, spec in (("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", binding)):
        manifest = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "protected"}}
        await api.apply(manifest | {"spec": spec})

    async def is_in_force() -> bool:
        return (await api.request("DELETE", f"{PODS}/{name}", dryRun="All"))[0] == 422

    try:
        await until(is_in_force)
        yield
    finally:
        await api.patch(f"{PODS}/{name}", {"metadata": {"labels": {"protected": None}}})


async def test_a_pod_that_the_api_server_does_not_let_go_delays_no_group(
    api: RestClient, scheduler: SchedulerProcess
) -> None:
    """It is the cheapest victim, but an admission policy protects it: others leave in its place, and no pod in vain."""
    await add_priority_classes(api, **PRIORITIES)
    await add_nodes(scheduler, api, **{f"n{number}": "trn1.32xlarge" for number in range(6)})
    async with graceful_kubelets(api):
        for number in range(5):
            await running(api, f"used-{number}", neuron=16, **prior("middle"))
        await running(api, "kept", neuron=16, labels={"protected": ""}, **prior("low"))
        async with no_deletion(api, "kept"):
            for rank in range(4):
                await create_pod(api, member("train", rank, **prior("high")))
            for rank in range(4):
                await placed(api, f"train-{rank}")
            left = await names(api)
            assert "kept" in left
            assert sum(name.startswith("used-") for name in left) == 1


@pytest.mark.parametrize("phase", ["before the first deletion", "between two", "while the victims end"])
async def test_a_leader_that_is_killed_while_a_group_makes_room(
    plane: ControlPlane, account: Path, empty: RestClient, phase: str
) -> None:
    """The next one carries it on: all members start, and of the group that was evicted none is left."""
    held = {"before the first deletion": "used-", "between two": "used-2", "while the victims end": "nothing"}[phase]
    deletion = Fault(lambda call: call.method == "DELETE" and held in call.path, HELD, times=ALWAYS)
    async with run_proxy(plane) as proxy, graceful_kubelets(empty):
        await add_priority_classes(empty, **PRIORITIES)
        proxy.add(deletion)
        async with run_scheduler(account, f"--master={proxy.url}", *SHORT_LEASE) as leader:
            await leader.line(ACQUIRED)
            await add_nodes(leader, empty, **{f"n{number}": "trn1.32xlarge" for number in range(4)})
            labels = {f"{GROUP}/name": "used", f"{GROUP}/min-available": "3"}
            for number in range(3):
                await create_pod(empty, pod_manifest(f"used-{number}", neuron=16, labels=labels, **prior("low")))
            for number in range(3):
                await running(empty, f"used-{number}")
            for rank in range(4):
                await create_pod(empty, member("train", rank, **prior("high")))
            await leader.line("Preempting pods for a pod of higher priority")
            if phase == "before the first deletion":
                await deletion.taken.wait()
            else:
                await empty.wait_for(f"{PODS}/used-0", lambda pod: "deletionTimestamp" in pod["metadata"])
            await leader.kill()
        await empty.request("DELETE", LEASE)
        async with run_scheduler(account) as successor:
            nodes = {(await placed(empty, f"train-{rank}"))["spec"]["nodeName"] for rank in range(4)}
            assert nodes == {f"n{number}" for number in range(4)}
            assert await names(empty) == {f"train-{rank}" for rank in range(4)}
            assert await successor.stop() == 0


async def test_a_new_leader_keeps_the_space_that_was_emptied(account: Path, empty: RestClient) -> None:
    """An older pod of the same priority, which may not evict and is tried first, does not get it."""
    async with graceful_kubelets(empty):
        await add_priority_classes(empty, **PRIORITIES)
        never = {"metadata": {"name": "never"}, "value": PRIORITIES["high"], "preemptionPolicy": "Never"}
        await empty.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **never})
        async with run_scheduler(account, *SHORT_LEASE) as leader:
            await leader.line(ACQUIRED)
            await add_nodes(leader, empty, n0="trn1.32xlarge", n1="trn1.32xlarge")
            for number in range(2):
                await running(empty, f"low-{number}", neuron=16, **prior("low"))
            await create_pod(empty, pod_manifest("old", neuron=16, priorityClassName="never"))
            await refused(empty, "old", saying="preemption")
            for rank in range(2):
                await create_pod(empty, member("train", rank, count=2, **prior("high")))
            for rank in range(2):
                await empty.wait_for(f"{PODS}/train-{rank}", lambda pod: "nominatedNodeName" in pod["status"])
            assert await leader.stop() == 0
        async with run_scheduler(account) as successor:
            for rank in range(2):
                await placed(empty, f"train-{rank}")
            assert "nodeName" not in (await empty.get(f"{PODS}/old"))["spec"]
            assert await successor.stop() == 0
