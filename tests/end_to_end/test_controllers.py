"""
Jobs as their controllers make them, on a real API server: what their owners expect comes, pod by pod.

The controllers are models (`tests.support.controllers`); the real ones were beside an earlier state of this scheduler.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import attrs
import pytest

from tests.control_plane.objects import create_node, create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.end_to_end.process import ACQUIRED, SchedulerProcess, run_scheduler
from tests.end_to_end.test_groups import COUNT, FOUR, GROUP, node
from tests.end_to_end.workload import PODS, kubelets, refused
from tests.support.controllers import (
    ULTRASERVER,
    JobSet,
    LeaderWorkerSet,
    Queued,
    StatefulSet,
    Workload,
    admitted_job,
    mpi_job,
    plain_pods,
    serving,
)

TWO: Final = f"{ULTRASERVER}-2"
TICK: Final = 0.1
"""Seconds between two looks of a controller."""
Placed = Mapping[str, str]
"""Names of nodes by those of pods; of bound pods only."""
_ODD: Final = ("bbb-2", "bbb-0", "bbb-1", "aaa-0", "aaa-1")
"""Two whole pairs and, first of all, a node whose pair has no other."""
_SEVEN: Final = (*(f"aaa-{place}" for place in range(4)), *(f"bbb-{place}" for place in range(3)))


@attrs.frozen(kw_only=True)
class Case:
    """
    What a user does, and expects.

    Attributes:
        name: of the case, and where it was found.
        nodes: in the order in which they join; each takes one pod of 16 devices, or two of 8.
        cordoned: of these.
        met: whether the pods that are bound are as expected.
        waits: a text in the message of a pod that is not bound then, by its name; with more than one, of any.
    """

    name: str
    nodes: tuple[str, ...]
    workload: Workload
    met: Callable[[Placed], bool]
    cordoned: frozenset[str] = frozenset()
    waits: Mapping[str, str] = {}


def build(name: str, **rest: object) -> dict[str, object]:
    """Return a pod; one without devices has none in its limits."""
    return pod_manifest(name, **rest)  # type: ignore[arg-type]  # as `Build` says


def count(number: int, on: str = "") -> Callable[[Placed], bool]:
    """Return whether so many pods are bound, all on nodes whose names begin so."""
    return lambda placed: len(placed) == number and all(name.startswith(on) for name in placed.values())


def whole(name: str, size: int, *, replicas: int = 1) -> Callable[[Placed], bool]:
    """Return whether so many groups of a LeaderWorkerSet are bound with all their members, and no pod of another."""

    def met(placed: Placed) -> bool:
        groups = [each.removeprefix(f"{name}-").partition("-")[0] for each in placed]
        return sorted(map(groups.count, set(groups))) == [size] * replicas

    return met


_EXCLUSIVE: Final = partial(JobSet, build=build, name="ex", jobs=2, size=2, topology=TWO)
_LWS: Final = partial(LeaderWorkerSet, build=build)
CASES: Final = (
    Case(name="c2", nodes=_ODD, workload=_EXCLUSIVE(), met=count(4)),
    Case(name="c3", nodes=_ODD, workload=_EXCLUSIVE(labels={GROUP: "ex", COUNT: "4"}), met=count(4)),
    Case(name="x1", nodes=_ODD, workload=admitted_job(_EXCLUSIVE(), "jobset-ex"), met=count(4)),
    Case(
        name="K17-a8",
        nodes=_SEVEN,
        workload=serving(StatefulSet(build=build, name="ks", replicas=3), "statefulset-ks", 3, fast=True),
        met=count(3),
    ),
    Case(
        name="K17-a7r",
        nodes=_SEVEN,
        workload=serving(_LWS(name="kw", replicas=1, size=3, when_ready=True), "leaderworkerset-kw", 3),
        met=count(3),
    ),
    Case(
        name="K17-r1",
        nodes=_SEVEN,
        workload=serving(_LWS(name="kx", replicas=1, size=4, topology=FOUR), "leaderworkerset-kx", 4),
        met=count(4, on="aaa"),
    ),
    Case(
        name="a4",
        nodes=_SEVEN[:3],
        workload=plain_pods(build, "h", 4),
        met=count(0),
        waits={"h-0": "Group default/h needs room for 4 pods at once; 3 fit"},
    ),
    Case(
        name="m7",
        nodes=("aaa-0", "aaa-1", *(f"bbb-{place}" for place in range(4))),
        workload=mpi_job(build, "train", 8, 8, FOUR),
        met=count(8, on="bbb"),
    ),
    Case(
        name="b5",
        nodes=_SEVEN,
        workload=_LWS(name="serve", replicas=5, size=4, when_ready=True),
        met=whole("serve", 4),
    ),
    Case(
        name="b2",
        nodes=_SEVEN,
        workload=_LWS(name="lr", replicas=2, size=4, when_ready=True, topology=FOUR),
        met=lambda placed: whole("lr", 4)(placed) and count(4, on="aaa")(placed),
        waits={"lr-0": "room for all 4", "lr-1": "room for all 4"},
    ),
    Case(
        name="b6",
        nodes=("aaa-0", "aaa-1", "bbb-0", "bbb-1"),
        cordoned=frozenset({"aaa-1"}),
        workload=_LWS(name="cpu", replicas=1, size=3, topology=TWO, leader_neuron=0),
        met=count(3, on="bbb"),
    ),
)


@pytest.fixture(scope="module")
async def scheduler(account: Path, plane: object) -> AsyncIterator[SchedulerProcess]:
    """Run one scheduler for all cases."""
    async with run_scheduler(account) as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler
        assert await scheduler.stop() == 0


@asynccontextmanager
async def controlled(api: RestClient, workload: Workload) -> AsyncIterator[None]:
    """Let a controller and the kubelets work until the block is left."""

    async def run() -> None:
        while True:
            pods, nodes = [
                {each["metadata"]["name"]: each for each in (await api.get(path))["items"]}
                for path in (PODS, "/api/v1/nodes")
            ]
            for pod in workload.wanted(pods, nodes):
                if pod["metadata"]["name"] not in pods:
                    await create_pod(api, pod)
            for name in workload.admitted(pods) if isinstance(workload, Queued) else ():
                await api.patch(f"{PODS}/{name}", {"spec": {"schedulingGates": None}})
            await anyio.sleep(TICK)

    async with kubelets(api), anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_workload(api: RestClient, scheduler: SchedulerProcess, case: Case) -> None:
    """Its pods are bound as its owner expects, and those that are not say why."""
    for name in case.nodes:
        server, _, place = name.partition("-")
        await create_node(api, node(server, int(place), unschedulable=name in case.cordoned))
    await scheduler.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == len(case.nodes))
    async with controlled(api, case.workload):

        def placed(pods: Mapping[str, dict[str, object]]) -> Placed:
            specs = {key.partition("/")[2]: pod["spec"] for key, pod in pods.items()}
            return {name: spec["nodeName"] for name, spec in specs.items() if "nodeName" in spec}  # type: ignore[operator, index]  # JSON

        bound = placed(await api.wait_until(PODS, lambda pods: case.met(placed(pods))))
        for name in case.waits.keys() - bound.keys():
            await refused(api, name, saying=case.waits[name])
        pods = {f"default/{pod['metadata']['name']}": pod for pod in (await api.get(PODS))["items"]}
        assert case.met(placed(pods)), "nothing more is bound while it is said"
