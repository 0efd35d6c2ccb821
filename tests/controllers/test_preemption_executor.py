"""What preemption changes in the cluster and the queue, and what it reports."""

import anyio
import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers.preemption_executor import PostFilter, PreemptionExecutor
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.nomination import CLEAR, Nominate
from neuron_scheduler.model.pod import HostPort
from neuron_scheduler.model.resources import CPU
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.hints import NodeChange
from tests.support.builders import node, pod
from tests.support.harness import refusal
from tests.support.preempting import BIG, PROFILE, World, half, post_filter, preempting
from tests.support.queueing import FIT, counts, popped


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


async def test_a_pod_that_is_gone_preempts_nobody() -> None:
    """It is deleted during the search: no pod is evicted."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        queued = world.pending()
        world.queue.remove("uid-big")
        after = await preemption_executor.post_filter(queued, refusal(world.cluster, BIG), PROFILE)
        assert after == PostFilter()
        assert not world.asked


async def test_a_pod_that_grows_during_the_search_preempts_nobody_in_vain() -> None:
    """What it asks for now counts: the search is repeated after the backoff."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        queued = world.pending()

        def grow() -> list[DisruptionBudget]:
            world.queue.update(attrs.evolve(BIG, requests={**BIG.requests, CPU: 10**9}), 0.0)
            return []

        preemption_executor.budgets = grow
        assert await post_filter(world, preemption_executor, queued) == PostFilter()
        await anyio.wait_all_tasks_blocked()
        assert world.asked == []
        assert world.cluster.nomination("uid-big") is None


async def test_a_pod_whose_space_was_given_up_waits_for_nobody_there() -> None:
    """Its status names the node until that is written, and victims are ending there; it preempts elsewhere."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await nominated(world, preemption_executor)
        world.queue.update(attrs.evolve(BIG, nominated_node_name="n"), 100.0)
        for name, first in (("a", 0), ("b", 8)):
            world.cluster.put_pod(half(name, first, terminating=True, preempted=True))
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("cheap", on="m", devices=16, ids=range(16), priority=-1))
        world.cluster.remove_pod("uid-a")
        world.cluster.assume(pod("higher", on="n", devices=4, priority=1), CoreMask(0xFF))
        preemption_executor.recheck("n")
        after = await post_filter(world, preemption_executor, popped(world.queue, 100.0))
        assert after.nomination == Nominate("m")


async def test_space_that_is_given_up_before_the_status_names_it() -> None:
    """The status names the node for a moment, after it was given up; the pod waits for nobody there."""
    async with preempting(half("a", 0, terminating=True, preempted=True), half("b", 8, priority=20)) as (
        world,
        executor,
    ):
        queued = world.pending()
        world.cluster.nominate("n", Nomination(BIG))
        world.cluster.put_node(node("n", "trn1.32xlarge", unschedulable=True))
        assert (await post_filter(world, executor, queued)).nomination == CLEAR
        world.queue.update(attrs.evolve(BIG, nominated_node_name="n"), 1.0)
        world.cluster.put_node(node("n", "trn1.32xlarge"))
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("cheap", on="m", devices=16, ids=range(16), priority=-1))
        world.queue.activate(BIG.uid, 100.0)
        assert (await post_filter(world, executor, popped(world.queue, 100.0))).nomination == Nominate("m")


async def test_a_pod_that_waits_for_its_nominated_node_answers_for_no_other() -> None:
    """Its replica has no such node, and may preempt elsewhere."""
    async with preempting(half("a", 0, terminating=True, preempted=True), half("b", 8, priority=20)) as (
        world,
        executor,
    ):
        waits = await post_filter(world, executor, world.pending(attrs.evolve(BIG, nominated_node_name="n")))
        other = await post_filter(world, executor, world.pending(attrs.evolve(BIG, uid="other", name="other")))
        assert (waits.alone, other.alone) == (True, False)


async def test_a_new_leader_goes_on_with_the_evictions_once_the_first_victims_have_ended() -> None:
    """The old one has died between two deletions; meanwhile nobody else leaves, and its pod is woken in time."""
    async with preempting(half("a", 0, terminating=True, preempted=True), half("b", 8)) as (world, preemption_executor):
        world.may_answer.set()
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("cheap", on="m", devices=16, ids=range(16), priority=-1))
        queued = world.pending(attrs.evolve(BIG, nominated_node_name="n"))
        preemption_executor.adopt(queued, PROFILE)
        after = await post_filter(world, preemption_executor, queued)
        assert after.text.endswith("a terminating pod on the nominated node.")
        gone = world.cluster.pod_info("uid-a")
        assert gone is not None
        world.cluster.remove_pod("uid-a")
        world.cluster.put_pod(pod("cheap", on="m", devices=16, ids=range(16), priority=5))
        world.queue.note(ClusterEvent.ASSIGNED_POD_GONE, gone.pod, on=NodeChange(world.row("n")))
        again = popped(world.queue, 120.0)
        assert (await post_filter(world, preemption_executor, again)).nomination == Nominate("n")
        await anyio.wait_all_tasks_blocked()
        assert world.asked == ["b"]


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
