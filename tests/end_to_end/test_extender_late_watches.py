"""kube-scheduler sees pods end before we do, or after: no pod leaves in vain, and the pod that waits gets its node."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

import anyio
import attrs
import pytest

from tests.control_plane.kube_scheduler import kube_scheduler
from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import SCHEDULER, ControlPlane, free_port
from tests.end_to_end.kube_scheduler import NAME, configuration, run_kube_scheduler
from tests.end_to_end.process import ACQUIRED, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import PODS, add_priority_classes, all_placed, ids_of, remove
from tests.faults.answers import Lines, Stream
from tests.faults.calls import watch_of
from tests.faults.proxy import ALWAYS, Behaviour, Fault, Proxy, run_proxy

T = TypeVar("T")

NODES: Final = ("trn1-a", "trn1-b")
WAKE_EVERY: Final = 3.0  # seconds; only how often we look
LOW: Final = [f"low-{number}" for number in range(32)]


@attrs.define(eq=False)
class Gate:
    """Holds a watch of all pods back, from the first victim that is ending."""

    _open: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def on(self, proxy: Proxy) -> None:
        """Hold the watches of a proxy's client."""
        proxy.add(Fault(watch_of("/api/v1/pods"), Behaviour(Stream(self._change)), times=ALWAYS))

    def open(self) -> None:
        """Let all that was held back through."""
        self._open.set()

    async def _change(self, lines: Lines) -> Lines:
        async for line in lines:
            if not self._open.is_set() and _shows_an_end(line):
                await self._open.wait()
            yield line


def _shows_an_end(line: bytes) -> bool:
    event = json.loads(line)
    metadata = event["object"]["metadata"]
    return metadata.get("name") in LOW and (event["type"] == "DELETED" or "deletionTimestamp" in metadata)


@asynccontextmanager
async def late_kube_scheduler(plane: ControlPlane, url: str, gate: Gate) -> AsyncIterator[None]:
    """Run a kube-scheduler whose watch of pods goes through a gate."""
    async with run_proxy(plane, token=SCHEDULER.token) as proxy:
        gate.on(proxy)
        document = configuration(url, plane.kubeconfig(plane.folder / "late.kubeconfig", server=proxy.url))
        document["clientConnection"] |= {"contentType": "application/json", "acceptContentTypes": "application/json"}
        async with kube_scheduler(document, plane.folder, name="late", v=4).started():
            yield


@asynccontextmanager
async def extender(account: Path, port: int, *flags: str) -> AsyncIterator[SchedulerProcess]:
    """Run the extender on a port."""
    address = f"--extender-bind-address=127.0.0.1:{port}"
    async with run_scheduler(account, address, "-v=2", *flags, command="extender") as process:
        yield process


async def fill(api: RestClient) -> None:
    """Let two nodes be full of pods with one device each."""
    await add_priority_classes(api, high=100)
    for name in NODES:
        await create_node(api, node_manifest(name, "trn1.32xlarge"))
    await create_all(partial(create_pod, api), (pod_manifest(name, scheduler_name=NAME, neuron=1) for name in LOW))
    await all_placed(api, LOW)


async def preempted(api: RestClient) -> list[str]:
    """Create a pod of high priority, and return its victims once all are ending."""
    await create_pod(api, pod_manifest("high", scheduler_name=NAME, neuron=4, priorityClassName="high"))
    return ending(await api.wait_until(PODS, lambda pods: len(ending(pods)) >= 4))


def ending(pods: Mapping[str, Object]) -> list[str]:
    """Return the names of the pods that are ending."""
    return [pod["metadata"]["name"] for pod in pods.values() if "deletionTimestamp" in pod["metadata"]]


async def woken(api: RestClient, awaited: Callable[[], Awaitable[T]]) -> T:
    """Wait for something, and wake kube-scheduler's pods again and again until it comes."""
    for number in count():
        with suppress(TimeoutError):
            return await awaited()
        await create_node(api, node_manifest(f"{awaited.__name__}-{number}".replace("_", "-")))
    raise AssertionError


def asking(process: SchedulerProcess) -> Callable[[], Awaitable[str]]:
    """Return what waits until kube-scheduler has asked for victims twice; while it deletes some it does not ask."""

    async def twice() -> str:
        return await process.line("victims for kube-scheduler", 'pod="default/high"', count=2, within=WAKE_EVERY)

    return twice


async def placed_in_the_end(api: RestClient) -> None:
    """Wait until the pod has its devices."""

    async def placed() -> Object:
        return await api.wait_for(f"{PODS}/high", lambda pod: "nodeName" in pod["spec"], within=WAKE_EVERY)

    assert len(ids_of(await woken(api, placed))) == 4


async def no_others_left(api: RestClient, victims: list[str]) -> None:
    """Check that no other pod than the first victims was deleted."""
    pods = (await api.get(PODS))["items"]
    assert ending({pod["metadata"]["name"]: pod for pod in pods}) == []
    assert sorted(pod["metadata"]["name"] for pod in pods) == sorted({"high", *LOW} - {*victims})


@pytest.mark.parametrize("ended", [True, False], ids=["they have ended", "they are ending"])
async def test_kube_scheduler_does_not_see_its_victims_end(
    plane: ControlPlane, account: Path, empty: RestClient, ended: bool
) -> None:
    """Its cache shows them as before, and it would evict pods once more for the same pod."""
    port, gate = free_port(), Gate()
    async with extender(account, port) as process, late_kube_scheduler(plane, f"http://127.0.0.1:{port}", gate):
        await process.line(ACQUIRED)
        await fill(empty)
        victims = await preempted(empty)
        if ended:
            await remove(empty, *victims)
            left = len(LOW) - len(victims)
            await process.until(lambda metrics: metrics['scheduler_cache_size{type="pods"}'] == left)
        await woken(empty, asking(process))
        gate.open()
        if not ended:
            await remove(empty, *victims)
        await placed_in_the_end(empty)
        await no_others_left(empty, victims)


async def test_we_do_not_see_the_victims_end(plane: ControlPlane, account: Path, empty: RestClient) -> None:
    """kube-scheduler counts what has come free, and we refuse the pod: it would evict pods of the other node."""
    port, gate = free_port(), Gate()
    async with run_proxy(plane) as proxy, extender(account, port, f"--master={proxy.url}") as process:
        gate.on(proxy)
        await process.line(ACQUIRED)
        async with run_kube_scheduler(plane, f"http://127.0.0.1:{port}"):
            await fill(empty)
            victims = await preempted(empty)
            await remove(empty, *victims)
            await woken(empty, asking(process))
            gate.open()
            await placed_in_the_end(empty)
            await no_others_left(empty, victims)
