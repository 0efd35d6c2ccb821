"""The loop continues after a late renewal of the Lease, and after a lost wake-up."""

import io
import math
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest import mock

import anyio
import anyio.lowlevel
import pytest

from neuron_scheduler.controllers import scheduling_loop as loop
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.telemetry import logs
from tests.support.builders import node, pod
from tests.support.patience import PATIENCE
from tests.support.simulated_server import World, running
from tests.telemetry.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses


def world_with_a_pod() -> World:
    """Return a world with a node, and a pod that fits there."""
    world = World(Random(1))
    show(world)
    return world


def show(world: World) -> None:
    """Deliver a node and a pod."""
    world.see_node(node("n1"))
    world.see_pod(pod("p", scheduler_name="my-scheduler"))


async def bound(world: World) -> None:
    with anyio.fail_after(PATIENCE):
        while not world.there["p"].node_name:
            world.time += 1.0
            await anyio.lowlevel.checkpoint()


async def test_a_renewal_that_is_late_does_not_end_the_loop() -> None:
    """The Lease may be lost for a moment and is then renewed: no other replica can have led, so the loop continues."""
    world = world_with_a_pod()
    answers = iter([True, False, False])
    world.scheduler.may_bind = lambda: next(answers, True)
    with mock.patch.object(loop, "_PAUSE", 0.0):
        async with running(world):
            await bound(world)


@pytest.mark.parametrize("devices", [4, 7])
async def test_each_attempt_has_its_lines(devices: int) -> None:
    """The attempt, the results of the filters, and the outcome, in this order, with or without a fitting node."""
    world, stream = World(Random(1)), io.StringIO()
    world.see_node(node("n1", "trn1.32xlarge"))
    world.see_pod(pod("p", devices=devices, scheduler_name="my-scheduler"))
    logs.configure(verbosity=4, stream=stream)
    async with running(world):
        await anyio.wait_all_tasks_blocked()
    lines = [line.partition('] "')[2].partition('"')[0] for line in stream.getvalue().splitlines()]
    filtered = ["POD p fits in Node:n1", "Filtered nodes: [n1]", "Failed nodes: map[]"]
    if devices == 7:
        reason = "does not support requests for device: 7. Please request a different number of devices."
        filtered = ["Filtered nodes: []", f"Failed nodes: map[n1:Instance type trn1.32xlarge {reason}]"]
    assert lines[: len(filtered) + 2] == [
        "Attempting to schedule pod",
        *filtered,
        "Finished Processing Filter Request...",
    ]
    assert ("Unable to schedule pod; no fit; waiting" in lines) == (devices == 7)


async def test_nothing_is_decided_while_the_lease_may_be_lost() -> None:
    """The loop waits, does not count as looking at its queue meanwhile, and still stops on request."""
    world = world_with_a_pod()
    world.scheduler.may_bind = lambda: False
    with mock.patch.object(loop, "_PAUSE", 0.0), anyio.fail_after(PATIENCE):
        async with running(world):
            await anyio.lowlevel.checkpoint()
            looked_at = world.scheduler.looked_at
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            assert world.scheduler.looked_at == looked_at
            assert not world.there["p"].node_name


async def test_a_change_of_the_queue_wakes_an_idle_loop() -> None:
    """A new pod is scheduled at once, without waiting for the next regular look at the queue."""
    world = World(Random(1))
    with mock.patch.object(loop, "_LONGEST_IDLE", math.inf):
        async with running(world):
            await anyio.wait_all_tasks_blocked()
            show(world)
            await bound(world)


async def test_a_wake_up_that_never_came_is_made_up_for() -> None:
    """The loop looks at its queue every few seconds anyway, so it counts as live and no pod waits for ever."""
    world = World(Random(1))
    with mock.patch.object(loop, "_LONGEST_IDLE", 0.001):
        async with running(world):
            await anyio.wait_all_tasks_blocked()
            with mock.patch.object(world.queue, "on_change"):
                show(world)
                await bound(world)


@pytest.mark.parametrize("meanwhile", ["a node comes", "the pod goes"])
async def test_what_happens_while_a_refusal_is_prepared_counts(meanwhile: str) -> None:
    """The indexes for the reasons are built in steps, between which events come: then the pod is decided again."""
    world = World(Random(1))
    world.see_node(node("small", cpu=1))
    world.see_pod(pod("p", cpu=1000, scheduler_name="my-scheduler"))
    prepared, of_refusal = [0], IndexWarmup.prepare_refusal

    def preparing(*asked: Any) -> Iterator[None]:
        yield from of_refusal(*asked)
        if not prepared[0] and meanwhile == "a node comes":
            world.see_node(node("large", cpu=2000))
        elif not prepared[0]:
            world.lose_pod("p")
        prepared[0] += 1
        yield

    with mock.patch.object(IndexWarmup, "prepare_refusal", preparing), anyio.fail_after(PATIENCE):
        async with running(world):
            while not prepared[0]:
                await anyio.lowlevel.checkpoint()
            await world.settle()
    assert prepared == [1]
    assert world.cluster.pod_count == len(world.there) == (meanwhile == "a node comes")
    assert world.queue.count(Place.UNSCHEDULABLE) == world.queue.count(Place.IN_FLIGHT) == 0


async def test_a_decision_is_announced_before_it_is_assumed() -> None:
    """Whoever listens sees the cluster as the decision saw it, with or without a node for the pod."""
    world, seen = World(Random(1)), dict[str, tuple[Decision | FitError, int]]()
    world.see_node(node("n1", "trn1.32xlarge"))

    def remember(pod: Pod, decision: Decision | FitError) -> None:
        seen[pod.name] = decision, world.cluster.pod_count

    world.scheduler.attempts.listeners = (remember,)
    world.see_pod(pod("p", devices=4, scheduler_name="my-scheduler"))
    world.see_pod(pod("q", devices=7, scheduler_name="my-scheduler"))
    async with running(world):
        await bound(world)
        await anyio.wait_all_tasks_blocked()
    first, second = seen["p"], seen["q"]
    assert isinstance(first[0], Decision)
    assert first[0].node_name == "n1"
    assert first[1] == 0
    assert isinstance(second[0], FitError)
