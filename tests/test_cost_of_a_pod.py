"""
What a pod costs, in counts that are the same on every machine: requests, decodings, index operations, tasks, memory.

A pod that costs a function call more is a matter for `benchmarks.calls`.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, cast
from unittest import mock

import pytest

from neuron_scheduler.cluster.index import indexes
from neuron_scheduler.cluster.rows import pod_info
from neuron_scheduler.cluster.tables import pods as pods_table
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects import pod_spec, pods as pods_module
from neuron_scheduler.kube.watch import informer
from tests.control_plane.objects import pod_manifest
from tests.support.index_work import counted_index_work
from tests.support.scripted_server import answer, scripted
from tests.support.wired_scheduler import WiredScheduler, names

PODS: Final = 40
MOST_ASKED: Final = 16
"""Indexes that one attempt may ask for, 9 today: an attempt that decides twice exceeds it."""
MOST_ROWS: Final = 12
"""Rows that one attempt may read, 7 today: those of the chosen node."""


async def test_a_pod_takes_two_requests() -> None:
    """One Binding and one Event, and nothing else, however many pods there are."""
    world = WiredScheduler()
    await world.bind(names(PODS))

    assert world.requests == {("POST", "binding"): PODS, ("POST", "events"): PODS}
    assert len({pod["spec"]["nodeName"] for pod in world.pods.values()}) == PODS // 16 + 1


async def test_a_watch_event_is_decoded_once() -> None:
    """Its envelope and its object are decoded together, and fields that are not needed are skipped."""
    world = WiredScheduler()
    await world.bind(names(PODS))
    pod = world.pods["p0"]
    pod["metadata"]["managedFields"] = [{"fieldsV1": {"f:spec": {f"f:{n}": {} for n in range(99)}}}]
    line = world.line("MODIFIED", pod)
    decoded: list[int] = []

    def counting(decoder: Any) -> Any:
        def decode(encoded: Any) -> Any:
            decoded.append(len(bytes(encoded)))
            return decoder.decode(encoded)

        return mock.Mock(decode=decode)

    with (
        mock.patch.object(informer, "_EVENT", counting(informer._EVENT)),
        mock.patch.object(pods_module.PODS, "_change", counting(pods_module.PODS._change)),
        mock.patch.object(pods_module.PODS, "_object", counting(pods_module.PODS._object)),
        mock.patch.object(pod_spec, "_KEY", counting(pod_spec._KEY)),
    ):
        world.take(world.parts.pods, line)

    assert decoded == [len(line)]


async def test_no_task_is_spawned_for_a_pod() -> None:
    """A task costs as much as a decision, so the tasks that write are started once, for all pods."""

    async def spawned(count: int) -> int:
        world, loop, tasks = WiredScheduler(), asyncio.get_running_loop(), Counter[str]()

        def factory(_: Any, coroutine: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
            tasks["all"] += 1
            return asyncio.Task(coroutine, loop=loop, **options)

        loop.set_task_factory(cast(Any, factory))
        try:
            await world.bind(names(count))
        finally:
            loop.set_task_factory(None)
        assert world.requests["POST", "binding"] == count
        return tasks["all"]

    assert await spawned(PODS) == await spawned(1)


async def test_nothing_stays_behind_of_a_pod_that_is_gone() -> None:
    """After pods have come and gone there are as many objects as before, apart from what is bounded."""
    world = WiredScheduler()

    async def objects(prefix: str) -> int:
        await world.bind(names(PODS, prefix))
        world.delete()
        world.requests.clear()
        gc.collect()
        return len(gc.get_objects())

    with (
        mock.patch.object(indexes, "_FEWEST_LOGGED", 1),
        mock.patch.object(pods_table, "_MOST_LOGGED", 2),
    ):  # logs of changes, cut soon
        for prefix in "abc":
            settled = await objects(prefix)
        assert abs(await objects("d") - settled) < PODS // 2


async def test_a_change_of_a_known_pod_is_read_by_what_has_changed() -> None:
    """Another label means neither that the spec is read again nor the allocation, and no index of rows changes."""
    world = WiredScheduler()
    await world.bind(names(PODS))
    world.pods["p0"]["metadata"]["labels"] = {"a": "b"}

    with (
        mock.patch.object(pod_spec, "_KEY", wraps=pod_spec._KEY) as specs,
        mock.patch.object(pod_info, "allocation_of") as allocations,
        counted_index_work() as work,
    ):
        world.deliver(world.parts.pods, "MODIFIED", world.pods["p0"])

    assert specs.decode.call_count == 0
    assert allocations.call_count == 0
    assert (work.built, work.asked, work.updated) == (0, 0, 0)


async def test_an_attempt_uses_the_indexes_that_are_there() -> None:
    """A pod like others before it is decided once, builds no index, and reads the row of its node only."""
    world = WiredScheduler()
    await world.bind(names(PODS))
    loop = world.parts.scheduling_loop
    for name in names(3, "q"):
        world.deliver(world.parts.pods, "ADDED", pod_manifest(name, neuron=1))
        with counted_index_work() as work:
            queued = loop.queue.pop(loop.clock())
            assert queued is not None
            with pytest.raises(StopIteration):
                loop.attempts.attempt(queued).send(None)
        assert work.built == 0
        assert 0 < work.asked <= MOST_ASKED
        assert 0 < work.rows <= MOST_ROWS


async def test_a_request_is_one_write() -> None:
    """Head and body leave together, before the caller waits for the first time."""
    async with scripted(answer(), answer()) as (_, client):
        await client.request("POST", "/x", body=b"{}")  # connects
        (connection,) = client._kept[Pool.API]._idle
        request = client.request("POST", "/x", body=b"{}")
        with mock.patch.object(connection, "_transport", wraps=connection._transport) as transport:
            request.send(None)
        assert transport.write.call_count == 1
        assert not client._kept[Pool.API]._idle  # it is on its way
        request.close()
