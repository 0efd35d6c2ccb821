"""The life of the process, against an embedded API server: how a leader ends, and which leader is not live."""

import gc
import signal
import weakref
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest import mock

import aiohttp
import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler import app
from neuron_scheduler.app import App, ProcessState
from neuron_scheduler.controllers import liveness
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.writes.lease import LeaseClient, Record
from neuron_scheduler.model.pod_group import Dialect, PodGroupObject
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.config import Config
from neuron_scheduler.stopping import StopRequests
from neuron_scheduler.telemetry.errors import ApiError
from neuron_scheduler.telemetry.line_formats import sentence
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import wire
from sandbox import fleet
from sandbox.apiserver.status import StatusError
from sandbox.server import ApiServer
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.support.patience import PATIENCE
from tests.support.sandbox_faults import Answer, Fault, Faults, Hold
from tests.support.wired_scheduler import NODES, WiredScheduler, names


@attrs.define(eq=False)
class Process:
    """
    A scheduler in this event loop, as it would be in a process of its own.

    Attributes:
        error: what it ended with.
    """

    server: ApiServer
    faults: Faults
    app: App
    error: Exception | None = None
    ended: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self) -> None:
        """Run to its end."""
        try:
            await self.app.run()
        except Exception as error:  # noqa: BLE001 - whatever it is, a test looks at it
            self.error = error
        self.ended.set()

    async def end(self) -> str:
        """Wait for its end, and return the error's sentence; empty after a clean stop."""
        with anyio.fail_after(PATIENCE):
            await self.ended.wait()
        return "" if self.error is None else f"{type(leaf(self.error)).__name__}: {sentence(self.error)}"

    def signal(self) -> None:
        self.app.requests.receive(signal.SIGTERM)

    async def scheduling(self) -> None:
        with anyio.fail_after(PATIENCE):
            while self.app.parts.scheduling_loop.looked_at is None:
                await anyio.lowlevel.checkpoint()

    async def lease(self) -> Record:
        with anyio.fail_after(PATIENCE):
            return await LeaseClient(client=self.app.client).get(within=PATIENCE)

    def suffer(self, fault: Fault, path: str, **matching: Any) -> None:
        """Apply a fault to requests to a path from now on."""
        self.faults.add(fault, path=path, **matching)


@asynccontextmanager
async def process(**settings: Any) -> AsyncIterator[Process]:
    """Run an API server with one node, and a scheduler that a test starts in front of it."""
    faults = Faults()
    async with ApiServer(kubelet=False, middlewares=[faults.middleware]).serving() as server:
        server.create(fleet.node("n1", "trn1.32xlarge"))
        config = Config(**{"master": server.url, "port": 0, "secure_port": 0, "bind_address": "127.0.0.1", **settings})
        async with Client(connection=Connection(server.url, "a test")) as client:
            metrics = Metrics()
            parts = wire(config, client, metrics)
            requests = StopRequests()
            yield Process(
                server, faults, App(config=config, client=client, metrics=metrics, parts=parts, requests=requests)
            )


def leaf(error: BaseException) -> BaseException:
    """Return the one exception in groups of one."""
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


async def test_a_stop_gives_the_lease_back() -> None:
    """After one signal, without open Bindings, the Lease is released."""
    async with process() as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.run)
        await running.scheduling()
        assert (await running.lease()).holder == running.app.parts.scheduling_loop.attempts.announcer.identity
        running.signal()
        assert await running.end() == ""

        assert (await running.lease()).holder == ""


def test_a_collection_looks_at_new_objects_only() -> None:
    """What a full collection leaves is frozen, and not looked at by the next one; afterwards all is as before."""
    thresholds, callbacks = gc.get_threshold(), len(gc.callbacks)
    with app.collections_in_steps():
        there = [[] for _ in range(1_000)]  # type: list[list[int]]
        gc.collect()
        assert gc.get_freeze_count() > len(there)
        assert len(gc.get_objects()) < len(there)
    assert (gc.get_threshold(), len(gc.callbacks)) == (thresholds, callbacks)
    gc.unfreeze()


def looked_at() -> list[int]:
    """Return how many objects each full collection looks at while 50,000 come."""
    numbers: list[int] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            numbers.append(len(gc.get_objects()))

    gc.callbacks.append(on_collection)
    there = [[] for _ in range(50_000)]  # type: list[list[int]]
    gc.callbacks.remove(on_collection)
    del there
    return numbers


def test_a_full_collection_looks_at_few_objects() -> None:
    """However many objects come, each collection is short: a node's references lead all over the memory."""
    with app.collections_in_steps():
        numbers = looked_at()
    gc.unfreeze()
    assert len(numbers) >= 6
    assert max(numbers) < 8_000


@pytest.mark.parametrize("case", ["", "a table is new", "pods are always pending"])
async def test_frozen_objects_are_collected_at_times(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """What a closed connection leaves is garbage although it was frozen, and goes in a moment without pending pods."""

    class Link:
        """Something in a circle of references."""

    monkeypatch.setattr(app, "_LOOK_AT_ALL", 0.0)
    if case == "a table is new":
        tables = deque[list[None]](maxlen=1)

        def count(*_: object) -> int:
            tables.append([None] * 2 * app._LARGE)
            return 0

        monkeypatch.setattr(SchedulingQueue, "count", count)
    elif case:
        monkeypatch.setattr(app, "_LONGEST_BUSY", 0.0)
        monkeypatch.setattr(SchedulingQueue, "count", lambda *_: 1)
    async with process() as running, anyio.create_task_group() as tasks:
        link = Link()
        link.itself = link  # type: ignore[attr-defined]  # the circle
        gone = weakref.ref(link)
        gc.freeze()
        del link
        gc.collect()
        assert gone() is not None
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE):
            while gone() is not None:
                await anyio.lowlevel.checkpoint()
        if not case:  # the next one does not wait for a quarter of all objects
            assert max(looked_at(), default=50_000) < 10_000
        running.signal()
        assert await running.end() == ""


async def test_the_lease_is_released_before_events_are_written() -> None:
    """Events need no Lease, and a busy API server takes seconds for many of them."""
    async with process() as running, anyio.create_task_group() as tasks:
        events = Hold()
        running.suffer(events, "/events")
        running.server.create(pod_manifest("p", neuron=1))
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE), mock.patch.object(app, "EVENTS_GRACE", 10 * PATIENCE):
            await events.arrived.wait()
            running.signal()
            while (await running.lease()).holder:
                await anyio.lowlevel.checkpoint()
            assert not running.ended.is_set()
            events.release()
            assert await running.end() == ""


async def test_a_second_signal_does_not_wait_for_events() -> None:
    """The Lease is released nevertheless, and further signals have no effect."""
    async with process() as running, anyio.create_task_group() as tasks:
        events = Hold()
        running.suffer(events, "/events")
        running.server.create(pod_manifest("p", neuron=1))
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE):
            await events.arrived.wait()
        with mock.patch.object(app, "EVENTS_GRACE", 10 * PATIENCE):
            running.signal()
            await anyio.wait_all_tasks_blocked()
            for _ in range(3):
                running.signal()
            assert await running.end() == ""

        assert (await running.lease()).holder == ""
        running.server.end_watches()
        events.release()


async def test_a_second_signal_does_not_wait_for_bindings() -> None:
    """A Binding without an answer may still succeed, so the Lease is not released."""
    async with process(shutdown_grace_period=10 * PATIENCE) as running, anyio.create_task_group() as tasks:
        binding = Hold()
        running.suffer(binding, "/binding$")
        running.server.create(pod_manifest("p", neuron=1))
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE):
            await binding.arrived.wait()
        running.signal()
        await anyio.wait_all_tasks_blocked()
        assert not running.ended.is_set()
        running.signal()
        assert await running.end() == ""

        assert (await running.lease()).holder == running.app.parts.scheduling_loop.attempts.announcer.identity
        binding.release()


async def test_a_free_lease_is_taken_before_pods_are_listed() -> None:
    """The list has begun under the Lease, so a second one is not needed."""
    async with process() as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.run)
        await running.scheduling()
        assert running.app.parts.pods.lists == 1
        running.signal()
        assert await running.end() == ""


async def test_who_cannot_list_nodes_does_not_take_the_lease() -> None:
    """Another replica may be able to."""
    async with process() as running, anyio.create_task_group() as tasks:
        running.suffer(Answer(StatusError(503, "ServiceUnavailable", "no")), "/api/v1/nodes$", watch=False)
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE):
            while running.app.parts.nodes._failures < 3:
                await anyio.lowlevel.checkpoint()
        with pytest.raises(ApiError, match="404"):
            await running.lease()
        tasks.cancel_scope.cancel()


async def test_pods_are_listed_again_after_a_takeover() -> None:
    """A list that began before the Lease was ours may lack the last Bindings of the previous leader."""
    async with process() as running, anyio.create_task_group() as tasks:
        running.server.create(lease_of("other"))
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE):
            await running.app.parts.pods.synced.wait()
        assert running.app.parts.scheduling_loop.looked_at is None
        released = attrs.evolve(await running.lease(), holder="")
        await LeaseClient(client=running.app.client).update(released, within=PATIENCE)
        await running.scheduling()
        assert running.app.parts.pods.lists == 2
        running.signal()
        assert await running.end() == ""


async def test_a_signal_before_the_first_decision_gives_the_lease_back() -> None:
    """Before the first decision there is no Binding to wait for."""
    async with process() as running, anyio.create_task_group() as tasks:
        listing = Hold()
        running.suffer(listing, "/api/v1/pods$", watch=False)
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE):
            await listing.arrived.wait()
        assert (await running.lease()).holder
        running.signal()
        assert await running.end() == ""

        assert (await running.lease()).holder == ""
        listing.release()


async def test_a_leader_that_cannot_list_its_pods_ends() -> None:
    """It renews the Lease but is not live, and then ends, so that another replica can try."""
    refuse = Answer(StatusError(403, "Forbidden", "no"))
    async with process() as running, anyio.create_task_group() as tasks:
        running.suffer(refuse, "/api/v1/pods$", watch=False)
        with mock.patch.multiple(liveness, LONGEST_TAKEOVER=0.1, PERIOD=0.05):
            tasks.start_soon(running.run)
            assert (await running.end()).startswith("StalledError: pods are not listed")

        assert (await running.lease()).holder  # it will expire: only a clean stop releases it


@pytest.mark.parametrize(
    ("late", "status", "line"),
    [
        (59.0, 200, "[+]scheduling ok"),
        (61.0, 500, "[-]scheduling failed: the scheduling loop has been in one step for 61 s"),
    ],
)
async def test_a_leader_is_live_while_its_loop_goes_on(free_tcp_port: int, late: float, status: int, line: str) -> None:
    """It looks at its queue every few seconds, also when idle; /livez fails if it does not."""
    async with process(port=free_tcp_port) as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.run)
        await running.scheduling()
        scheduler = running.app.parts.scheduling_loop
        paused = anyio.Event()

        def may_bind() -> bool:
            paused.set()
            return False

        scheduler.may_bind = may_bind
        scheduler.wake_up.set()
        await paused.wait()
        now = scheduler.clock()
        scheduler.clock = lambda: now
        scheduler.looked_at = now - late
        url = f"http://127.0.0.1:{free_tcp_port}/livez?verbose"
        async with aiohttp.ClientSession(trust_env=False) as session, session.get(url) as answer:
            assert (answer.status, line in (await answer.text()).splitlines()) == (status, True)
        running.signal()
        assert await running.end() == ""


async def test_a_replica_whose_view_is_stale_is_not_ready(free_tcp_port: int) -> None:
    """Its lists and watches of one resource have failed for minutes; a follower has no other sign of that."""
    async with process(port=free_tcp_port) as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.run)
        await running.scheduling()
        volumes = next(
            informer for informer in running.app.parts.others if informer.resource.name == "persistentvolumes"
        )
        now, answers = volumes.clock(), []
        volumes.clock = lambda: now
        async with aiohttp.ClientSession(trust_env=False) as session:
            for late in (119.0, 121.0):
                volumes._current_at = now - late
                async with session.get(f"http://127.0.0.1:{free_tcp_port}/readyz?verbose") as answer:
                    answers.append((answer.status, (await answer.text()).splitlines()[2]))
        assert answers == [
            (200, "[+]watches ok"),
            (500, "[-]watches failed: neither listed nor watched for 120 s: /api/v1/persistentvolumes"),
        ]
        running.signal()
        assert await running.end() == ""


async def test_a_follower_is_live() -> None:
    """A follower is live for as long as it waits for the Lease."""
    async with process() as running, anyio.create_task_group() as tasks:
        running.server.create(lease_of("other"))
        tasks.start_soon(running.run)
        with anyio.fail_after(PATIENCE):
            await running.app.parts.pods.synced.wait()
        assert running.app._watch.find_stall() is None
        running.signal()
        assert await running.end() == ""

        assert (await running.lease()).holder == "other"


def lease_of(holder: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "my-scheduler", "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600},
    }


async def test_an_end_without_a_request_is_an_error() -> None:
    """A part that ends without an exception is not a clean stop."""
    async with process() as running, anyio.create_task_group() as tasks:
        tasks.start_soon(running.run)
        await running.scheduling()
        running.app.parts.scheduling_loop.stop()
        assert await running.end() == "StalledError: a part of the scheduler ended although no stop was requested"


# -- the state for /metrics --------------------------------------------------------------------------------------------


async def test_the_state_of_a_scheduler() -> None:
    """Bound pods, waiting pods and watches are those of the parts."""
    world = WiredScheduler()
    await world.bind(names(3))
    world.deliver(world.parts.pods, "ADDED", pod_manifest("waits", neuron=16))
    world.deliver(world.parts.pods, "ADDED", pod_manifest("unknown", neuron=2, nodeName="n0"))
    now = world.parts.scheduling_loop.clock()
    state = ProcessState(world.parts, clock=lambda: now + 60)
    for _ in state.prepare():
        pass
    shown = state.read()
    assert shown.neuron_pods_waiting == {(Cause.UNTRIED, "device", "16"): 1}
    assert shown.oldest_wait["device", "16"] >= 60
    assert shown.unknown_holders_by_node == {"n0": 1}
    assert shown.watch_synced["pods"] == 0
    assert shown.watch_stale["nodes"] in (0, 1)
    assert (
        sum(shown.free_devices.values()) + sum(shown.used_devices.values()) + sum(shown.withheld_devices.values())
        == 16 * NODES
    )
    assert shown.would_fit == state.read().would_fit


async def test_pods_are_shown_as_they_were_prepared() -> None:
    """Counting 15,000 pods at once would hold up the event loop, so a scrape shows what the steps have counted."""
    world = WiredScheduler()
    state = ProcessState(world.parts)
    world.deliver(world.parts.pods, "ADDED", pod_manifest("one", neuron=1))
    assert [*state.prepare()]
    world.deliver(world.parts.pods, "ADDED", pod_manifest("two", neuron=1))
    assert state.read().neuron_pods_waiting == {(Cause.UNTRIED, "device", "1"): 1}
    assert [*state.prepare()]
    assert state.read().neuron_pods_waiting == {(Cause.UNTRIED, "device", "1"): 2}


async def test_many_nodes_with_unknown_holders_are_one_series() -> None:
    """Twenty nodes are named."""
    world = WiredScheduler()
    for number in range(30):
        world.deliver(world.parts.nodes, "ADDED", node_manifest(f"m{number}"))
        world.deliver(world.parts.pods, "ADDED", pod_manifest(f"u{number}", neuron=2, nodeName=f"m{number}"))
    by_node = ProcessState(world.parts).read().unknown_holders_by_node
    assert (len(by_node), by_node["(others)"], sum(by_node.values())) == (21, 10, 30)


async def test_pod_groups_stop_nothing(free_tcp_port: int) -> None:
    """A kind that comes later is watched, too; although its list fails, the replica is ready and schedules."""
    looks: list[list[Resource[PodGroupObject]]] = [[], [POD_GROUPS[-1]]]

    async def served(_: Client, __: object) -> list[Resource[PodGroupObject]]:
        return looks.pop(0) if len(looks) > 1 else looks[0]

    changes: dict[str, Any] = {"served_kinds": served, "LOOK_FOR_KINDS": 0.01}
    with mock.patch.multiple(app, **changes):
        async with process(port=free_tcp_port) as running, anyio.create_task_group() as tasks:
            tasks.start_soon(running.run)
            await running.scheduling()
            with anyio.fail_after(PATIENCE):
                while Dialect.COSCHEDULING not in running.app.parts.cluster.groups.watched:
                    await anyio.lowlevel.checkpoint()
            url = f"http://127.0.0.1:{free_tcp_port}/readyz"
            async with aiohttp.ClientSession(trust_env=False) as session, session.get(url) as answer:
                assert answer.status == 200
            running.server.create(pod_manifest("alone", neuron=1))
            with anyio.fail_after(PATIENCE):
                while not running.app.parts.cluster.pod_count:
                    await anyio.lowlevel.checkpoint()
            running.signal()
            assert await running.end() == ""


async def test_a_kind_that_is_served_no_longer() -> None:
    """Another version is watched. If there is none, groups without a count wait no more for their PodGroups."""
    newer, older, _ = POD_GROUPS
    looks = [older]

    async def served(_: Client, __: object) -> list[Resource[PodGroupObject]]:
        return looks

    changes: dict[str, Any] = {"served_kinds": served, "LOOK_FOR_KINDS": 0.01}
    with mock.patch.multiple(app, **changes):
        async with process() as running, anyio.create_task_group() as tasks:
            for name in ("p0", "p1"):
                running.server.create(pod_manifest(name, neuron=1, schedulingGroup={"podGroupName": "train"}))
            listed = Hold()
            running.suffer(listed, newer.path)
            tasks.start_soon(running.run)
            await running.scheduling()
            looks[:] = [newer]
            with anyio.fail_after(PATIENCE):
                await listed.arrived.wait()
            assert running.app.parts.queue.groups.counts()["held"] == 1
            looks.clear()
            with anyio.fail_after(PATIENCE):
                while running.app.parts.cluster.pod_count < 2:
                    await anyio.lowlevel.checkpoint()
            listed.release()
            running.signal()
            assert await running.end() == ""


async def test_nothing_of_the_cluster_is_served_by_default(free_tcp_port: int) -> None:
    """Without the setting no decision is kept, and the port has no pages beside health and metrics."""
    async with process(port=free_tcp_port) as running, anyio.create_task_group() as tasks:
        async with app.build(running.app.config, StopRequests()) as scheduler:
            assert (scheduler.decisions, scheduler.parts.scheduling_loop.attempts.listeners) == (None, ())
        async with app.build(attrs.evolve(running.app.config, answer_questions=True), StopRequests()) as scheduler:
            assert scheduler.decisions is not None
        tasks.start_soon(running.run)
        await running.scheduling()
        url = f"http://127.0.0.1:{free_tcp_port}"
        async with aiohttp.ClientSession(trust_env=False) as session:
            for path in ("/v1/decisions", "/v1/fleet", "/v1/why", "/"):
                async with session.get(f"{url}{path}") as answer:
                    assert answer.status == 404, path
        running.signal()
        assert await running.end() == ""
