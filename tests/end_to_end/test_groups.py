"""Pods that start together, on a real API server: as a whole or not at all, whatever their words, and whatever ends."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, BOUND, SHORT_LEASE, SchedulerProcess, run_scheduler, until
from tests.end_to_end.workload import LEASE, PODS, add_priority_classes, all_placed, kubelets, placed, refused, remove
from tests.faults.answers import Refusal
from tests.faults.calls import binding_of
from tests.faults.proxy import ALWAYS, HELD, Fault, instead, run_proxy

ULTRASERVER: Final = "neuron.amazonaws.com/ultraserver"
FOUR: Final = f"{ULTRASERVER}-server-id-4"
TYPE: Final = "trn2.48xlarge"
WHOLE: Final = 16
"""Devices of a machine of this type."""
SIZE: Final = 4
"""Members of each group here."""
GROUP: Final = "pod-group.scheduling.sigs.k8s.io/name"
COUNT: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
LWS: Final = "leaderworkerset.sigs.k8s.io"
JOINING: Final = (2, 0, 3, 1)
"""The order in which the nodes of an UltraServer join."""


@pytest.fixture
async def scheduler(account: Path, empty: RestClient) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler for one test: another one's would hold the Lease."""
    async with run_scheduler(account) as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler
        assert await scheduler.stop() == 0


def node(server: str, place: int, **fields: Any) -> Object:
    """Return a node at a place of an UltraServer."""
    labels = {
        FOUR: server,
        f"{ULTRASERVER}-node-id-4": str(place),
        f"{ULTRASERVER}-server-id-2": f"{server}-{place // 2}",
        f"{ULTRASERVER}-node-id-2": str(place % 2),
    }
    return node_manifest(f"{server}-{place}", TYPE, labels=labels, **fields)


async def add_ultraservers(scheduler: SchedulerProcess, api: RestClient, *, broken: str = "", intact: str) -> None:
    """Add UltraServers, one of which has a node that takes no pods and is the older, and wait until they are seen."""
    for server in filter(None, (broken, intact)):
        for place in JOINING:
            await create_node(api, node(server, place, unschedulable=server == broken and place == JOINING[-1]))
    count = SIZE * (2 if broken else 1)
    await scheduler.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == count)


def names_of(group: str) -> list[str]:
    return [f"{group}-{rank}" for rank in range(SIZE)]


def member(group: str, rank: int, *, labels: dict[str, str], **fields: Any) -> Object:
    """Return a member that takes a whole machine."""
    return pod_manifest(f"{group}-{rank}", neuron=WHOLE, labels=labels, **fields)


def indexed_job(name: str) -> Iterator[Object]:
    """Yield the pods of an Indexed Job whose template has the labels of coscheduling with a count."""
    for rank in range(SIZE):
        labels = {GROUP: name, COUNT: str(SIZE), "batch.kubernetes.io/job-completion-index": str(rank)}
        yield member(name, rank, labels=labels)


def recipe(name: str) -> Iterator[Object]:
    """Yield the workers of an MPIJob with AWS's recipe for UltraServers."""
    group = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/job-role": "worker"}
    affinity = {"podAffinity": _required({"matchLabels": group})}
    for rank in range(SIZE):
        labels = group | {"training.kubeflow.org/replica-index": str(rank)}
        yield member(name, rank, labels=labels, affinity=affinity)


def leader_worker_set(name: str) -> Iterator[Object]:
    """Yield the pods of a group of a LeaderWorkerSet in one UltraServer, the leader with the terms of its webhook."""
    key = f"{LWS}/group-key"
    own, others = {"key": key, "operator": "In", "values": [name]}, {"key": key, "operator": "NotIn", "values": [name]}
    affinity = {
        "podAffinity": _required({"matchExpressions": [own]}),
        "podAntiAffinity": _required({"matchExpressions": [{"key": key, "operator": "Exists"}, others]}),
    }
    annotations = {f"{LWS}/size": str(SIZE), f"{LWS}/exclusive-topology": FOUR}
    for rank in range(SIZE):
        labels = {key: name, f"{LWS}/worker-index": str(rank)}
        terms: dict[str, Any] = {} if rank else {"affinity": affinity}
        yield member(name, rank, labels=labels, annotations=annotations, **terms)


def _required(selector: Object) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": FOUR}]}


async def nodes_of(api: RestClient, names: Sequence[str]) -> list[str]:
    """Return the nodes of pods once all of them have one."""
    pods = await all_placed(api, names)
    return [pods[name]["spec"]["nodeName"] for name in names]


@pytest.mark.main_job
async def test_two_jobs_that_are_created_in_turns(api: RestClient, scheduler: SchedulerProcess) -> None:
    """On seven nodes one of two jobs of four runs, and the other one holds none of the rest until it ends."""
    for number in range(7):
        await create_node(api, node_manifest(f"trn2-{number}", TYPE))
    await scheduler.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == 7)
    async with kubelets(api):
        for pods in zip(indexed_job("first"), indexed_job("second"), strict=True):
            for pod in pods:
                await create_pod(api, pod)
        await all_placed(api, names_of("first"))
        for name in names_of("second"):
            condition = await refused(api, name, saying="for the next one: 0/7 nodes are available: 7 Insuff")
            assert condition["reason"] == "Unschedulable"
            assert condition["message"].startswith(
                "Group default/second needs room for 4 pods at once; 3 fit. With these placed, for the next one"
            )
            assert "nodeName" not in (await api.get(f"{PODS}/{name}"))["spec"]
        await remove(api, *names_of("first"))
        await all_placed(api, names_of("second"))


@pytest.mark.parametrize("job", [indexed_job, recipe, leader_worker_set])
async def test_a_group_on_an_ultraserver(
    api: RestClient, scheduler: SchedulerProcess, job: Callable[[str], Iterator[Object]]
) -> None:
    """It gets the intact one, and its ranks are in the order of places, also if workers come when their leader runs."""
    await add_ultraservers(scheduler, api, broken="broken", intact="intact")
    leader, *workers = job("train")
    await create_pod(api, leader)
    if job is leader_worker_set:
        await placed(api, "train-0")
    for worker in workers:
        await create_pod(api, worker)
    assert await nodes_of(api, names_of("train")) == [f"intact-{place}" for place in range(SIZE)]


async def until_so_many(api: RestClient, count: int) -> None:
    async def is_so() -> bool:
        return len((await api.get(PODS))["items"]) == count

    await until(is_so)


@pytest.mark.parametrize("job", [indexed_job, recipe, leader_worker_set])
async def test_a_group_makes_room(
    api: RestClient, scheduler: SchedulerProcess, job: Callable[[str], Iterator[Object]]
) -> None:
    """Pods of lower priority leave the UltraServer, and ranks are in the order of places; without one, any machines."""
    await add_priority_classes(api, low=10, high=100)
    await add_ultraservers(scheduler, api, broken="broken", intact="intact")
    async with kubelets(api):
        for number in range(2 * SIZE - 1):
            await placed(api, f"low-{number}", neuron=WHOLE, priorityClassName="low")
        for pod in job("train"):
            await create_pod(api, {**pod, "spec": {**pod["spec"], "priorityClassName": "high"}})
        nodes = await nodes_of(api, names_of("train"))
        assert nodes == [f"intact-{place}" for place in range(SIZE)] or job is indexed_job
        await until_so_many(api, 2 * SIZE - 1)


@asynccontextmanager
async def half_bound(
    plane: ControlPlane, account: Path, api: RestClient, fault: Fault
) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler until the Binding of a member of a group has met a fault."""
    async with run_proxy(plane) as proxy, run_scheduler(account, f"--master={proxy.url}", *SHORT_LEASE) as scheduler:
        proxy.add(fault)
        await scheduler.line(ACQUIRED)
        await add_ultraservers(scheduler, api, intact="intact")
        for pod in indexed_job("train"):
            await create_pod(api, pod)
        with anyio.fail_after(60):
            await fault.taken.wait()
        yield scheduler


async def completed(scheduler: SchedulerProcess, api: RestClient) -> None:
    """Wait until the group has the UltraServer; a rival that asked before its last member had a node has nothing."""
    assert await nodes_of(api, names_of("train")) == [f"intact-{place}" for place in range(SIZE)]
    await refused(api, "rival", saying="0/4 nodes are available")
    assert await scheduler.stop() == 0


async def test_a_leader_that_is_killed_between_two_bindings(
    plane: ControlPlane, account: Path, empty: RestClient
) -> None:
    """The next one binds the other member in the same UltraServer, before a pod that came meanwhile."""
    async with half_bound(plane, account, empty, Fault(binding_of("train-2"), HELD, times=ALWAYS)) as leader:
        await leader.line(BOUND, count=SIZE - 1)
        await leader.kill()
    await create_pod(empty, pod_manifest("rival", neuron=WHOLE))
    await empty.request("DELETE", LEASE)
    async with run_scheduler(account) as successor:
        await completed(successor, empty)


@pytest.mark.parametrize("status", [403, 409, 422])
async def test_a_member_whose_binding_is_refused(
    plane: ControlPlane, account: Path, empty: RestClient, status: int
) -> None:
    """Its space is kept for it beside a rival, and the group is complete in the end."""
    refusal = Fault(binding_of("train-2"), instead(Refusal(status)))
    async with half_bound(plane, account, empty, refusal) as scheduler:
        await create_pod(empty, pod_manifest("rival", neuron=WHOLE))
        await completed(scheduler, empty)
