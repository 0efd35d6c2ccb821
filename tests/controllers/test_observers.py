"""What the watch shows of a node and its pods reaches everything that was decided for that node and is not done yet."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, get_args

import attrs
import pytest

from neuron_scheduler.cluster import changes
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers.pod_attempt import LONGEST_LIST
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, Taint, Toleration
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.trial import take
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profile_config import CapacityRequests, ProfileConfig
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import Parts, wire
from tests.controllers.test_allocate_fence import at_work
from tests.controllers.test_binding_cycle import until
from tests.support.builders import node, pod
from tests.support.queueing import FIT

NODE = node("n", "trn1.32xlarge", cpu=8000)
VICTIM = pod("victim", on="n", devices=4, ids=range(4), cpu=1000)
NEIGHBOUR = pod("neighbour", on="n", devices=4, ids=range(4, 8), cpu=1000, priority=9)
CORES = CoreMask(0xFF)


@attrs.define(eq=False)
class World:
    """A process that runs nothing yet, with one node, and a pod that waits there until its victim is gone."""

    settings: Mapping[str, Any] = {}
    wanted: Pod = attrs.field(
        factory=lambda: pod("wanted", scheduler_name="my-scheduler", devices=4, cpu=1000, priority=5)
    )
    parts: Parts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        client = Client(connection=Connection("http://127.0.0.1:1", "a test"))
        self.parts = wire(Config(**self.settings), client, Metrics())
        self.nodes.on_added(NODE)
        for there in (VICTIM, NEIGHBOUR):
            self.pods.on_added(there)
        self.pods.on_added(self.wanted)
        queued = self.queue.pop(0.0)
        assert queued is not None
        cores = NO_CORES if self.wanted.neuron is None else CORES
        nomination = Nomination(self.wanted, cores, victims=frozenset({VICTIM.uid}))
        self.parts.cluster.nominate("n", nomination)
        self.queue.put_back_refused(queued, FIT, 0.0, has_nomination=True)

    @property
    def queue(self) -> SchedulingQueue:
        return self.parts.queue

    @property
    def nodes(self) -> WatchHandler[Node]:
        return WatchHandler(NODES, self.parts.cluster, self.parts.observers, Metrics())

    @property
    def pods(self) -> WatchHandler[Pod]:
        return WatchHandler(PODS, self.parts.cluster, self.parts.observers, Metrics())

    def change_node(self, **changes: Any) -> None:
        """Let the watch show another state of the node."""
        allocatable = {**NODE.allocatable, **changes.pop("allocatable", {})}
        self.nodes.on_updated(NODE, attrs.evolve(NODE, allocatable=allocatable, **changes))

    def tried_at_once(self) -> bool:
        """Return whether the pod has lost its space and is tried again now; otherwise it keeps it and sleeps on."""
        kept, queued = self.parts.cluster.nomination(self.wanted.uid), self.queue.pop(0.0)
        assert (kept is None) == (queued is not None)
        return kept is None


CHANGES: dict[str, dict[str, Any]] = {
    "cordon": {"unschedulable": True},
    "dead": {"taints": (Taint("node.kubernetes.io/unreachable", Effect.NO_SCHEDULE),)},
    "drained": {"taints": (Taint("drained", Effect.NO_EXECUTE),)},
    "unhealthy": {"neuron_fault": "NeuronHealth"},
    "unreadable": {"refusal": "it cannot be read"},
    "fewer devices": {"allocatable": {NEURON_DEVICE: 7}},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
async def test_space_on_a_node_that_takes_no_more_pods_is_given_up(changes: dict[str, Any]) -> None:
    """The pod would sleep until its victims are gone, and be refused there."""
    world = World()
    world.change_node(**changes)
    assert world.tried_at_once()


def gone(world: World) -> None:
    """Let the node go; its pods follow."""
    world.nodes.on_deleted(NODE)


def replaced(world: World) -> None:
    """Let a smaller machine join under the node's name."""
    world.nodes.on_updated(NODE, node("n", "trn1.2xlarge"))


@pytest.mark.parametrize("ends", [gone, replaced])
async def test_space_on_a_machine_that_is_gone_is_given_up(ends: Callable[[World], None]) -> None:
    """The pod would sleep until its victims have ended, and be refused then."""
    world = World()
    ends(world)
    assert world.tried_at_once()


@pytest.mark.parametrize("case", ["cordon", "dead", "drained"])
async def test_a_pod_that_tolerates_it_keeps_its_space(case: str) -> None:
    """The tolerations are the pod's present ones: some may have been added since the nomination."""
    world = World()
    tolerating = attrs.evolve(world.wanted, tolerations=(Toleration(exists=True),))
    world.pods.on_updated(world.wanted, tolerating)
    queued = world.queue.pop(0.0)
    assert queued is not None
    world.queue.put_back_refused(queued, FIT, 0.0, has_nomination=True)
    world.change_node(**CHANGES[case])
    assert world.parts.cluster.nomination(tolerating.uid) is not None
    assert world.queue.pop(0.0) is None


async def test_a_pod_without_neuron_keeps_its_space_on_an_unhealthy_node() -> None:
    """As in the filter."""
    world = World(wanted=pod("wanted", scheduler_name="my-scheduler", cpu=7000, priority=5))
    world.change_node(neuron_fault="NeuronHealth")
    assert not world.tried_at_once()


def foreign(world: World) -> None:
    """Let another scheduler's pod come to the node, whose ids nobody knows."""
    world.pods.on_added(pod("foreign", on="n", devices=2, priority=9))


def unreadable(world: World) -> None:
    """Let a pod come to the node whose object cannot be read."""
    world.pods.on_malformed(Malformed("Pod", "default/odd", "bad", uid="odd", node_name="n"))


@pytest.mark.parametrize("comes", [foreign, unreadable])
async def test_space_that_an_unknown_holder_may_use_is_given_up(comes: Any) -> None:
    """No pod for several devices goes to such a node."""
    world = World()
    comes(world)
    assert world.tried_at_once()


async def test_space_for_a_pod_of_kube_schedulers_is_kept_again() -> None:
    """kube-scheduler is told of the uncordoned node at the same time as we are."""
    world = World(settings={"extender_bind_address": ":12345"})
    world.pods.on_added(pod("high", devices=8, priority=9, nominated_node_name="n"))

    def is_kept() -> bool:
        return world.parts.cluster.nomination("uid-high") is not None

    assert is_kept()
    world.change_node(unschedulable=True)
    assert not is_kept()
    world.change_node()
    assert is_kept()


async def test_space_for_a_pod_of_kube_schedulers_is_kept_on_a_node_that_is_seen_later() -> None:
    """The watch of pods may be earlier than that of nodes; a node that joins again has the same name."""
    world = World(settings={"extender_bind_address": ":12345"})
    world.pods.on_added(pod("high", devices=8, priority=9, nominated_node_name="m"))
    later = node("m", "trn1.32xlarge")
    world.nodes.on_added(later)
    assert world.parts.cluster.nomination("uid-high") is not None
    world.nodes.on_deleted(later)
    assert world.parts.cluster.nomination("uid-high") is None
    world.nodes.on_added(later)
    assert world.parts.cluster.nomination("uid-high") is not None


@pytest.mark.parametrize(("cpu", "lost"), [(6000, False), (7000, False), (7001, True)])
async def test_a_list_counts_no_pod_beside_the_one_whose_space_it_has(cpu: int, lost: bool) -> None:
    """A list has the new pods first; the space is given up at its end if it is taken then."""
    world = World()
    with world.parts.observers.list_context():
        world.pods.on_added(pod("new", on="n", cpu=cpu, priority=9))
        assert world.parts.cluster.nomination(world.wanted.uid) is not None
        world.pods.on_deleted(NEIGHBOUR)
    assert (world.parts.cluster.nomination(world.wanted.uid) is None) is lost


@pytest.mark.parametrize(
    ("changes", "lost"), [({"labels": {**NODE.labels, "a": "b"}}, False), (CHANGES["cordon"], True)]
)
async def test_a_node_that_changes_in_the_middle_of_a_list_is_looked_at_at_its_end(
    changes: dict[str, Any], lost: bool
) -> None:
    """The watch of nodes goes on meanwhile, and both the pods that came and those that are gone still count."""
    world = World()
    with world.parts.observers.list_context():
        world.pods.on_added(pod("new", on="n", cpu=6500, priority=9))
        world.change_node(**changes)
        assert world.parts.cluster.nomination(world.wanted.uid) is not None
        world.pods.on_deleted(NEIGHBOUR)
    assert (world.parts.cluster.nomination(world.wanted.uid) is None) is lost


@pytest.mark.parametrize(("cpu", "lost"), [(1500, False), (1501, True)])
async def test_a_decision_in_the_middle_of_a_list_is_set_against_nominations_at_its_end(cpu: int, lost: bool) -> None:
    """It takes its own space only; that of a pod which is gone does not count against the nomination."""
    world = World()
    with world.parts.observers.list_context():
        world.pods.on_added(pod("new", on="n", cpu=5500, priority=9))
        decided = pod("decided", scheduler_name="my-scheduler", cpu=cpu, priority=9)
        taken = take(world.parts.cluster, decided, Decision("n", None, 1, 1))
        world.parts.scheduling_loop.attempts.announcer.announce(taken)
        assert world.parts.cluster.nomination(world.wanted.uid) is not None
        world.pods.on_deleted(NEIGHBOUR)
    assert (world.parts.cluster.nomination(world.wanted.uid) is None) is lost


async def test_a_list_ends_although_a_decision_cannot_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error in one of them is that one's; the other nodes are looked at."""
    world = World()
    executor = world.parts.scheduling_loop.preemption_executor
    seen: list[str] = []

    def recheck(_: PreemptionExecutor, name: str) -> None:
        seen.append(name)
        raise RuntimeError("a mistake")

    monkeypatch.setattr(type(executor), "recheck", recheck)
    with world.parts.observers.list_context():
        for name in ("n", "m"):
            world.pods.on_added(pod(f"new-{name}", on=name))
    assert seen == ["n", "m"]


async def test_a_list_withdraws_no_binding_for_a_pod_that_has_ended() -> None:
    """A pod and its successor never were on the node at once; a Binding whose place is taken goes at the list's end."""
    async with at_work() as site:
        there, new = (pod(name, on="n", cpu=100_000) for name in ("there", "new"))
        site.handler.on_added(there)
        site.add("b", "a", devices=4, cpu=250)
        assert await site.settle() == ["b"]
        with site.handler.observers.list_context():
            site.handler.on_added(new)
            assert await site.settle() == ["b"]
            assert site.waiting == 1
            site.handler.on_deleted(there)
        await site.settle()
        assert site.waiting == 1
        with site.handler.observers.list_context():
            site.handler.on_added(there)
        await site.settle()
        assert site.waiting == 0


async def test_a_pod_that_waits_to_be_bound_and_is_seen_on_its_node_unreadable_is_an_unknown_holder() -> None:
    """Another scheduler has bound it, so its devices are not those that we chose; the Binding is dropped."""
    async with at_work() as site:
        site.add("b", "a", devices=4, cpu=250)
        assert await site.settle() == ["b"]
        assert (site.waiting, site.cluster.is_assumed("uid-a")) == (1, True)
        site.handler.on_malformed(Malformed("Pod", "default/a", "bad", uid="uid-a", node_name="n"))
        assert await site.settle() == ["b"]
        pod_info = site.cluster.pod_info("uid-a")
        assert pod_info is not None
        assert (site.waiting, pod_info.unreadable, pod_info.cores) == (0, True, None)


async def test_no_pod_is_refused_in_the_middle_of_a_list() -> None:
    """Pods that are gone count beside those that came; others would be preempted although there is room."""
    async with at_work() as site:
        there = pod("there", on="n", cpu=150_000)
        site.handler.on_added(there)
        with site.handler.observers.list_context():
            site.add("big", cpu=100_000)
            await site.settle()
            site.handler.on_deleted(there)
        await until(lambda: bool(site.reports))
        assert site.reports == [("big", "n")]


async def test_a_pod_that_goes_and_comes_again_while_its_refusal_waits_is_decided_once() -> None:
    """The second decision would take the space of the first from it."""
    async with at_work() as site:
        there = pod("there", on="n", cpu=150_000)
        site.handler.on_added(there)
        with site.handler.observers.list_context():
            site.add("big", cpu=90_000)
            await site.settle()
            (before,) = [queued.pod for queued in site.queue.pods()]
            site.handler.on_deleted(before)
            site.handler.on_added(before)
            site.handler.on_deleted(there)
        await until(lambda: bool(site.reports))
        await site.settle()
        assert site.reports == [("big", "n")]
        assert site.cluster.node_of("uid-big") == "n"


async def test_a_list_that_takes_long_keeps_no_pod_from_being_refused() -> None:
    """It was broken off, and the next one is late: the pod is told why it waits."""
    async with at_work() as site:
        with suppress(TimeoutError), site.handler.observers.list_context():
            raise TimeoutError
        site.add("big", cpu=10**9)
        await site.settle()
        assert site.reports == []
        site.now += LONGEST_LIST + 1.0
        await until(lambda: bool(site.reports))
        assert site.reports[0][1].startswith("0/1 nodes are available: 1 Insufficient cpu.")


@pytest.mark.parametrize(("cpu", "lost"), [(1500, False), (7000, False), (7001, True)])
async def test_space_that_a_pod_takes_by_growing_is_given_up(cpu: int, lost: bool) -> None:
    """Its requests were raised in place; one of the 8 CPUs is kept."""
    world = World()
    world.pods.on_updated(NEIGHBOUR, attrs.evolve(NEIGHBOUR, requests={**NEIGHBOUR.requests, CPU: cpu}))
    assert world.tried_at_once() is lost


@pytest.mark.parametrize(("cpu", "lost"), [(500, False), (7000, False), (7001, True)])
async def test_a_pod_that_waits_for_its_space_may_be_resized(cpu: int, lost: bool) -> None:
    """The space is kept for what it asks for now, and given up if the node has not so much without the victim."""
    world = World()
    world.pods.on_updated(world.wanted, attrs.evolve(world.wanted, requests={**world.wanted.requests, CPU: cpu}))
    nominated = world.parts.cluster.nomination(world.wanted.uid)
    assert (nominated is None) is lost
    assert nominated is None or nominated[1].pod.requests[CPU] == cpu


WITHOUT_DEVICES = pod("wanted", scheduler_name="my-scheduler", cpu=1000, priority=5)


async def wait_at_the_fence(world: World, waiting: Pod) -> None:
    """Decide a pod whose Binding waits for those that are on the node."""
    loop = world.parts.scheduling_loop
    world.pods.on_added(waiting)
    queued = world.queue.pop(0.0)
    assert queued is not None
    commitment = await loop.attempts.attempt(queued)
    assert commitment is not None
    assert not loop.binding_cycle.fence.take(commitment)


def waiting_of(world: World) -> int:
    return world.parts.scheduling_loop.binding_cycle.fence.waiting_count


async def test_the_queue_is_told_first() -> None:
    """The fence judges a pod by what it asks for now."""
    world, ours = World(wanted=WITHOUT_DEVICES), pod("ours", scheduler_name="my-scheduler", devices=4, cpu=1000)
    await wait_at_the_fence(world, ours)
    world.pods.on_updated(ours, attrs.evolve(ours, requests={**ours.requests, CPU: 2000}))
    assert waiting_of(world) == 0


async def test_bindings_that_wait_give_way_before_nominations() -> None:
    """Without the pod whose Binding is withdrawn there is room for the other one."""
    world = World(wanted=WITHOUT_DEVICES)
    await wait_at_the_fence(world, pod("ours", scheduler_name="my-scheduler", devices=4, cpu=4000))
    world.change_node(allocatable={CPU: 5500})
    assert waiting_of(world) == 0
    assert world.parts.cluster.nomination(world.wanted.uid) is not None


async def test_the_table_of_observers() -> None:
    """`changes` says in its docstring who is told of what, in the order in which they are told."""
    table = (changes.__doc__ or "").partition("Who is told of what")[2]
    rows = re.findall(r"^    ([A-Z]\w+) +((?:.|\n {5,})*)", table, re.MULTILINE)
    profile = ProfileConfig(scheduler_name="my-scheduler", capacity_requests=CapacityRequests())
    world = World(settings={"extender_bind_address": ":12345", "claims": True, "profiles": (profile,)})
    told: dict[str, list[str]] = {kind.__name__: [] for kind in get_args(changes.Change)}
    for observer in world.parts.observers.observers:
        for kind in observer.OBSERVES:
            told[kind.__name__].append(type(observer).__module__.rpartition(".")[2])
    assert {kind: re.split(r",\s+", modules) for kind, modules in rows} == told
