"""
One road under churn on a real API server: pods come and end in real time, and every allocation is checked.

The workload is that of `benchmarks.placement`, in fewer seconds: its times are divided by a factor. Pods begin to run
when their Binding is seen, as with a kubelet. Legality is judged from AWS's annotation alone, with the enumeration of
legal sets that the tests use. Refuses to know how a road is started.
"""

import time
from contextlib import aclosing
from typing import Any, Final

import anyio
import anyio.abc
import attrs

from benchmarks.churn.simulation import WARM_UP
from benchmarks.churn.workload import Arrival, Workload
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import Machine, machine_of
from tests.control_plane.objects import create_all, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.support.neuron_oracle import legal

PODS: Final = "/api/v1/namespaces/default/pods"


@attrs.frozen
class Figures:
    """
    What was seen of one road.

    Attributes:
        bound: pods that got a node.
        legal: the share of them whose devices are a legal set that no other pod had at that time.
        utilisation: share of the devices in use after the warm-up, by time.
        mean_wait: seconds of this run from a pod's creation to its Binding; one that never got a node counts until
            the end.
        unplaced: the share of the pods after the warm-up that got no node.
        rate: the most pods bound in one second.
    """

    bound: int
    legal: float
    utilisation: float
    mean_wait: float
    unplaced: float
    rate: int


@attrs.define(eq=False, kw_only=True)
class Churn:
    """
    A run.

    Attributes:
        factor: seconds of the workload in one second of the run.
        scheduler_name: of all pods.
    """

    api: RestClient
    workload: Workload
    factor: float
    scheduler_name: str
    _arrivals: dict[str, Arrival] = attrs.field(init=False)
    _machines: dict[str, Machine] = attrs.field(factory=dict, init=False)
    _created: dict[str, float] = attrs.field(factory=dict, init=False)
    _bound: dict[str, float] = attrs.field(factory=dict, init=False)
    _ended: dict[str, float] = attrs.field(factory=dict, init=False)
    _used: dict[str, int] = attrs.field(factory=dict, init=False)
    _wrong: list[str] = attrs.field(factory=list, init=False)
    _began: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self._arrivals = {arrival.pod.name: arrival for arrival in self.workload.arrivals}
        for node in self.workload.nodes:
            machine = machine_of(node)
            if machine is not None:
                self._machines[node.name] = machine

    @property
    def nodes(self) -> list[Object]:
        """The fleet as manifests."""
        return [node_manifest(node.name, node.instance_type) for node in self.workload.nodes]

    @property
    def seconds(self) -> float:
        """How long the run takes."""
        return self.workload.end / self.factor

    async def run(self) -> Figures:
        """Create the pods at their times, end them after their lifetimes, and return the figures."""
        version = (await self.api.get(PODS, limit=1))["metadata"]["resourceVersion"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, version, tasks)
            first = [arrival for arrival in self.workload.arrivals if arrival.at == 0]
            await create_all(self._create, map(self._manifest, first))
            self._began = time.perf_counter()
            for arrival in self.workload.arrivals[len(first) :]:
                await self._reach(arrival.at / self.factor)
                tasks.start_soon(self._create, self._manifest(arrival))
            await self._reach(self.seconds)
            tasks.cancel_scope.cancel()
        return self._figures()

    def _manifest(self, arrival: Arrival) -> Object:
        return pod_manifest(
            arrival.pod.name,
            scheduler_name=self.scheduler_name,
            neuron=arrival.size,
            nodeSelector=dict(arrival.pod.constraints.node_selector),
            terminationGracePeriodSeconds=0,
        )

    async def _reach(self, second: float) -> None:
        await anyio.sleep(max(0.0, self._began + second - time.perf_counter()))

    async def _create(self, manifest: Object) -> None:
        self._created[manifest["metadata"]["name"]] = time.perf_counter()
        await create_pod(self.api, manifest)

    async def _follow(self, version: str, tasks: anyio.abc.TaskGroup) -> None:
        """Note what becomes of the pods; the API server ends the watch of a client that is slow for a moment."""
        while True:
            async with aclosing(self.api.watch(PODS, version)) as events:
                async for kind, pod in events:
                    version = pod["metadata"]["resourceVersion"]
                    self._note(kind, pod, tasks)

    def _note(self, kind: str, pod: Object, tasks: anyio.abc.TaskGroup) -> None:
        name = pod["metadata"]["name"]
        if kind == "DELETED":
            self._left(name, pod)
        elif "nodeName" in pod["spec"] and name not in self._bound:
            self._bound[name] = time.perf_counter()
            self._take(name, pod)
            tasks.start_soon(self._end, name)

    async def _end(self, name: str) -> None:
        await anyio.sleep(self._arrivals[name].lifetime / self.factor)
        await self.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)

    def _take(self, name: str, pod: Object) -> None:
        """Check a pod's devices against the legal sets and against those that are in use."""
        node, ids = pod["spec"]["nodeName"], _mask(pod)
        used = self._used.get(node, 0)
        count = self._arrivals[name].size
        if ids & used or ids not in legal(self._machines[node], Unit.DEVICE, count):
            self._wrong.append(name)
        self._used[node] = used | ids

    def _left(self, name: str, pod: Object) -> None:
        if name in self._bound:
            self._ended[name] = time.perf_counter()
            self._used[pod["spec"]["nodeName"]] &= ~_mask(pod)

    def _figures(self) -> Figures:
        end = self._began + self.seconds
        begin = self._began + self.seconds * WARM_UP
        used = sum(
            self._arrivals[name].size * max(0.0, min(end, self._ended.get(name, end)) - max(begin, at))
            for name, at in self._bound.items()
        )
        counted = [name for name, at in self._created.items() if at >= begin]
        waits = [self._bound.get(name, end) - self._created[name] for name in counted]
        by_second: dict[int, int] = {}
        for at in self._bound.values():
            by_second[int(at)] = by_second.get(int(at), 0) + 1
        return Figures(
            bound=len(self._bound),
            legal=1 - len(self._wrong) / max(1, len(self._bound)),
            utilisation=used / (self.workload.capacity * (end - begin)),
            mean_wait=sum(waits) / max(1, len(waits)),
            unplaced=sum(name not in self._bound for name in counted) / max(1, len(counted)),
            rate=max(by_second.values(), default=0),
        )


def _mask(pod: Any) -> int:
    """Return the devices that the device plugin would read, as a mask of ids; 0 without an annotation."""
    ids = pod["metadata"].get("annotations", {}).get("AWS_NEURON_IDS", "")
    return sum(1 << int(device) for device in ids.split(",") if device)
