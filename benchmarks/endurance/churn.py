"""
Pods of mixed sizes that come and go as fast as the API server takes them, on nodes that come and go too.

It also is all kubelets, and removes the pods of a node that is gone, as the controllers of a cluster do. `rest` holds
everything still, so that it can be judged whether a pod that fits has been left. Refuses to cause faults.
"""

import heapq
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Final

import aiohttp
import anyio
import attrs

from benchmarks.endurance.pace import Pace
from benchmarks.replicas.history import History, asked
from benchmarks.replicas.observer import Observer
from benchmarks.replicas.plane import Cluster, machine_on, node_name, type_of
from neuron_scheduler.model.neuron_request import Unit
from tests.control_plane.fake_kubelet import path_of, running
from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import STRATEGIC, ApiError, Object
from tests.end_to_end.workload import PODS
from tests.support.builders import machine
from tests.support.neuron_oracle import legal

FLEET: Final = {"trn1.32xlarge": 16, "inf2.48xlarge": 12, "inf1.24xlarge": 4, "inf2.xlarge": 8, "trn2.48xlarge": 4}
SIZES: Final = (
    *((Unit.DEVICE, size) for size in (1, 1, 1, 1, 4, 4, 8, 16)),
    *((Unit.CORE, size) for size in (1, 1, 2)),
)
FULL: Final = 0.97  # the share of the fleet's devices that may be asked for at once: the largest pods wait at times
WORKERS: Final = 12
MEAN_LIFE: Final = 1.0  # seconds that a pod runs, exponentially distributed
NODE_PAUSE: Final = 12.0  # seconds between two nodes that are removed
NODE_AWAY: Final = 5.0
RETRY: Final = 0.2

Demand = tuple[Unit, int]


@attrs.define(eq=False)
class Churn:
    """
    Creates, runs and ends pods.

    Attributes:
        dice: chooses sizes, lifetimes and nodes.
        pace: says when the next pod is created.
        pending: what the pods without a node ask for, by uid.
        nodes: the nodes that are there.
    """

    cluster: Cluster
    dice: random.Random
    pace: Pace
    observer: Observer = attrs.field(init=False)
    pending: dict[str, Demand] = attrs.field(factory=dict, init=False)
    nodes: list[str] = attrs.field(factory=list, init=False)
    created: int = attrs.field(default=0, init=False)
    creating: bool = attrs.field(default=True, init=False)
    _resting: bool = attrs.field(default=False, init=False)
    _busy: int = attrs.field(default=0, init=False)
    _asked: dict[str, float] = attrs.field(factory=dict, init=False)
    _ends: list[tuple[float, str, str]] = attrs.field(factory=list, init=False)
    _to_start: deque[Object] = attrs.field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self.observer = Observer(self.cluster.api, History(machine_on, keep=False), self._note)

    @property
    def history(self) -> History:
        """What was seen."""
        return self.observer.history

    @property
    def alive(self) -> int:
        """How many pods exist."""
        return len(self._asked)

    async def prepare(self) -> None:
        """Create the nodes."""
        for instance_type, count in FLEET.items():
            await self.cluster.add_nodes(instance_type, count)
            self.nodes += [node_name(instance_type, number) for number in range(count)]

    async def run(self) -> None:
        """Work until cancelled."""
        version = str((await self.cluster.api.get(PODS, limit=1))["metadata"]["resourceVersion"])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.observer.run, version)
            tasks.start_soon(self._replace_nodes)
            for _ in range(WORKERS):
                tasks.start_soon(self._create_each)
                tasks.start_soon(self._end_each)
                tasks.start_soon(self._start_each)

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Create and delete nothing inside the block; each pod runs for longer by the time that it takes."""
        self._resting, began = True, time.perf_counter()
        try:
            yield
        finally:
            self._resting, rested = False, time.perf_counter() - began
            self._ends = [(due + rested, pod, node) for due, pod, node in self._ends]

    async def still(self) -> None:
        """Return when no request of ours is on its way."""
        while self._busy:  # noqa: ASYNC110 - many tasks change it, several times in a millisecond
            await anyio.sleep(0.05)

    def left_behind(self) -> list[Demand]:
        """Return what the pods ask for that have no node, although they fit on one as it is."""
        return [demand for demand in self.pending.values() if self._fits(demand)]

    def _fits(self, demand: Demand) -> bool:
        unit, count = demand
        for node in self.nodes:
            here, held = machine_on(node), self.history.held(node)
            width = here.cores_per_device if unit is Unit.DEVICE else 1
            if any(not held & _widened(ids, width) for ids in legal(here, unit, count)):
                return True
        return False

    def _note(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self.pending.pop(uid, None)
            self._asked.pop(uid, None)
            return
        self._asked[uid] = devices_of(asked(pod))
        if "nodeName" not in pod["spec"]:
            self.pending[uid] = asked(pod)
        elif self.pending.pop(uid, None) is not None:
            due = time.perf_counter() + self.dice.expovariate(1 / MEAN_LIFE)
            heapq.heappush(self._ends, (due, pod["metadata"]["name"], pod["spec"]["nodeName"]))
            self._to_start.append(pod)

    async def _create_each(self) -> None:
        room = FULL * sum(machine(type_).devices * count for type_, count in FLEET.items())
        while True:
            if not self.creating or self._resting or sum(self._asked.values()) >= room or not self.pace.due():
                await anyio.sleep(0.02)
                continue
            self.created += 1
            unit, count = self.dice.choice(SIZES)
            devices, cores = (count, 0) if unit is Unit.DEVICE else (0, count)
            pod = pod_manifest(
                f"churn-{self.created}", neuron=devices, neuroncore=cores, terminationGracePeriodSeconds=0
            )
            began = time.perf_counter()
            await self._done(create_pod(self.cluster.api, pod))
            self.pace.note(max(time.perf_counter() - began, self._kubelets_behind()))

    def _kubelets_behind(self) -> float:
        """Return for how many seconds a pod should have ended that is still there."""
        return time.perf_counter() - self._ends[0][0] if self._ends and not self._resting else 0.0

    async def _end_each(self) -> None:
        while True:
            if self._resting or not self._ends or self._ends[0][0] > time.perf_counter():
                await anyio.sleep(0.02)
                continue
            _, name, node = heapq.heappop(self._ends)
            if not await self._done(self.cluster.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)):
                heapq.heappush(self._ends, (time.perf_counter() + RETRY, name, node))

    async def _start_each(self) -> None:
        """Let bound pods run, as their kubelets do; also during a rest."""
        while True:
            if self._to_start:
                await self._until_done(partial(self._run, self._to_start.popleft()))
            else:
                await anyio.sleep(0.02)

    async def _run(self, pod: Object) -> None:
        patch = {"status": running(pod)}
        await self.cluster.api.patch(f"{path_of(pod)}/status", patch, content_type=STRATEGIC)

    async def _replace_nodes(self) -> None:
        while True:
            await anyio.sleep(NODE_PAUSE)
            if self._resting or not self.creating:
                continue
            name = self.nodes.pop(self.dice.randrange(len(self.nodes)))
            path = f"/api/v1/nodes/{name}"
            await self._done(self.cluster.api.delete(path))
            now = time.perf_counter()
            self._ends = [(min(due, now), pod, at) if at == name else (due, pod, at) for due, pod, at in self._ends]
            heapq.heapify(self._ends)
            await anyio.sleep(NODE_AWAY)
            while not await self._done(create_node(self.cluster.api, node_manifest(name, type_of(name)))):
                await self._done(self.cluster.api.delete(path))
            self.nodes.append(name)

    async def _until_done(self, act: Callable[[], Awaitable[object]]) -> None:
        for pause in repeat(RETRY):
            if await self._done(act()):
                return
            await anyio.sleep(pause)

    async def _done(self, request: Awaitable[object]) -> bool:
        """Await a request; False if the server was too busy for it. What is there or gone already is done."""
        self._busy += 1
        try:
            await request
        except ApiError as error:
            if error.status not in (404, 409, 429, 500, 503, 504):
                raise
            return error.status in (404, 409)
        except aiohttp.ClientError:
            return False
        finally:
            self._busy -= 1
        return True


def devices_of(demand: Demand) -> float:
    """Return how many devices a pod asks for; a core is half of one."""
    unit, count = demand
    return float(count) if unit is Unit.DEVICE else count / 2


def _widened(ids: int, width: int) -> int:
    """Return the cores of a mask of devices."""
    if width == 1:
        return ids
    return sum(((1 << width) - 1) << number * width for number in range(ids.bit_length()) if ids >> number & 1)


def sizes_of(demands: Sequence[Demand]) -> str:
    """Return what pods ask for, for people."""
    return ", ".join(f"{count} {unit.value}{'s' if count > 1 else ''}" for unit, count in demands[:10])
