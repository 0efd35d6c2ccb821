"""Space that kube-scheduler frees for a pod is kept for it, against our own queue too, and never for ever."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.cluster.changes import SpaceChanged
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers import foreign_nominations
from neuron_scheduler.controllers.foreign_nominations import LONGEST, ForeignNominations
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import Image, Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.scheduling.cycle.profile import default_profile, extender_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.loops import Watches, watches_of
from tests.support.patience import PATIENCE
from tests.support.queueing import new_queue

OURS = default_profile("my-scheduler")


@attrs.define(eq=False)
class World:
    """A full node of 16 devices, and what the watch shows of its pods."""

    now: float = 0.0
    cluster: Cluster = attrs.field(
        factory=lambda: cluster_of(
            [node("n", "trn1.32xlarge")],
            [pod(f"p{i}", on="n", devices=4, ids=range(4 * i, 4 * i + 4)) for i in range(4)],
        )
    )
    queue: SchedulingQueue = attrs.field(factory=new_queue)
    kept: ForeignNominations = attrs.field(init=False)
    watches: Watches = attrs.field(init=False)
    handler: WatchHandler[Pod] = attrs.field(init=False)
    nodes: WatchHandler[Node] = attrs.field(init=False)
    noted: list[ClusterEvent] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        world: Any = self
        shared: dict[str, Any] = {"cluster": self.cluster, "queue": self.queue, "clock": lambda: self.now}
        errors = UnexpectedErrors(Metrics().count_unexpected_error)
        self.kept = ForeignNominations(profile=extender_profile(), own_names={"my-scheduler"}, **shared)
        executor = PreemptionExecutor(
            evictor=world, reporter=world, metrics=Metrics(), pod_list=PodList(), fence=world, errors=errors, **shared
        )
        self.watches = watches = watches_of(self.cluster, self.queue, executor, self.kept, clock=lambda: self.now)
        self.handler, self.nodes = watches.of(PODS), watches.of(NODES)

    def taint(self, *taints: Taint) -> None:
        """Show that the node has these taints and no others."""
        self.show_node(taints=taints)

    def show_node(self, *, allocatable: Mapping[str, int] = MappingProxyType({}), **changes: Any) -> None:
        """Show the node with changes; it may have more resources than before."""
        node_info = self.cluster.node("n")
        assert node_info is not None
        offers = {**node_info.node.allocatable, **allocatable}
        self.nodes.on_updated(node_info.node, attrs.evolve(node_info.node, allocatable=offers, **changes))

    def evict(self, name: str) -> None:
        """Show that kube-scheduler has deleted a pod."""
        known = self.pod(name)
        self.handler.on_updated(known, attrs.evolve(known, terminating=True, preempted=True))

    def end(self, name: str) -> None:
        self.handler.on_deleted(self.pod(name))

    def pod(self, name: str) -> Pod:
        """Return a pod on the node."""
        pod_info = self.cluster.pod_info(f"uid-{name}")
        assert pod_info is not None
        return pod_info.pod

    def fits(self, **fields: Any) -> bool:
        """Return whether a pod of our own queue gets the node."""
        pending = pod("own", scheduler_name="my-scheduler", **fields)
        return isinstance(schedule_pod(self.cluster, pending, OURS), Decision)

    def is_kept(self) -> bool:
        """Return whether space is kept for `high`."""
        return self.cluster.nomination("uid-high") is not None


HIGH = pod("high", devices=4, priority=10)
NOMINATED = attrs.evolve(HIGH, nominated_node_name="n")


def world_with_space() -> World:
    """Return a world in which a block has come free for a pod that is nominated there."""
    world = World()
    world.handler.on_added(HIGH)
    world.handler.on_updated(HIGH, NOMINATED)
    world.evict("p1")
    world.end("p1")
    return world


def test_the_space_is_kept_while_the_victims_end_and_after_that() -> None:
    """The status names the node before the victims terminate; a pod of our own queue of lower priority gets nothing."""
    world = World()
    world.handler.on_added(HIGH)
    world.handler.on_updated(HIGH, NOMINATED)
    assert not world.is_kept()
    world.evict("p1")
    assert world.is_kept()
    world.end("p1")
    assert not world.fits(devices=1, priority=9)
    assert world.fits(devices=4, priority=11)


ENDS: dict[str, Any] = {
    "the pod is gone": lambda world: world.handler.on_deleted(NOMINATED),
    "the status is cleared": lambda world: world.handler.on_updated(NOMINATED, HIGH),
    "the pod terminates": lambda world: world.handler.on_updated(NOMINATED, attrs.evolve(NOMINATED, terminating=True)),
    "another node is nominated": lambda world: world.handler.on_updated(
        NOMINATED, attrs.evolve(HIGH, nominated_node_name="m")
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_it_is_kept_no_longer_than_it_is_needed(case: str) -> None:
    """Pods of our own queue get it."""
    world = world_with_space()
    assert not world.fits(devices=4)
    ENDS[case](world)
    assert not world.is_kept()
    assert world.fits(devices=4)


def test_it_ends_when_the_pod_is_bound() -> None:
    """To this node or to any other."""
    world = world_with_space()
    world.handler.on_updated(NOMINATED, pod("high", devices=4, priority=10, ids=range(4, 8), on="n"))
    assert not world.is_kept()
    world.evict("p2")
    assert not world.is_kept()


def test_a_more_important_pod_takes_it() -> None:
    """kube-scheduler tries the other one again, and its status is not ours to write."""
    world = world_with_space()
    world.handler.on_added(pod("more", devices=4, priority=11, ids=range(4, 8), on="n"))
    assert not world.is_kept()


TAINT = Taint("maintenance", Effect.NO_SCHEDULE)


def test_it_is_not_kept_while_the_node_refuses_the_pod() -> None:
    """Not even when another pod ends there meanwhile; it is kept again as soon as the taint is gone."""
    world = world_with_space()
    world.taint(TAINT)
    assert not world.is_kept()
    world.evict("p2")
    world.end("p2")
    assert not world.is_kept()
    world.taint()
    assert world.is_kept()


NIC = "example.com/nic"


def world_with_nics(count: int) -> World:
    """Return a world in which space is kept for a pod that asks for two NICs also, of which the node has some."""
    world = World()
    world.show_node(allocatable={NIC: count})
    world.end("p1")
    world.handler.on_added(attrs.evolve(NOMINATED, requests={**NOMINATED.requests, NIC: 2}))
    assert world.is_kept()
    return world


@pytest.mark.parametrize("nics", [0, 1])
def test_what_only_kube_scheduler_judges_ends_nothing(nics: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The space was dropped and kept again at each change of the node, and pods of our own queue were woken."""
    world = world_with_nics(nics)
    freed: list[ClusterEvent] = []
    monkeypatch.setattr(SchedulingQueue, "note", lambda _, event, *__, **___: freed.append(event))
    kept = world.cluster.nomination("uid-high")
    for number in range(3):
        world.show_node(images=(Image((f"image-{number}",), 1),))
        world.watches.observers.tell([SpaceChanged("n")])
        assert world.cluster.nomination("uid-high") == kept
    assert ClusterEvent.ASSIGNED_POD_GONE not in freed
    assert not world.fits(devices=4)


def test_a_host_port_that_is_taken_ends_nothing() -> None:
    """It is kube-scheduler that judges it: the devices are kept, whichever pod was first."""
    port = (HostPort("TCP", 8080),)
    listening = attrs.evolve(pod("listening", on="n"), host_ports=port)
    for port_is_taken_first in (False, True):
        world = World()
        world.end("p1")
        events = [attrs.evolve(NOMINATED, host_ports=port), listening]
        for new in reversed(events) if port_is_taken_first else events:
            world.handler.on_added(new)
        assert world.is_kept()
        world.watches.observers.tell([SpaceChanged("n")])
        assert world.is_kept()


def test_nothing_is_kept_for_ever() -> None:
    """Nobody may schedule the pod any more; later changes of it do not begin the time again."""
    world = world_with_space()
    world.now = LONGEST
    world.kept.expire()
    assert world.is_kept()
    world.now += 1.0
    world.kept.expire()
    assert not world.is_kept()
    world.handler.on_updated(NOMINATED, attrs.evolve(NOMINATED, labels={"a": "b"}))
    world.evict("p2")
    assert not world.is_kept()
    assert world.fits(devices=4)


def test_a_pod_of_our_own_queue_is_left_to_preemption() -> None:
    """And one without Neuron to kube-scheduler."""
    world = World()
    world.end("p1")
    world.handler.on_added(attrs.evolve(NOMINATED, scheduler_name="my-scheduler"))
    world.handler.on_added(pod("plain", cpu=1, nominated_node_name="n"))
    assert not world.cluster.has_nominations


async def test_it_looks_at_the_clock_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the process runs."""
    monkeypatch.setattr(foreign_nominations, "PERIOD", 0.0)
    world = world_with_space()
    world.now = LONGEST + 1.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.kept.run)
        with anyio.fail_after(PATIENCE):
            while world.is_kept():
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
