"""
What a pod costs, in counts that are the same on every machine: requests, decoding, tasks, calls, and what stays behind.

All parts of the scheduler, wired as in production, between an API server that is a function and a watch that is fed.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import FrameType
from typing import Any, Final, cast
from unittest import mock

import anyio
import attrs
import msgspec
import pytest

from neuron_scheduler.cluster.index import indexes
from neuron_scheduler.cluster.tables import pods as pods_table
from neuron_scheduler.kube.http.client import Client, Response
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects import pod_spec, pods as pods_module
from neuron_scheduler.kube.watch import informer, watch_line
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import Parts, wire
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.support.scripted_server import answer, scripted

NODES: Final = 4
PODS: Final = 40
CALLS_PER_SIGHT: Final = 62  # of Python functions, from the line of a watch to the cluster and the queue
CALLS_PER_ATTEMPT: Final = 240  # from the queue to the assumption; 5 for the sizes in use, 9 to weigh a new block
CALLS_PER_WRITE: Final = 16  # up to the last byte sent
BOUND: Final = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'


@attrs.define(eq=False)
class World:
    """A scheduler without a network: its Bindings come back as watch events at once."""

    asked: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    lines: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    version: int = 0
    parts: Parts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.parts = wire(Config(leader_elect=False), cast(Client, self), Metrics())
        for number in range(NODES):
            self.tell(self.parts.nodes, "ADDED", node_manifest(f"n{number}"))

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> Response:
        """Answer as the API server does."""
        words = path.split("/")
        self.asked[method, words[-1]] += 1
        if words[-1] == "binding":
            binding = msgspec.json.decode(body)
            found = self.lines[words[-2]]
            found["spec"]["nodeName"] = binding["target"]["name"]
            found["metadata"]["annotations"] = binding["metadata"]["annotations"]
            self.tell(self.parts.pods, "MODIFIED", found)
        return Response(201, b'{"kind":"Event","apiVersion":"events.k8s.io/v1"}' if words[-1] == "events" else BOUND)

    def tell(self, told: informer.Informer[Any], kind: str, found: dict[str, Any]) -> None:
        """Let a watch deliver an object."""
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        found["metadata"].setdefault("uid", f"uid-{found['metadata']['name']}-{self.version}")
        told._take(msgspec.json.encode({"type": kind, "object": found}) + b"\n")

    async def bind(self, names: Iterable[str]) -> None:
        """Let pods come, and wait until all have been bound and told."""
        self.lines = {name: pod_manifest(name, neuron=1) for name in names}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.parts.scheduling_loop.run)
            tasks.start_soon(self.parts.recorder.run)
            for found in self.lines.values():
                self.tell(self.parts.pods, "ADDED", found)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    def delete(self) -> None:
        """Let the pods go."""
        for found in self.lines.values():
            self.tell(self.parts.pods, "DELETED", found)
        self.lines = {}


def names(count: int, prefix: str = "p") -> list[str]:
    """Names of pods."""
    return [f"{prefix}{number}" for number in range(count)]


async def test_a_pod_takes_two_requests() -> None:
    """One Binding and one Event, and nothing else, however many pods there are."""
    world = World()
    await world.bind(names(PODS))

    assert world.asked == {("POST", "binding"): PODS, ("POST", "events"): PODS}
    assert len({state["spec"]["nodeName"] for state in world.lines.values()}) == PODS // 16 + 1


async def test_a_watch_event_is_decoded_once() -> None:
    """Its envelope with its object: no byte is looked at a second time, and what is not needed is skipped."""
    world = World()
    await world.bind(names(PODS))
    found = world.lines["p0"]
    found["metadata"]["managedFields"] = [{"fieldsV1": {"f:spec": {f"f:{n}": {} for n in range(99)}}}]
    line = msgspec.json.encode({"type": "MODIFIED", "object": found}) + b"\n"
    decoded: list[int] = []

    def counting(decoder: Any) -> Any:
        def decode(encoded: Any) -> Any:
            decoded.append(len(bytes(encoded)))
            return decoder.decode(encoded)

        return mock.Mock(decode=decode)

    with (
        mock.patch.object(watch_line, "_EVENT", counting(watch_line._EVENT)),
        mock.patch.object(pods_module.PODS, "_change", counting(pods_module.PODS._change)),
        mock.patch.object(pods_module.PODS, "_object", counting(pods_module.PODS._object)),
        mock.patch.object(pod_spec, "_KEY", counting(pod_spec._KEY)),
    ):
        world.parts.pods._take(line)

    assert decoded == [len(line)]


async def test_no_task_is_spawned_for_a_pod() -> None:
    """A task costs as much as a decision; those who write are there from the start."""

    async def spawned(count: int) -> int:
        world, loop, tasks = World(), asyncio.get_running_loop(), Counter[str]()

        def factory(_: Any, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
            tasks["all"] += 1
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(cast(Any, factory))
        try:
            await world.bind(names(count))
        finally:
            loop.set_task_factory(None)
        assert world.asked["POST", "binding"] == count
        return tasks["all"]

    assert await spawned(PODS) == await spawned(1)


async def test_nothing_stays_behind_of_a_pod_that_is_gone() -> None:
    """After pods have come and gone there are as many objects as before, apart from what is bounded."""
    world = World()

    async def objects(prefix: str) -> int:
        await world.bind(names(PODS, prefix))
        world.delete()
        world.asked.clear()
        world.parts.recorder._series.clear()  # kept for six minutes, and at most so many
        gc.collect()
        return len(gc.get_objects())

    with (
        mock.patch.object(indexes, "_MIN_LOG", 1),
        mock.patch.object(pods_table, "_MAX_LOG", 2),
    ):  # logs of changes, cut soon
        for prefix in "abc":
            settled = await objects(prefix)
        assert abs(await objects("d") - settled) < PODS // 2


def calls(run: Callable[[], object]) -> int:
    """How many Python functions are called."""
    counted = Counter[str]()

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        counted[event] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counted["call"]


async def test_a_sight_of_a_known_pod_takes_few_calls() -> None:
    """What was read of its containers before is not read again, nor what it holds where that has not changed."""
    world = World()
    await world.bind(names(PODS))
    counted = []
    for name in ("p0", "p1", "p2"):
        world.lines[name]["metadata"]["labels"] = {"a": "b"}
        counted.append(calls(partial(world.tell, world.parts.pods, "MODIFIED", world.lines[name])))

    assert counted[1] == counted[2] <= CALLS_PER_SIGHT  # the first fills caches


async def test_an_attempt_takes_few_calls() -> None:
    """From the queue to what is assumed and handed over, for a pod like others before it."""
    world, counted = World(), list[int]()
    await world.bind(names(PODS))
    scheduler = world.parts.scheduling_loop

    def attempt() -> None:
        queued = scheduler.queue.pop(scheduler.clock())
        assert queued is not None
        with pytest.raises(StopIteration):
            scheduler._schedule_one(queued).send(None)

    for name in names(3, "q"):
        world.tell(world.parts.pods, "ADDED", pod_manifest(name, neuron=1))
        counted.append(calls(attempt))

    assert max(counted) <= CALLS_PER_ATTEMPT


async def test_a_write_takes_few_calls() -> None:
    """One write, one future and one look at the answer."""
    async with scripted(answer(), answer()) as (_, client):
        await client.request("POST", "/x", body=b"{}")  # connects
        request = client.request("POST", "/x", body=b"{}")
        counted = calls(lambda: request.send(None))
        assert not client._kept[Pool.API]._idle  # it is on its way
        request.close()

    assert counted <= CALLS_PER_WRITE
