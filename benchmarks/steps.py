"""
The longest step of the event loop by kind of work, in one process without a network, with six pods on every node.

Run as `python -m benchmarks.steps [--nodes 1000 15000 100000]`. All parts run as in the scheduler; only the API server
is a function. Prints for each kind of work the milliseconds of CPU of its longest step, how many steps it took, and the
longest garbage collection in them; at the end what `why` and the fleet take in all, and their longest step.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, product
from random import Random
from typing import Any, Final
from unittest import mock

import anyio
import anyio.lowlevel
import attrs
import msgspec

from benchmarks.decision import PROFILE, stepped
from benchmarks.phases import Fleet
from benchmarks.why import PODS
from neuron_scheduler.app import collections_in_steps
from neuron_scheduler.explain.fleet import fleet
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.kube.http.client import Response
from neuron_scheduler.kube.watch import informer
from neuron_scheduler.kube.watch.informer import Informer
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.serving.questions import MOST_PICTURED
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.control_plane.rest import Object
from tests.support.wired_scheduler import WiredScheduler

SIZES: Final = (1_000, 15_000, 100_000)
TYPES: Final = ("trn1.32xlarge", "trn2.48xlarge", "inf2.48xlarge", "inf2.xlarge")
DEVICES: Final = (16, 1, 12, 1)
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
GROUP: Final = "pod-group.scheduling.sigs.k8s.io/"
SMALL: Final = {"cpu": "1", "memory": "1Gi"}
DAEMONS: Final = ("aws-node", "kube-proxy", "ebs-csi-node", "neuron-device-plugin", "fluent-bit")
LABELS: Final = 20
DRIVER: Final = ""  # what the benchmark itself does


@attrs.define(eq=False)
class Steps:
    """The longest step of each kind of work, how many there were, and the longest collection in them, in ms."""

    kind: str = DRIVER
    longest: dict[str, float] = attrs.field(factory=dict)
    counts: dict[str, int] = attrs.field(factory=dict)
    collections: dict[str, float] = attrs.field(factory=dict)
    _started: float = 0.0

    def on_collection(self, phase: str, _info: Any) -> None:
        """Note how long a collection takes."""
        if phase == "start":
            self._started = time.thread_time()
        else:
            took = (time.thread_time() - self._started) * 1e3
            self.collections[self.kind] = max(took, self.collections.get(self.kind, 0.0))

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure each callback of the event loop inside the block."""
        run = asyncio.Handle._run  # noqa: SLF001 - each callback passes it

        def step(handle: asyncio.Handle) -> None:
            kind, started = self.kind, time.thread_time()
            run(handle)
            took = (time.thread_time() - started) * 1e3
            self.longest[kind] = max(took, self.longest.get(kind, 0.0))
            self.counts[kind] = self.counts.get(kind, 0) + 1

        gc.callbacks.append(self.on_collection)
        with mock.patch.object(asyncio.Handle, "_run", step):
            yield
        gc.callbacks.remove(self.on_collection)


@attrs.define(eq=False, kw_only=True)
class World(Fleet):
    """Nodes of four types with a running pod each and the pods of five DaemonSets; nobody creates pods again."""

    steps: Steps = attrs.field(factory=Steps)
    _uids: Iterator[int] = attrs.field(factory=count)

    def __attrs_post_init__(self) -> None:
        self.listeners = (self._note,)
        WiredScheduler.__attrs_post_init__(self)

    async def request(self, method: str, path: str, *, body: bytes = b"", **keywords: Any) -> Response:
        """Answer as the API server, after a pause: no answer is there at once."""
        await anyio.lowlevel.checkpoint()
        return await super().request(method, path, body=body, **keywords)

    def _delete(self, pod: Object) -> None:
        del self.pods[pod["metadata"]["name"]]
        self.deliver(self.parts.pods, "DELETED", pod)

    def fill(self) -> None:
        """Deliver all nodes, and the pods on each."""
        for number in range(self.size):
            self.deliver(self.parts.nodes, "ADDED", some_node(number))
        self.parts.nodes.synced.set()
        for number in range(self.size):
            devices = 1 if number % 8 == 0 else DEVICES[number % 4]
            pod = pod_manifest(
                f"run-{number}", namespace=f"ns{number % 50}", neuron=devices, requests=SMALL, priority=-1
            )
            pod["spec"]["nodeName"] = f"ip-{number}"
            pod["metadata"]["annotations"] = {AWS_NEURON_IDS: ",".join(map(str, range(devices)))}
            self._add(pod, {"phase": "Running", "startTime": "2026-11-27T00:00:00Z"})
        for daemon, number in product(DAEMONS, range(self.size)):
            labels, requests = {"k8s-app": daemon, "controller-revision-hash": "5b9f"}, {"cpu": "50m", "memory": "64Mi"}
            pod = pod_manifest(f"{daemon}-{number}", namespace="kube-system", labels=labels, requests=requests)
            owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon, "uid": daemon, "controller": True}
            pod["metadata"]["ownerReferences"] = [owner]
            pod["spec"]["nodeName"] = f"ip-{number}"
            self._add(pod, {"phase": "Running", "startTime": "2026-11-27T00:00:00Z"})

    def _add(self, pod: Object, status: Object) -> None:
        pod["metadata"]["uid"], pod["status"] = f"uid-{next(self._uids)}", status
        self.pods[pod["metadata"]["name"]] = pod
        self.deliver(self.parts.pods, "ADDED", pod)

    async def quiet(self) -> None:
        """Wait until nothing is placed or refused any more."""
        before, queue = None, self.parts.queue
        while (  # noqa: ASYNC110 - many tasks work
            before != (before := (self.version, self.refused, self.placed))
            or queue.count(Place.ACTIVE)
            or queue.count(Place.IN_FLIGHT)
        ):
            await anyio.sleep(0.5 if self.size < 50_000 else 1.5)
        self.steps.kind = DRIVER
        await anyio.lowlevel.checkpoint()

    async def pend(self, kind: str, number: int = 1, *, labels: Object | None = None, **spec: Any) -> None:
        """Let pods come, and wait until they have a node or are refused."""
        self.steps.kind = kind
        spec = dict[str, Any](requests=SMALL, neuron=1) | spec
        for _ in range(number):
            name = f"p-{next(self._uids)}"
            self._add(pod_manifest(name, labels={"app": "training"} | (labels or {}), **spec), {"phase": "Pending"})
            await anyio.lowlevel.checkpoint()
        await self.quiet()

    async def change(self, kind: str, change: str, nodes: Iterator[Object]) -> None:
        """Let nodes come, change or go."""
        self.steps.kind = DRIVER
        await anyio.lowlevel.checkpoint()
        changed = list(nodes)
        self.steps.kind = kind
        await anyio.lowlevel.checkpoint()
        for node in changed:
            self.deliver(self.parts.nodes, change, node)
            await anyio.lowlevel.checkpoint()
        await self.quiet()

    async def relist(self, kind: str, watched: "Informer[Any]", objects: list[Object]) -> None:
        """List again, as after a 410."""
        self.steps.kind = DRIVER
        await anyio.lowlevel.checkpoint()
        encoded = [msgspec.json.encode(each) for each in objects]
        gc.collect()  # what the benchmark has made is frozen
        gc.collect()  # of nothing: the next one looks at few objects

        async def pages(_client: object, resource: Any) -> AsyncIterator[tuple[list[Any], str]]:
            for first in range(0, len(encoded), informer.LARGEST_PAGE):
                page = []
                for number, text in enumerate(encoded[first : first + informer.LARGEST_PAGE]):
                    page.append(resource.decode(text))
                    if number % informer.BATCH == 0:
                        await anyio.lowlevel.checkpoint()
                yield page, "1"

        self.steps.kind = kind
        await anyio.lowlevel.checkpoint()
        with mock.patch.object(informer, "pages", pages):
            await watched._list()  # noqa: SLF001 - a watch that ends with 410 does it
        self.steps.kind = DRIVER
        await anyio.lowlevel.checkpoint()


def some_node(number: int, *, created: str = "2026-01", uid: str = "node", **labels: str) -> Object:
    """Return a node of one of four types in one of three zones, with labels as clusters have them."""
    own = {f"example.com/label-{key}": f"v{number // (key + 1) % (key + 1)}" for key in range(LABELS)}
    own |= {ZONE: f"zone-{number % 3}", "karpenter.sh/nodepool": f"pool-{number % 16}"} | labels
    node = node_manifest(f"ip-{number}", TYPES[number % 4], labels=own)
    at = f"{created}-{1 + number // 86400:02}T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    node["metadata"] |= {"creationTimestamp": at, "uid": f"{uid}-{number}"}
    return node


def _launched(number: int) -> Iterator[Object]:
    """Yield nodes that came within a few seconds, fifty in each, in any order."""
    for second in range(number // 50):
        for each in Random(second).sample(range(50), 50):
            node = some_node(10**6 + 50 * second + each)
            node["metadata"]["creationTimestamp"] = f"2026-03-01T00:00:{second:02}Z"
            yield node


def _cordoned(number: int) -> Object:
    node = some_node(number)
    node["spec"]["unschedulable"] = True
    return node


def _near(key: str, kind: str) -> Object:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "training"}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _group(name: str, size: int) -> Object:
    return {f"{GROUP}name": name, f"{GROUP}min-available": str(size)}


def _spread(key: str) -> list[Object]:
    selector = {"matchLabels": {"app": "training"}}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]


async def work(world: World) -> None:
    """Do all kinds of work, one after the other."""
    size, pend, parts = world.size, world.pend, world.parts
    most = min(5_000, size // 4)
    await pend("plain pods", 20)
    await pend("a new kind: labels", nodeSelector={ZONE: "zone-0", "example.com/label-7": "v0"})
    await pend("a new kind: spread by zone", 5, topologySpreadConstraints=_spread(ZONE))
    await pend("a new kind: spread by hostname", 5, topologySpreadConstraints=_spread(HOSTNAME))
    await pend("a new kind: apart by hostname", 5, affinity=_near(HOSTNAME, "podAntiAffinity"))
    await pend("a new kind: near by zone", 5, affinity=_near(ZONE, "podAffinity"))
    await pend("a refusal: cpu", 5, requests={"cpu": "9000"})
    await pend("a refusal: devices", 5, neuron=16, preemptionPolicy="Never")
    await pend("preemption: the first", neuron=16, priority=1000)
    await pend("preemption: later", 5, neuron=16, priority=1000)
    await pend("preemption: another priority", 2, neuron=16, priority=500)
    await pend("a group of 200 that evicts", 200, neuron=16, priority=1000, namespace="team", labels=_group("e", 200))
    await pend(f"a group of {most:,}", most, namespace="team", labels=_group("g", most))
    await world.change("a node changes", "MODIFIED", (some_node(n, new=f"x{n}") for n in range(200)))
    await pend("a new label", nodeSelector={"new": "x7"})
    await world.change("a node is cordoned", "MODIFIED", map(_cordoned, range(100)))
    await world.change("nodes come", "ADDED", (some_node(size + n, created="2026-02") for n in range(300)))
    await world.change("nodes launched together come", "ADDED", _launched(600))
    await world.change("nodes go", "DELETED", (some_node(size + n) for n in range(300)))
    await world.relist("a list of pods", parts.pods, list(world.pods.values()))
    await world.relist("a list of nodes", parts.nodes, [some_node(n) for n in range(size)])
    late = (some_node(size + n, created="2025-01") for n in range(520))
    await world.change("512 older nodes come late", "ADDED", late)
    world.steps.kind = DRIVER


async def measure(size: int) -> None:
    """Do the work with so many nodes, and print the table."""
    world = World(size=size, group=True)
    gc.disable()
    world.fill()
    gc.enable()
    gc.collect()
    parts, steps = world.parts, world.steps
    with collections_in_steps(), steps.measured():
        async with anyio.create_task_group() as tasks:
            steps.kind = "warm-up"
            await parts.scheduling_loop.attempts.warm_up()
            for part in (parts.scheduling_loop, parts.recorder, parts.conditions):
                tasks.start_soon(part.run)
            await work(world)
            tasks.cancel_scope.cancel()
        del steps.longest[DRIVER]
        for kind, longest in steps.longest.items():
            of_gc = steps.collections.get(kind, 0.0)
            print(f"{size:>7} {kind:<32}{longest:>8.1f}{steps.counts[kind]:>8}{of_gc:>8.1f}", flush=True)
        questions: dict[str, Callable[[], Generator[None, None, object]]] = {
            f"why: {name}": partial(explain_pod, parts.cluster, pod, PROFILE) for name, pod in PODS.items()
        }
        questions["the fleet"] = partial(fleet, parts.cluster, most=MOST_PICTURED)
        for name, ask in questions.items():
            stepped(ask())  # builds its indexes
            _, took = stepped(ask())
            print(f"{size:>7} {name:<32}{max(took):>8.1f}{len(took):>8}        {sum(took):>8.0f} in all", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES)
    print(f"{'nodes':>7} {'work':<32}{'longest':>8}{'steps':>8}{'GC':>8}   (ms of CPU)")
    for nodes in parser.parse_args().nodes:
        asyncio.run(measure(nodes))
