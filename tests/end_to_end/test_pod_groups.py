"""PodGroups of both API groups on a real API server that serves them: their counts, and pods that come before them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.process import ACQUIRED, SchedulerProcess, run_scheduler, until
from tests.end_to_end.workload import PODS, add_priority_classes, all_placed, kubelets, placed, refused

NATIVE: Final = "scheduling.k8s.io/v1beta1"
COSCHEDULING: Final = "scheduling.x-k8s.io/v1alpha1"
FLAGS: Final = ("--feature-gates=GenericWorkload=true", f"--runtime-config={NATIVE}=true")
KIND: Final = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"}
CRD: Final[Object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podgroups.scheduling.x-k8s.io"},
    "spec": {
        "group": "scheduling.x-k8s.io",
        "names": KIND,
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}
DENIED: Final = "The API server does not allow a kind to be watched"


@pytest.fixture(scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    """Run a control plane that serves both kinds."""
    async with run_control_plane(api_server_flags=FLAGS) as plane:
        await rights.grant(plane.admin)
        await plane.admin.apply(CRD)

        async def is_served() -> bool:
            return (await plane.admin.request("GET", f"/apis/{COSCHEDULING}/podgroups"))[0] == 200

        await until(is_served)
        yield plane


def pod_group(version: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def member(version: str, group: str, number: int, neuron: int = 16, **spec: Any) -> Object:
    """Return a pod that takes a whole machine, and names its PodGroup."""
    if version == NATIVE:
        return pod_manifest(f"{group}-{number}", neuron=neuron, schedulingGroup={"podGroupName": group}, **spec)
    return pod_manifest(f"{group}-{number}", neuron=16, labels={"scheduling.x-k8s.io/pod-group": group})


def needs(version: str, count: int) -> dict[str, Any]:
    """Return the part of a PodGroup's spec that says how many members it needs."""
    return {"schedulingPolicy": {"gang": {"minCount": count}}} if version == NATIVE else {"minMember": count}


async def test_a_right_that_is_missing(plane: ControlPlane, account: Path) -> None:
    """It is in the log, and pods are scheduled all the same: a group without a count as the pods that exist."""

    async def denied() -> bool:
        async with plane.client(await plane.token_for("kube-system", "neuron-scheduler")) as ours:
            return (await ours.request("GET", f"/apis/{COSCHEDULING}/podgroups"))[0] == 403

    less = [item | {"rules": [rule for rule in item["rules"] if rule["resources"] != ["podgroups"]]}
            if "rules" in item else item for item in rights.manifests()]  # fmt: skip
    await rights.grant(plane.admin, less)
    await until(denied)
    async with run_scheduler(account) as scheduler:
        await scheduler.line(DENIED, "watch podgroups.scheduling.x-k8s.io")
        await scheduler.line(ACQUIRED)
        await create_node(plane.admin, node_manifest("n", "trn1.32xlarge"))
        await create_pod(plane.admin, member(COSCHEDULING, "alone", 0))
        await placed(plane.admin, "alone-0")
        assert await scheduler.stop() == 0
    await rights.grant(plane.admin)


@pytest.mark.parametrize("version", [NATIVE, COSCHEDULING])
async def test_a_pod_group_holds_its_pods(api: RestClient, scheduler: SchedulerProcess, version: str) -> None:
    """Pods that come first wait for it; it has the largest count, and a smaller one lets them in."""
    for number in range(3):
        await create_node(api, node_manifest(f"n{number}", "trn1.32xlarge"))
    await scheduler.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == 3)
    for number in range(2):
        await create_pod(api, member(version, "train", number))
    condition = await refused(api, "train-0", saying="PodGroup default/train does not exist")
    assert condition["reason"] == "WaitingForGroup"
    await api.apply(pod_group(version, "train", **needs(version, 3)))
    await refused(api, "train-1", saying="group default/train: 2 of 3 members exist")
    await api.apply(pod_group(version, "train", **needs(version, 2)))
    await all_placed(api, ["train-0", "train-1"])


async def test_members_of_a_basic_group_are_placed_as_they_fit(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Each as a pod by itself."""
    await create_node(api, node_manifest("n", "trn1.32xlarge"))
    await api.apply(pod_group(NATIVE, "web", schedulingPolicy={"basic": {}}))
    for number in range(2):
        await create_pod(api, member(NATIVE, "web", number))
    await placed(api, "web-0")
    assert (await refused(api, "web-1"))["message"].startswith("0/1 nodes are available: 1 Insufficient")


@pytest.mark.parametrize("mode", ["all", "single"])
@pytest.mark.parametrize("preemptor", ["pod", "pod group"])
async def test_a_native_group_says_whether_its_members_are_disrupted_together(
    api: RestClient, scheduler: SchedulerProcess, preemptor: str, mode: str
) -> None:
    """As upstream's `workload_aware_preemption.go`: all of its members leave, or as many as are in the way."""
    await add_priority_classes(api, low=10, high=100)
    await create_node(api, node_manifest("n", "trn1.32xlarge"))
    low, high = {"priorityClassName": "low"}, {"priorityClassName": "high"}
    victim = f"victim-{mode}-{preemptor[-5:].strip()}"
    await api.apply(pod_group(NATIVE, victim, **needs(NATIVE, 2), **low, disruptionMode={mode: {}}))
    group = {"schedulingGroup": {"podGroupName": "preemptor"}} if preemptor == "pod group" else {}
    if group:
        await api.apply(pod_group(NATIVE, "preemptor", **needs(NATIVE, 1), **high, disruptionMode={"single": {}}))
    async with kubelets(api):
        for number in range(2):
            await create_pod(api, member(NATIVE, victim, number, neuron=8, **low))
        await all_placed(api, [f"{victim}-0", f"{victim}-1"])
        await placed(api, "preemptor", neuron=8, **high, **group)
        left = 0 if mode == "all" else 1

        async def is_over() -> bool:
            pods = (await api.get(PODS))["items"]
            return len([pod for pod in pods if pod["metadata"]["name"].startswith(victim)]) == left

        await until(is_over)
