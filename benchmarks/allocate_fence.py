"""
What the allocate fence costs, and what it prevents, in virtual time.

Run as `python -m benchmarks.allocate_fence [--latencies 1 5 15] [--workloads burst-60 ...]`. The real scheduling loop,
binding cycle and cluster, with trn1.32xlarge nodes whose kubelets and device plugins are simulated
(`tests.support.device_plugin`). A kubelet admits a pod 0.5 to 1.5 times the latency after its Binding, so pods are
admitted in another order than they were bound; a Binding takes 40 ms. Prints, with and without the
fence: the time until all pods run, the wait of a pod from its creation until it runs, the most pods that waited at the
fence, how many pods got the ids of another pod, and how many devices went to a second pod while a first one still used
them.
"""

import argparse
import asyncio
import math
import random
import selectors
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import anyio
import attrs

from benchmarks.decision import fleet
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.handlers.pods import PodHandler
from neuron_scheduler.controllers.preemption_executor import PostFilter
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.kube.writes.binder import Binding, BindOutcome, Bound, InDoubt
from neuron_scheduler.model.neuron_request import neuron_container_names, neuron_request
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod, placed
from neuron_scheduler.model.resources import CPU, NEURON_DEVICE, Container, Resources
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.device_plugin import NodeAgent

BINDING: Final = 0.04  # seconds
TYPE: Final = "trn1.32xlarge"
DEVICES: Final = 16
MIX: Final = (1, 4, 1, 8, 1, 4, 1, 16)
PODS_OF_A_JOB: Final = 8
NAME: Final = "my-scheduler"
GRANULE: Final = 1e-6  # seconds; the smallest step of the time


@attrs.frozen
class Arrival:
    """A pod: when it is created, its request, how long it runs."""

    at: float
    devices: int
    life: float = math.inf


@attrs.frozen
class Workload:
    """Pods for a number of nodes."""

    title: str
    nodes: int
    arrivals: Callable[[random.Random], Iterator[Arrival]]


def burst(pods: int, life: float = math.inf) -> Callable[[random.Random], Iterator[Arrival]]:
    """Return pods of four devices that are all created at once."""
    return lambda _dice: (Arrival(0.0, 4, life) for _ in range(pods))


def churn(nodes: int, jobs: int, *, load: float, life: float) -> Callable[[random.Random], Iterator[Arrival]]:
    """Return jobs of eight equal pods, of the sizes of the mix, that use this share of the devices on average."""

    def arrivals(dice: random.Random) -> Iterator[Arrival]:
        rate = load * nodes * DEVICES / (statistics.mean(MIX) * PODS_OF_A_JOB * life)
        at = 0.0
        for number in range(jobs):
            at += dice.expovariate(rate)
            for _ in range(PODS_OF_A_JOB):
                yield Arrival(at, MIX[number % len(MIX)], dice.expovariate(1 / life))

    return arrivals


WORKLOADS: Final = {
    "burst-60": Workload("60 nodes, 240 pods of 4 at once", 60, burst(240)),
    "waves-20": Workload("20 nodes, 240 pods of 4 at once, each runs 60 s", 20, burst(240, 60.0)),
    "burst-1000": Workload("1,000 nodes, 1,000 pods of 4 at once", 1_000, burst(1_000)),
    "full-1000": Workload("1,000 nodes, 3,000 pods of 4 at once", 1_000, burst(3_000)),
    "churn-60": Workload("60 nodes, jobs of 8 pods, load 0.7, 10 min each", 60, churn(60, 200, load=0.7, life=600.0)),
}


class _VirtualTime(selectors.DefaultSelector):
    """A selector that never waits: it advances the clock of its loop."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Return at once, and advance the time by the requested wait."""
        if timeout:
            self.now += max(timeout, GRANULE)
        return super().select(0)


def _loop() -> asyncio.AbstractEventLoop:
    selector = _VirtualTime()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    return loop


@attrs.define(eq=False, repr=False)  # asyncio writes the repr of what its tasks are bound to
class Site:
    """The scheduler with simulated collaborators; the methods have their names."""

    workload: Workload
    latency: float
    fenced: bool
    dice: random.Random
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    agents: dict[str, NodeAgent] = attrs.field(factory=dict)
    waits: list[float] = attrs.field(factory=list)
    most_waiting: int = 0
    ended: float = 0.0
    scheduler: SchedulingLoop = attrs.field(init=False)
    handler: PodHandler = attrs.field(init=False)
    _wanted: int = attrs.field(default=0, init=False)
    _all_run: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _tasks: Any = attrs.field(init=False)
    _lives: dict[str, float] = attrs.field(factory=dict)
    _came: dict[str, float] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        world: Any = self
        self.scheduler = SchedulingLoop(
            cluster=self.cluster,
            queue=self.queue,
            profiles={NAME: default_profile(NAME)},
            binder=world,
            volumes=world,
            preemption_executor=world,
            reporter=world,
            metrics=Metrics(),
            clock=anyio.current_time,
            listing=lambda: False,
            defers=lambda _: False,
            wall_clock=lambda: round(anyio.current_time() * 1e9) + 1,
            may_bind=lambda: True,
            bind_concurrency=Config().bind_concurrency,
            allocate_fence=self.fenced,
        )
        self.handler = PodHandler(
            cluster=self.cluster,
            queue=self.queue,
            metrics=self.scheduler.metrics,
            scheduler_names={NAME},
            clock=anyio.current_time,
            gone=_ignore,
            came=_ignore,
            left=_ignore,
            started=_ignore,
            double_booked=_ignore,
            unknown=_ignore,
            noticed=self.scheduler.fence.noticed,
            pending_elsewhere=_ignore,
        )
        nodes = (node for node in fleet(8 * self.workload.nodes) if node.labels[INSTANCE_TYPE_LABEL] == TYPE)
        for node, _ in zip(nodes, range(self.workload.nodes), strict=False):
            self.cluster.put_node(node)
            self.agents[node.name] = NodeAgent(DEVICES)
        if len(self.agents) != self.workload.nodes:
            raise AssertionError("the fleet has too few nodes of the type")

    async def play(self) -> None:
        """Create all pods, and run until they run and end."""
        arrivals = list(self.workload.arrivals(self.dice))
        self._wanted = len(arrivals)
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self.scheduler.run)
            for number, arrival in enumerate(arrivals):
                if arrival.at > anyio.current_time():
                    await anyio.sleep_until(arrival.at)
                pod = pending(f"pod-{number:05d}", arrival.devices)
                self._lives[pod.uid], self._came[pod.uid] = arrival.life, anyio.current_time()
                self.handler.added(pod)
            await self._all_run.wait()
            self._tasks.cancel_scope.cancel()

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome | InDoubt:
        """Bind the pod and show it in the watch."""
        await anyio.sleep(BINDING)
        bound = placed(pod, node_name, annotations)
        self.agents[node_name].bind(bound)
        self.handler.updated(pod, bound)
        self._tasks.start_soon(self._live, bound)
        self.most_waiting = max(self.most_waiting, self.scheduler.fence.waiting)
        return Bound()

    async def again(self, binding: Binding) -> BindOutcome | InDoubt:
        """Repeat no Binding: no outcome is unknown."""
        raise AssertionError(binding)

    async def _live(self, pod: Pod) -> None:
        """Act as the kubelet of one pod."""
        await anyio.sleep(self.latency * self.dice.uniform(0.5, 1.5))
        agent = self.agents[pod.node_name]
        running = agent.admit(pod.uid)
        self.handler.updated(pod, running)
        self.ended = anyio.current_time()
        self.waits.append(self.ended - self._came[pod.uid])
        if len(self.waits) == self._wanted:
            self._all_run.set()
        if self._lives[pod.uid] < math.inf:
            await anyio.sleep(self._lives[pod.uid])
            agent.end(pod.uid)
            self.handler.deleted(running)

    async def run(self, *, task_status: Any) -> None:
        """Preempt no pod."""
        task_status.started()

    async def post_filter(self, *_: Any) -> PostFilter:
        """Find no pod to preempt."""
        return PostFilter()

    def __getattr__(self, _name: str) -> Callable[..., None]:
        """Ignore other reports."""
        return _ignore


def _ignore(*_: Any, **__: Any) -> None:
    """Ignore it."""


def pending(name: str, devices: int) -> Pod:
    """Return a pod that asks for devices."""
    requests: Resources = {CPU: 1_000 * devices, NEURON_DEVICE: devices}
    containers = [Container("main", requests)]
    return Pod(
        uid=name,
        namespace="default",
        name=name,
        scheduler_name=NAME,
        requests=requests,
        neuron=neuron_request(containers),
        neuron_containers=neuron_container_names(containers),
    )


def measure(workload: Workload, latency: float, *, fenced: bool) -> Site:
    """Run one workload."""

    async def play() -> Site:
        site = Site(workload, latency, fenced, random.Random(1))
        await site.play()
        return site

    return anyio.run(play, backend_options={"loop_factory": _loop})


def main() -> None:
    """Print one line for each workload, latency and setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latencies", type=float, nargs="+", default=[1.0, 5.0, 15.0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    arguments = parser.parse_args()
    print(f"{'workload':52}{'latency':>8}{'fence':>7}{'all run':>10}{'mean wait':>11}{'p99':>9}", end="")
    print(f"{'at the fence':>14}{'swapped':>9}{'used twice':>12}")
    for name in arguments.workloads:
        for latency in arguments.latencies:
            for fenced in (False, True):
                site = measure(WORKLOADS[name], latency, fenced=fenced)
                waits = sorted(site.waits)
                swapped = sum(agent.swapped for agent in site.agents.values())
                shared = sum(agent.shared for agent in site.agents.values())
                print(
                    f"{WORKLOADS[name].title:52}{latency:6g} s{'on' if fenced else 'off':>7}{site.ended:8.1f} s"
                    f"{statistics.mean(waits):9.2f} s{waits[len(waits) * 99 // 100]:7.1f} s{site.most_waiting:14}"
                    f"{swapped:9}{shared:12}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
