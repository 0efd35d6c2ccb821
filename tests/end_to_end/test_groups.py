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
from tests.end_to_end.process import ACQUIRED, BOUND, SHORT_LEASE, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import (
    EVENTS,
    LEASE,
    PODS,
    all_placed,
    condition_of,
    events_of,
    kubelets,
    placed,
    refused,
    remove,
)
from tests.faults.answers import Refusal
from tests.faults.calls import binding_of
from tests.faults.proxy import ALWAYS, HELD, Behaviour, Fault, instead, run_proxy

ULTRASERVER: Final = "neuron.amazonaws.com/ultraserver"
FOUR: Final = f"{ULTRASERVER}-server-id-4"
TYPE: Final = "trn2.48xlarge"
WHOLE: Final = 16
"""Devices of a machine of this type."""
SIZE: Final = 4
"""Members of each group here."""
GROUP: Final = "pod-group.scheduling.sigs.k8s.io/name"
COUNT: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
GATE: Final = "kueue.x-k8s.io/admission"
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


def names_of(group: str, count: int = SIZE) -> list[str]:
    """Return the names of members."""
    return [f"{group}-{rank}" for rank in range(count)]


def member(group: str, rank: int, *, labels: dict[str, str], **fields: Any) -> Object:
    """Return a member that takes a whole machine."""
    return pod_manifest(f"{group}-{rank}", neuron=WHOLE, labels=labels, **fields)


def indexed_job(name: str, count: int = SIZE) -> Iterator[Object]:
    """Yield the pods of an Indexed Job whose template has the labels of coscheduling with a count."""
    for rank in range(count):
        labels = {GROUP: name, COUNT: str(SIZE), "batch.kubernetes.io/job-completion-index": str(rank)}
        yield member(name, rank, labels=labels)


def mpi_job(name: str) -> Iterator[Object]:
    """Yield the workers of an MPIJob and its launcher, which counts."""
    group = {GROUP: name, COUNT: str(SIZE + 1), "training.kubeflow.org/job-name": name}
    for rank in range(SIZE):
        labels = {"training.kubeflow.org/job-role": "worker", "training.kubeflow.org/replica-index": str(rank)}
        yield member(name, rank, labels=group | labels)
    yield pod_manifest(f"{name}-launcher", labels=group | {"training.kubeflow.org/job-role": "launcher"})


def recipe(name: str) -> Iterator[Object]:
    """Yield the workers of an MPIJob with AWS's recipe for UltraServers."""
    group = {"training.kubeflow.org/job-name": name, "training.kubeflow.org/job-role": "worker"}
    affinity = {"podAffinity": _required({"matchLabels": group})}
    for rank in range(SIZE):
        labels = group | {"training.kubeflow.org/replica-index": str(rank)}
        yield member(name, rank, labels=labels, affinity=affinity)


def kueue(name: str) -> Iterator[Object]:
    """Yield the plain pods of a group that Kueue has admitted."""
    for rank in range(SIZE):
        labels = {"kueue.x-k8s.io/pod-group-name": name, "kueue.x-k8s.io/pod-group-pod-index": str(rank)}
        yield member(name, rank, labels=labels, annotations={"kueue.x-k8s.io/pod-group-total-count": str(SIZE)})


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


async def create(api: RestClient, pods: Iterator[Object]) -> None:
    """Create pods in their order."""
    for pod in pods:
        await create_pod(api, pod)


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
            await create(api, iter(pods))
        await all_placed(api, names_of("first"))
        for name in names_of("second"):
            condition = await refused(api, name, saying="3 of 4 members of group default/second fit at once")
            assert condition["reason"] == "Unschedulable"
            assert condition["message"].startswith(
                "3 of 4 members of group default/second fit at once. "
                "With these placed, the next one: 0/7 nodes are available: 7 Insuff"
            )
            assert "nodeName" not in (await api.get(f"{PODS}/{name}"))["spec"]
        await remove(api, *names_of("first"))
        await all_placed(api, names_of("second"))


@pytest.mark.parametrize("job", [indexed_job, mpi_job, recipe, kueue])
async def test_a_group_on_an_ultraserver(
    api: RestClient, scheduler: SchedulerProcess, job: Callable[[str], Iterator[Object]]
) -> None:
    """Whose words it has does not matter: it gets the intact UltraServer, and its ranks are in the order of places."""
    await add_ultraservers(scheduler, api, broken="broken", intact="intact")
    await create(api, job("train"))
    assert await nodes_of(api, names_of("train")) == [f"intact-{place}" for place in range(SIZE)]


async def test_workers_that_come_when_their_leader_runs(api: RestClient, scheduler: SchedulerProcess) -> None:
    """The leader of a LeaderWorkerSet does not wait for workers, and goes where all of them have room."""
    await add_ultraservers(scheduler, api, broken="broken", intact="intact")
    leader, *workers = leader_worker_set("serve")
    await create_pod(api, leader)
    await placed(api, "serve-0")
    await create(api, iter(workers))
    assert await nodes_of(api, names_of("serve")) == [f"intact-{place}" for place in range(SIZE)]


async def test_gates_that_are_lifted_one_after_the_other(api: RestClient, scheduler: SchedulerProcess) -> None:
    """A member with a scheduling gate is none yet: the others wait for it."""
    await add_ultraservers(scheduler, api, intact="intact")
    for pod in kueue("train"):
        pod["spec"]["schedulingGates"] = [{"name": GATE}]
        await create_pod(api, pod)
    *others, last = names_of("train")
    for name in others:
        await api.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": None}})
    for name in others:
        condition = await refused(api, name, saying="3 of 4 members of group default/train")
        assert condition["reason"] == "WaitingForGroup"
    assert condition_of(await api.get(f"{PODS}/{last}"))["reason"] == "SchedulingGated"
    await api.patch(f"{PODS}/{last}", {"spec": {"schedulingGates": None}})
    await all_placed(api, names_of("train"))


async def test_a_group_that_lacks_a_member(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Its members say how many exist, once, with a reason for which no autoscaler buys, and wait for the last one."""
    await add_ultraservers(scheduler, api, intact="intact")
    *pods, last = indexed_job("train")
    await create(api, iter(pods))
    for name in names_of("train", SIZE - 1):
        condition = await refused(api, name, saying="3 of 4 members of group default/train exist")
        assert condition["reason"] == "WaitingForGroup"
        await events_of(api, name, "WaitingForGroup")
    await create_pod(api, last)
    assert await nodes_of(api, names_of("train")) == [f"intact-{place}" for place in range(SIZE)]
    for name in names_of("train"):
        await events_of(api, name, "Scheduled")
    events = [(event["regarding"]["name"], event["reason"]) for event in (await api.get(EVENTS))["items"]]
    told = [(name, "WaitingForGroup") for name in names_of("train", SIZE - 1)]
    assert sorted(events) == sorted([*told, *((name, "Scheduled") for name in names_of("train"))])


@asynccontextmanager
async def behind_a_proxy(plane: ControlPlane, account: Path, *faults: Fault) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler whose requests meet faults."""
    async with run_proxy(plane) as proxy, run_scheduler(account, f"--master={proxy.url}", *SHORT_LEASE) as scheduler:
        for fault in faults:
            proxy.add(fault)
        await scheduler.line(ACQUIRED)
        yield scheduler


@pytest.mark.parametrize("bound", [1, 2, 3])
async def test_a_leader_that_is_killed_between_two_bindings(
    plane: ControlPlane, account: Path, empty: RestClient, bound: int
) -> None:
    """The next one binds the other members in the same UltraServer, before a pod that came meanwhile."""
    held = Fault(binding_of("train"), HELD, times=ALWAYS)
    sent = Fault(binding_of("train"), Behaviour(times=bound))
    async with behind_a_proxy(plane, account, sent, held) as leader:
        await add_ultraservers(leader, empty, intact="intact")
        await create(empty, indexed_job("train"))
        await leader.line(BOUND, count=bound)
        with anyio.fail_after(60):
            await held.taken.wait()
        await leader.kill()
    await create_pod(empty, pod_manifest("rival", neuron=WHOLE))
    pods = (await empty.get(PODS))["items"]
    assert sum("nodeName" in pod["spec"] for pod in pods) == bound
    await empty.request("DELETE", LEASE)
    async with run_scheduler(account) as successor:
        assert sorted(await nodes_of(empty, names_of("train"))) == [f"intact-{place}" for place in range(SIZE)]
        await refused(empty, "rival", saying="0/4 nodes are available")
        assert await successor.stop() == 0


@pytest.mark.parametrize("status", [403, 409, 422])
async def test_a_member_whose_binding_is_refused(
    plane: ControlPlane, account: Path, empty: RestClient, status: int
) -> None:
    """Its space is kept for it beside a rival, and the group is complete in the end."""
    refusal = Fault(binding_of("train-2"), instead(Refusal(status)))
    async with behind_a_proxy(plane, account, refusal) as scheduler:
        await add_ultraservers(scheduler, empty, intact="intact")
        await create(empty, indexed_job("train"))
        with anyio.fail_after(60):
            await refusal.taken.wait()
        await create_pod(empty, pod_manifest("rival", neuron=WHOLE))
        assert await nodes_of(empty, names_of("train")) == [f"intact-{place}" for place in range(SIZE)]
        await refused(empty, "rival", saying="0/4 nodes are available")
        assert await scheduler.stop() == 0
