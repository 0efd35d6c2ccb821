"""The oracle of memory: equal to what was told and to the API server, or it says what differs."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.wiring import Parts
from tests.control_plane.objects import pod_manifest
from tests.simulation.oracles.memory import Memory
from tests.support.builders import node, pod
from tests.support.wired_scheduler import WiredScheduler, names


async def a_scheduler() -> WiredScheduler:
    """Return a scheduler that has listed everything and bound three pods."""
    scheduler = WiredScheduler()
    for informer in scheduler.parts.informers:
        informer.synced.set()
    await scheduler.bind(names(3))
    return scheduler


def sampled(parts: Parts) -> list[str]:
    """Return what the oracle says about a memory."""
    found: list[str] = []
    Memory(report=lambda _, text: found.append(text)).sampled("a", parts)
    return found


async def test_a_memory_that_is_right() -> None:
    """Bound, assumed and pending pods, and unreadable ones, are as they were told."""
    scheduler = await a_scheduler()
    assert sampled(scheduler.parts) == []
    waiting = pod_manifest("waits", neuron=99)
    broken = pod_manifest("broken", neuron=1)
    broken["spec"] |= {"nodeName": "n1", "containers": "none"}
    for manifest in (waiting, broken):
        scheduler.deliver(scheduler.parts.pods, "ADDED", manifest)
    scheduler.parts.cluster.assume(pod("assumed", devices=1, on="n0", ids=[4]), CoreMask(0b11 << 8))
    assert sampled(scheduler.parts) == []


def _drop_a_pod(parts: Parts) -> None:
    parts.cluster.remove_pod(next(iter(parts.cluster._where)))


def _keep_a_node(parts: Parts) -> None:
    parts.cluster.put_node(node("another"))


def _forget_a_node(parts: Parts) -> None:
    parts.cluster.remove_node("n3")


def _cordon_a_node(parts: Parts) -> None:
    row = parts.cluster.node("n0")
    assert row is not None
    parts.cluster.put_node(node("n0", uid=row.node.uid, unschedulable=True))


def _forget_a_pending_pod(parts: Parts) -> None:
    (queued,) = parts.queue.pods()
    parts.queue.remove(queued.pod.uid)


def _queue_a_bound_pod(parts: Parts) -> None:
    bound = next(pod for pod in parts.pods.objects() if pod.node_name)
    parts.queue.add(bound, 0.0)


def _queue_a_pod_that_is_gone(parts: Parts) -> None:
    parts.queue.add(pod("gone"), 0.0)


@pytest.mark.parametrize(
    "spoil",
    [
        _drop_a_pod,
        _keep_a_node,
        _forget_a_node,
        _cordon_a_node,
        _forget_a_pending_pod,
        _queue_a_bound_pod,
        _queue_a_pod_that_is_gone,
    ],
)
async def test_a_memory_that_is_wrong(spoil: Callable[[Parts], None]) -> None:
    """A pod or a node too few or too many, a row that differs, and a queue with other pods than those that wait."""
    scheduler = await a_scheduler()
    scheduler.deliver(scheduler.parts.pods, "ADDED", pod_manifest("waits", neuron=99))
    assert sampled(scheduler.parts) == []
    spoil(scheduler.parts)
    (found,) = sampled(scheduler.parts)
    assert found.startswith("a: ")


async def test_a_replica_that_lists_is_not_judged() -> None:
    """Before everything is listed, memory is not complete."""
    scheduler = WiredScheduler()
    scheduler.parts.cluster.put_node(node("another"))
    assert sampled(scheduler.parts) == []


async def test_at_rest_it_equals_the_api_server() -> None:
    """An object that was never told, and an assumption that stays and is not in doubt, are found at rest."""
    scheduler = await a_scheduler()
    nodes = [{"kind": "Node", **manifest} for manifest in _node_manifests()]
    tables = {"nodes": nodes, "pods": list(scheduler.pods.values())}
    found: list[str] = []
    memory = Memory(report=lambda _, text: found.append(text))

    def read(resource: Resource[Any]) -> Iterable[dict[str, Any]]:
        return tables.get(resource.name, [])

    memory.quiet("a", scheduler.parts, read)
    assert found == []
    scheduler.parts.cluster.assume(pod("assumed", on="n0"))
    memory.quiet("a", scheduler.parts, read, {pod("assumed").uid})
    assert found == []
    tables["pods"].pop()
    memory.quiet("a", scheduler.parts, read)
    assert len(found) == 2
    assert all("at rest" in text for text in found)


def _node_manifests() -> list[dict[str, Any]]:
    """Return the nodes that every `WiredScheduler` has."""
    written: list[dict[str, Any]] = []

    class Recorder(WiredScheduler):
        def line(self, kind: str, resource: dict[str, Any]) -> bytes:
            """Keep the object."""
            line = super().line(kind, resource)
            written.append(resource)
            return line

    Recorder()
    return written


async def test_a_pod_that_the_api_server_no_longer_has() -> None:
    """The replica may know from an answer that it is gone, before its watch says so."""
    scheduler = await a_scheduler()
    scheduler.deliver(scheduler.parts.pods, "ADDED", pod_manifest("waits", neuron=99))
    _forget_a_pending_pod(scheduler.parts)
    found: list[str] = []
    memory = Memory(report=lambda _, text: found.append(text))
    memory.sampled("a", scheduler.parts, lambda key, _uid: key != "default/waits")
    assert found == []
