"""What preemption changes in the cluster and the queue, what it reports, and which evictions it requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.controllers.preemption_executor import SHARE, WORKERS, PostFilter, PreemptionExecutor
from neuron_scheduler.kube.writes.evictor import Eviction
from neuron_scheduler.model.nomination import CLEAR, Nominate
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.resources import CPU
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.hints import NodeChange
from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal
from tests.support.patience import PATIENCE
from tests.support.queueing import FIT, counts, popped

PROFILE = default_profile("my-scheduler")
BIG = pod("big", devices=16, priority=9)


def half(name: str, first: int, **keywords: object) -> Pod:
    """Return a pod on one half of the node."""
    return pod(name, on="n", devices=8, ids=range(first, first + 8), **keywords)  # type: ignore[arg-type]  # as given


@attrs.define(eq=False)
class World:
    """A node with both halves in use, a pending pod, and a stand-in for the evictor."""

    cluster: Cluster
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    refusing: set[str] = attrs.field(factory=set)
    asked: list[str] = attrs.field(factory=list)
    waiting: set[str] = attrs.field(factory=set)
    pausing: set[str] = attrs.field(factory=set)
    telling: set[str] = attrs.field(factory=set)
    broken: set[str] = attrs.field(factory=set)
    now: float = 100.0
    reports: list[tuple[str, str]] = attrs.field(factory=list)
    may_answer: anyio.Event = attrs.field(factory=anyio.Event)

    async def proceed(self, eviction: Eviction) -> float:
        """Answer when it is allowed."""
        victim = eviction.victim
        assert eviction.scheduler_name
        self.asked.append(victim.name)
        if victim.name in self.broken:
            raise ValueError("broken")
        eviction.explained |= victim.name in self.telling
        if victim.name in self.pausing:
            self.pausing.discard(victim.name)
            return 5.0
        await self.may_answer.wait()
        eviction.evicted = victim.name not in self.refusing
        return 0.0

    def preempted(self, victim: Pod, preemptor: Pod, node_name: str) -> None:
        """Remember the report to a victim."""
        self.reports.append((victim.name, f"{preemptor.name} on {node_name}"))

    def nomination_lost(self, pod: Pod) -> None:
        """Remember which pod lost its nomination."""
        self.reports.append((pod.name, "nomination lost"))

    def give_up(self, uid: str) -> bool:
        """Return whether the pod waits to be bound."""
        return uid in self.waiting

    def row(self, name: str) -> NodeInfo:
        """Return a node's row."""
        node_info = self.cluster.node(name)
        assert node_info is not None
        return node_info

    def pending(self, pending: Pod = BIG) -> QueuedPod:
        """Queue and pop a pod."""
        self.queue.add(pending, 0.0)
        return popped(self.queue, 0.0)


@asynccontextmanager
async def preempting(*pods: Pod) -> AsyncIterator[tuple[World, PreemptionExecutor]]:
    """Run a preemption executor for a node with these pods."""
    world = World(cluster_of([node("n", "trn1.32xlarge")], pods))
    preemption_executor = PreemptionExecutor(
        cluster=world.cluster,
        queue=world.queue,
        evictor=world,
        reporter=world,
        metrics=Metrics(),
        budgets=tuple,
        clock=lambda: world.now,
        give_up=world.give_up,
    )
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            await tasks.start(preemption_executor.run)
            yield world, preemption_executor
            world.may_answer.set()
            preemption_executor.stop()


async def post_filter(world: World, preemption_executor: PreemptionExecutor, queued: QueuedPod) -> PostFilter:
    """Let a refused pod preempt, and put it back."""
    after = await preemption_executor.post_filter(queued, refusal(world.cluster, queued.pod), PROFILE)
    has_nomination = world.cluster.nomination(queued.pod.uid) is not None
    world.queue.unschedulable(queued, FIT, 0.0, held=after.held, has_nomination=has_nomination)
    return after


async def test_the_pod_is_held_until_all_were_asked() -> None:
    """The node is nominated at once; the pod is tried again when the victims are gone, not before all are evicted."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        after = await post_filter(world, preemption_executor, world.pending())
        assert after == PostFilter(nomination=Nominate("n"), held=True)
        assert world.cluster.nomination("uid-big") is not None
        world.cluster.remove_pod("uid-a")
        world.queue.note(ClusterEvent.ASSIGNED_POD_GONE)
        assert world.queue.pop(100.0) is None
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert sorted(world.asked) == ["a", "b"]
        assert sorted(world.reports) == [("a", "big on n"), ("b", "big on n")]
        assert popped(world.queue, 100.0).pod.name == "big"


async def test_a_victim_that_could_not_be_asked() -> None:
    """The pod backs off and may preempt again: it does not wait for a victim that stays, nor ask in a tight loop."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.refusing.add("b")
        await post_filter(world, preemption_executor, world.pending())
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert world.reports == [("a", "big on n")]
        assert world.queue.pop(100.9) is None
        again = popped(world.queue, 101.0)
        world.asked.clear()
        assert (await post_filter(world, preemption_executor, again)).nomination == Nominate("n")


async def test_who_terminates_already_is_not_asked() -> None:
    """The pod only waits for its end."""
    async with preempting(half("a", 0, terminating=True), half("b", 8, terminating=True)) as (
        world,
        preemption_executor,
    ):
        after = await post_filter(world, preemption_executor, world.pending())
        assert after == PostFilter(nomination=Nominate("n"))
        assert not world.asked
        assert world.cluster.nomination("uid-big") is not None


async def test_a_nomination_of_lower_priority_is_dropped() -> None:
    """The pod of lower priority that had the nomination is tried again at once."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending(pod("lesser", devices=8, priority=1)))
        await anyio.wait_all_tasks_blocked()
        assert counts(world.queue) == {"unschedulable": 1}
        await post_filter(world, preemption_executor, world.pending())
        assert ("lesser", "nomination lost") in world.reports
        assert world.cluster.nomination("uid-lesser") is None
        assert popped(world.queue, 200.0).pod.name == "lesser"


async def test_another_nomination_wakes_pods_that_wait_for_the_first_one() -> None:
    """When a pod is nominated elsewhere, its first space is free for others."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("c", on="m", devices=16, ids=range(16), priority=9))
        world.cluster.nominate("m", Nomination(BIG))
        other = world.pending(pod("other", cpu=1))
        world.queue.unschedulable(other, FIT, 0.0)
        await post_filter(world, preemption_executor, world.pending())
        assert world.cluster.nomination("uid-big") is not None
        assert popped(world.queue, 100.0) is other


async def nominated(world: World, preemption_executor: PreemptionExecutor) -> None:
    """Nominate the node for the big pod, and evict both halves."""
    world.may_answer.set()
    await post_filter(world, preemption_executor, world.pending())
    await anyio.wait_all_tasks_blocked()
    assert world.cluster.nomination("uid-big") is not None
    assert world.queue.pop(100.0) is None


async def test_a_pod_that_loses_the_space_is_tried_again() -> None:
    """One of two victims has left and a pod of higher priority takes its half: the end of the other is not enough."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await nominated(world, preemption_executor)
        world.cluster.remove_pod("uid-a")
        world.cluster.assume(pod("higher", on="n", devices=8, priority=10), CoreMask(0xFFFF))
        woken = list[bool]()
        world.queue.on_change = lambda: woken.append(True)
        preemption_executor.recheck("n")
        assert world.cluster.nomination("uid-big") is None
        assert world.reports[-1] == ("big", "nomination lost")
        assert woken
        assert popped(world.queue, 100.0).pod.name == "big"


@pytest.mark.parametrize(
    ("taken", "priorities", "kept"),
    [
        (0, (1, 1, 1), ["first", "second", "third"]),
        (1000, (1, 1, 1), ["first", "second"]),
        (1000, (1, 2, 3), ["second", "third"]),
        (5000, (2, 1, 3), ["third"]),
        (6001, (2, 1, 3), []),
    ],
)
async def test_all_nominations_of_a_node_fit_there_together(
    taken: int, priorities: tuple[int, ...], kept: list[str]
) -> None:
    """Those of higher priority keep theirs, and of equal ones the earlier."""
    async with preempting(pod("there", on="n", cpu=192_000 - 9000)) as (world, preemption_executor):
        names = ("first", "second", "third")
        for name, priority in zip(names, priorities, strict=True):
            wanted = pod(name, cpu=3000, priority=priority)
            world.queue.add(wanted, 0.0)
            world.cluster.nominate("n", Nomination(wanted))
        foreign = pod("foreign", on="n", cpu=taken, priority=10)
        world.cluster.put_pod(foreign)
        preemption_executor.recheck("n")
        assert [name for name in names if world.cluster.nomination(f"uid-{name}") is not None] == kept


async def test_the_victims_of_two_nominations_leave() -> None:
    """Each one counts as gone for its own pod and for those that are judged after it."""
    async with preempting(half("a", 0, cpu=90_000), half("b", 8, cpu=90_000)) as (world, preemption_executor):
        for name, cores, victim in (("first", 0xFFFF, "a"), ("second", 0xFFFF0000, "b")):
            wanted = pod(name, devices=8, cpu=96_000)
            world.queue.add(wanted, 0.0)
            world.cluster.nominate("n", Nomination(wanted, CoreMask(cores), victims=frozenset({f"uid-{victim}"})))
        preemption_executor.recheck("n")
        assert [nomination.pod.name for nomination in world.row("n").nominations] == ["first", "second"]
        world.cluster.put_pod(pod("foreign", on="n", cpu=1, priority=10))
        preemption_executor.recheck("n")
        assert [nomination.pod.name for nomination in world.row("n").nominations] == ["first"]


@pytest.mark.parametrize(("resource", "kept"), [("example.com/nic", ["first", "second"]), (CPU, ["first"])])
async def test_kube_scheduler_judges_other_resources_of_its_pods(resource: str, kept: list[str]) -> None:
    """It may have counted them in another way than we do, and would nominate the node again."""
    async with preempting() as (world, preemption_executor):
        node_info = world.row("n")
        world.cluster.put_node(attrs.evolve(node_info.node, allocatable={**node_info.node.allocatable, resource: 3}))
        for name in ("first", "second"):
            world.cluster.nominate("n", Nomination(attrs.evolve(pod(name), requests={resource: 2})))
        preemption_executor.recheck("n")
        assert [nomination.pod.name for nomination in world.row("n").nominations] == kept


@pytest.mark.parametrize("ours", [True, False])
async def test_space_whose_host_port_another_pod_takes_is_given_up(ours: bool) -> None:
    """A victim that has the port leaves; another scheduler's pod stays. kube-scheduler judges the ports of its pods."""
    port = HostPort("TCP", 8080)
    async with preempting(half("a", 0, host_ports=(port,))) as (world, preemption_executor):
        wanted = attrs.evolve(BIG, host_ports=(port,))
        if ours:
            world.queue.add(wanted, 0.0)
        world.cluster.nominate("n", Nomination(wanted, CoreMask(0xFF), victims=frozenset({"uid-a"})))
        preemption_executor.recheck("n")
        assert world.cluster.nomination("uid-big") is not None
        world.cluster.put_pod(pod("foreign", on="n", priority=10, host_ports=(port,)))
        preemption_executor.recheck("n")
        assert (world.cluster.nomination("uid-big") is None) is ours


async def test_a_pod_that_loses_nothing_is_not_woken() -> None:
    """A pod that takes space outside of nominations wakes no other pod; nor does a pod on a node without any."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await nominated(world, preemption_executor)
        world.cluster.assume(pod("beside", on="n", cpu=1000, priority=10))
        for name in ("n", "gone"):
            preemption_executor.recheck(name)
        assert world.cluster.nomination("uid-big") is not None
        assert world.queue.pop(100.0) is None


async def test_it_wakes_when_it_fits() -> None:
    """The end of one of two victims is not enough, nor is that of a pod on another node with possible victims."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        for name, first in (("c", 0), ("d", 8)):
            world.cluster.put_pod(attrs.evolve(half(name, first, priority=5), node_name="m"))
        await nominated(world, preemption_executor)
        for name, node_name, woken in (("a", "n", False), ("c", "m", False), ("b", "n", True)):
            gone = world.cluster.pod_info(f"uid-{name}")
            assert gone is not None
            assert world.cluster.remove_pod(gone.pod.uid) == node_name
            world.queue.note(ClusterEvent.ASSIGNED_POD_GONE, gone.pod, on=NodeChange(world.row(node_name)))
            assert (world.queue.pop(100.0) is not None) is woken


async def test_nominations_end_with_their_node() -> None:
    """Its pods may be listed for minutes; a pod that waits for their end is tried again at once."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await nominated(world, preemption_executor)
        for lost in world.cluster.remove_node("n"):
            preemption_executor.nomination_lost(lost.pod)
        assert world.cluster.clear_nomination("uid-big") is None
        assert popped(world.queue, 100.0).pod.name == "big"


async def test_a_pod_whose_node_is_cordoned_while_victims_are_asked_is_tried_when_all_were_asked() -> None:
    """What it waits for there is of no use to it any more; it is not tried in the middle of its evictions."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        world.cluster.put_node(node("n", "trn1.32xlarge", unschedulable=True))
        preemption_executor.recheck("n")
        assert world.cluster.nomination("uid-big") is None
        assert world.queue.pop(100.0) is None
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert popped(world.queue, 100.0).pod.name == "big"


async def test_nobody_is_evicted_for_space_that_was_given_up() -> None:
    """One victim was asked, one waits for its next try, the others for a worker; the pod is tried again at once."""
    async with preempting(*crowd("default")) as (world, preemption_executor):
        world.pausing.add("v0")
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        asked = list(world.asked)
        assert len(asked) == SHARE + 1
        world.cluster.put_node(node("n", "trn1.32xlarge", unschedulable=True))
        preemption_executor.recheck("n")
        world.now += 5.0
        world.may_answer.set()
        preemption_executor.stop()
    assert world.asked == asked
    assert sorted(name for name, text in world.reports if text == "big on n") == sorted(asked[1:])
    assert popped(world.queue, 105.0).pod.name == "big"


async def test_nobody_is_evicted_for_a_pod_that_ends_before_its_victims_are_asked() -> None:
    """Also not a victim that waits to be bound."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.waiting.add("uid-a")
        await post_filter(world, preemption_executor, world.pending())
        world.cluster.clear_nomination("uid-big")
        world.queue.remove("uid-big")
        await anyio.wait_all_tasks_blocked()
        assert (world.asked, world.reports) == ([], [])


async def test_a_victim_that_was_told_is_evicted_although_the_space_was_given_up() -> None:
    """Its DELETE had no answer: it may be terminating, and its owner is told."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.may_answer.set()
        world.pausing, world.telling = {"a", "b"}, {"a"}
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        world.cluster.put_node(node("n", "trn1.32xlarge", unschedulable=True))
        preemption_executor.recheck("n")
        world.now += 5.0
        preemption_executor.stop()
    assert world.asked == ["a", "b", "a"]
    assert world.reports == [("big", "nomination lost"), ("a", "big on n")]


async def test_nobody_is_evicted_who_is_no_victim_of_the_new_nomination() -> None:
    """The pod came back, and its nomination was made again for space that others have left."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        world.cluster.nominate("n", Nomination(BIG, victims=frozenset({"uid-b"})))
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert world.asked == ["b"]


async def test_a_pod_that_is_gone_preempts_nobody() -> None:
    """It is deleted during the search: no pod is evicted."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        queued = world.pending()
        world.queue.remove("uid-big")
        after = await preemption_executor.post_filter(queued, refusal(world.cluster, BIG), PROFILE)
        assert after == PostFilter()
        assert not world.asked


async def test_giving_up_drops_the_nomination() -> None:
    """No eviction can help any more: the status names no node, and other pods may get the space."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        for name in ("a", "b"):
            world.cluster.remove_pod(f"uid-{name}")
        world.cluster.put_pod(pod("foreign", on="n", devices=16, priority=99))
        world.queue.note(ClusterEvent.ASSIGNED_POD_GONE)
        after = await post_filter(world, preemption_executor, popped(world.queue, 100.0))
        assert (after.nomination, after.held) == (CLEAR, False)
        assert after.text.startswith("preemption: 0/1 nodes are available: 1 No preemption victims found")
        assert world.cluster.nomination("uid-big") is None


async def test_a_nomination_is_adopted() -> None:
    """It is known from the status, after a restart or from another component; our own nomination comes first."""
    async with preempting(half("a", 0, terminating=True, preempted=True)) as (world, preemption_executor):
        queued = world.pending(attrs.evolve(BIG, nominated_node_name="n"))
        preemption_executor.adopt(queued, PROFILE)
        promise = world.cluster.nomination("uid-big")
        assert promise is not None
        assert promise[1].cores == 0xFFFFFFFF
        world.cluster.nominate("n", Nomination(BIG, cores=CoreMask(1)))
        preemption_executor.adopt(queued, PROFILE)
        assert world.cluster.nomination("uid-big") == ("n", Nomination(BIG, cores=CoreMask(1)))
        world.cluster.clear_nomination("uid-big")
        queued.attempts = 2
        preemption_executor.adopt(queued, PROFILE)
        assert world.cluster.nomination("uid-big") == promise


async def test_a_victim_that_waits_to_be_bound_is_not_deleted() -> None:
    """It goes back to the queue and counts as evicted; victims on the node are deleted as usual."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.waiting.add("uid-a")
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert world.asked == ["b"]
        assert sorted(world.reports) == [("a", "big on n"), ("b", "big on n")]


def crowd(*namespaces: str) -> list[Pod]:
    """Return a full node: a device for each of sixteen pods, in these namespaces by turns."""
    places = [namespaces[number % len(namespaces)] for number in range(16)]
    return [
        pod(f"v{number}", on="n", devices=1, ids=range(number, number + 1), namespace=place)
        for number, place in enumerate(places)
    ]


async def test_the_number_of_tasks_does_not_depend_on_that_of_victims() -> None:
    """A few workers evict all of them, and those in one namespace leave some workers free."""
    async with preempting(*crowd("default")) as (world, preemption_executor):
        before = len(asyncio.all_tasks())
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert len(asyncio.all_tasks()) == before
        assert len(world.asked) == SHARE
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert len(world.asked) == len(world.reports) == 16
        assert world.queue.pop(99.0) is None
    async with preempting(*crowd("default", "other")) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert len(world.asked) == WORKERS


async def test_a_victim_that_waits_for_its_next_try_keeps_no_worker() -> None:
    """All others are asked before it is due; then it is asked again, and the pod is released after it only."""
    async with preempting(*crowd("default")) as (world, preemption_executor):
        world.pausing = {f"v{number}" for number in range(WORKERS)}
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert len(world.asked) == 16
        assert len(world.reports) == 16 - WORKERS
        world.now += 5.0
        world.cluster.remove_pod("uid-v0")
        preemption_executor.stop()
    assert sorted(world.asked) == sorted([f"v{number}" for number in range(16)] + [f"v{n}" for n in range(WORKERS)])
    assert len(world.reports) == 16


async def test_an_error_of_one_eviction_is_that_victims() -> None:
    """It counts as not evicted, and the pod that needs its place is tried again after a backoff."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.broken.add("a")
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert world.reports == [("b", "big on n")]
        assert world.queue.pop(100.9) is None
        assert popped(world.queue, 101.0).pod.name == "big"
