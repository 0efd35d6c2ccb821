"""What preemption changes in the cluster and the queue, and what it reports."""

import asyncio
from collections.abc import Generator, Mapping
from typing import Any
from unittest import mock

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.cluster.tables.budgets import Budgets, NamespaceBudgets
from neuron_scheduler.controllers import preemption_executor as executor_module
from neuron_scheduler.controllers.preemption_executor import LASTING, SHARE, WORKERS, PostFilter, PreemptionExecutor
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate
from neuron_scheduler.model.pod import HostPort
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.resources import CPU
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.trial import ChangedError
from neuron_scheduler.scheduling.groups.gang import gang_of
from neuron_scheduler.scheduling.groups.preemption import search_for_group
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.steps import Pause, run
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from tests.support.builders import node, pod
from tests.support.patience import PATIENCE
from tests.support.preempting import BIG, PROFILE, Requests, World, crowd, half, post_filter, preempting
from tests.support.queueing import FIT, counts, popped


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


async def test_a_pod_that_no_eviction_helps_keeps_its_turn() -> None:
    """Nobody is evicted for it anyway; another nomination is dropped then."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        for awaited in (True, False):
            pending = world.pending(pod("least", devices=16, priority=-1))
            world.cluster.nominate("n", Nomination(pending.pod, awaited=awaited))
            await post_filter(world, preemption_executor, pending)
            assert (world.cluster.nomination("uid-least") is not None) is awaited
            world.queue.remove("uid-least")


async def test_another_nomination_wakes_pods_that_wait_for_the_first_one() -> None:
    """When a pod is nominated elsewhere, its first space is free for others."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("c", on="m", devices=16, ids=range(16), priority=9))
        world.cluster.nominate("m", Nomination(BIG))
        other = world.pending(pod("other", cpu=1))
        world.queue.put_back_refused(other, FIT, 0.0)
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
            world.queue.note(ClusterEvent.ASSIGNED_POD_GONE, gone.pod, on=world.row(node_name))
            assert (world.queue.pop(100.0) is not None) is woken


async def test_a_pod_that_grows_during_the_search_preempts_nobody_in_vain() -> None:
    """What it asks for now counts: the search is repeated after the backoff."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        queued = world.pending()

        def grow(*_: object) -> NamespaceBudgets:
            world.queue.add(attrs.evolve(BIG, requests={**BIG.requests, CPU: 10**9}), 0.0)
            return NamespaceBudgets()

        with mock.patch.object(Budgets, "of", grow):
            assert await post_filter(world, preemption_executor, queued) == PostFilter()
        await anyio.wait_all_tasks_blocked()
        assert world.asked == []
        assert world.cluster.nomination("uid-big") is None


async def test_a_pod_whose_space_was_given_up_waits_for_nobody_there() -> None:
    """Its status names the node until that is written, and victims are ending there; it preempts elsewhere."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await nominated(world, preemption_executor)
        world.queue.add(attrs.evolve(BIG, nominated_node_name="n"), 100.0)
        for name, first in (("a", 0), ("b", 8)):
            world.cluster.put_pod(half(name, first, terminating=True, preempted=True))
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("cheap", on="m", devices=16, ids=range(16), priority=-1))
        world.cluster.remove_pod("uid-a")
        world.cluster.assume(pod("higher", on="n", devices=4, priority=1), CoreMask(0xFF))
        preemption_executor.recheck("n")
        after = await post_filter(world, preemption_executor, popped(world.queue, 100.0))
        assert after.nomination == Nominate("m")


async def test_a_pod_that_waits_for_its_nominated_node_answers_for_no_other() -> None:
    """Its replica has no such node, and may preempt elsewhere."""
    async with preempting(half("a", 0, terminating=True, preempted=True), half("b", 8, priority=20)) as (
        world,
        executor,
    ):
        waits = await post_filter(world, executor, world.pending(attrs.evolve(BIG, nominated_node_name="n")))
        other = await post_filter(world, executor, world.pending(attrs.evolve(BIG, uid="other", name="other")))
        assert (waits.alone, other.alone) == (True, False)


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


GONE = ApiError(404, reason="NotFound", kind="pods", name="a", is_status=True)


async def test_the_pod_is_held_until_all_were_asked() -> None:
    """The node is nominated at once; the pod is tried again when the victims are gone, not before all are evicted."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        after = await post_filter(world, preemption_executor, world.pending())
        assert after == PostFilter(nomination=Nominate("n"), held=True)
        assert world.cluster.nomination("uid-big") is not None
        await anyio.wait_all_tasks_blocked()
        world.cluster.remove_pod("uid-a")
        world.queue.note(ClusterEvent.ASSIGNED_POD_GONE)
        assert world.queue.pop(100.0) is None
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert sorted(world.asked) == ["a", "b"]
        assert sorted(world.reports) == [("a", "big on n"), ("b", "big on n")]
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


async def test_nobody_is_deleted_whose_space_was_given_up_while_the_reason_was_written() -> None:
    """Each victim is looked at between its two requests; the reason stays, and Kubernetes takes it back."""
    client = Requests(lambda request: world.cordon(preemption_executor) if request == "PATCH a" else None)
    async with preempting(half("a", 0), half("b", 8), client=client) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        preemption_executor.stop()
    assert set(client.sent) <= {"PATCH a", "PATCH b"}
    assert world.reports == [("big", "nomination lost")]
    assert world.victims == (0, 0)
    assert popped(world.queue, 100.0).pod.name == "big"


@pytest.mark.parametrize("terminating", [False, True])
async def test_a_deletion_in_doubt_is_not_repeated_for_space_that_was_given_up(terminating: bool) -> None:
    """If it has succeeded all the same, the watch shows it, and the owner is told why."""

    def meanwhile(request: str) -> None:
        if request == "DELETE a":
            world.cordon(preemption_executor)
            if terminating:
                world.cluster.put_pod(half("a", 0, terminating=True, preempted=True))
            raise UnreachableError("the answer was lost")

    client = Requests(meanwhile)
    async with preempting(half("a", 0), half("b", 8), client=client) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        world.now += 5.0
        preemption_executor.stop()
    assert client.sent.count("DELETE a") == 1
    told = [name for name, text in world.reports if text == "big on n"]
    assert ("a" in told) is terminating
    assert world.victims[1] == len(told)


async def test_no_other_victim_leaves_if_one_cannot_be_evicted() -> None:
    """A webhook protects it: the space never comes free, and the others would have ended for nothing."""
    async with preempting(*crowd("default")) as (world, preemption_executor):
        world.pausing, world.refusing = {"v1"}, {"v0"}
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        asked = list(world.asked)
        assert len(asked) == SHARE + 1
        world.now += 5.0
        world.may_answer.set()
        preemption_executor.stop()
    told = sorted(name for name, text in world.reports if text == "big on n")
    assert "v0" in asked
    assert world.asked == asked
    assert told == sorted(set(asked) - {"v0", "v1"})
    assert world.victims == (1, len(told))
    assert world.queue.pop(105.9) is None
    assert popped(world.queue, 106.0).pod.name == "big"


async def test_a_pod_that_the_api_server_refuses_to_delete_is_no_victim_for_a_while() -> None:
    """Another one leaves in its place; if there is none, the message says so, and nothing is kept for the pod."""
    whole = pod("a", on="n", devices=16, ids=range(16))
    async with preempting(whole) as (world, preemption_executor):
        world.refusing = {"a"}
        world.may_answer.set()
        pending, told = world.pending(), "The API server lately refused to delete 1 pod of lower priority."
        await post_filter(world, preemption_executor, pending)
        await anyio.wait_all_tasks_blocked()
        world.cluster.put_pod(attrs.evolve(whole, labels={"seen": "again"}))
        after = await post_filter(world, preemption_executor, popped(world.queue, 106.0))
        assert (after.text.endswith(told), after.nomination) == (True, CLEAR)
        assert not world.cluster.has_nominations
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("dearer", on="m", devices=16, ids=range(16), priority=8))
        assert (await post_filter(world, preemption_executor, pending)).nomination == Nominate("m")
        await anyio.wait_all_tasks_blocked()
        assert world.asked == ["a", "dearer"]
        world.cluster.remove_node("m")
        preemption_executor.handle_lost_nomination(BIG)
        world.now += LASTING
        assert (await post_filter(world, preemption_executor, pending)).nomination == Nominate("n")


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_pod_that_was_refused_is_asked_alone_when_its_time_is_over(refuses: bool) -> None:
    """The others leave once it does; they do not leave in vain every five minutes."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.refusing = {"b"}
        world.may_answer.set()
        pending = world.pending()
        await post_filter(world, preemption_executor, pending)
        await anyio.wait_all_tasks_blocked()
        world.now += LASTING
        world.refusing = {"b"} if refuses else set()
        world.asked.clear()
        await post_filter(world, preemption_executor, pending)
        while pending.is_preempting:
            await anyio.lowlevel.checkpoint()
        assert world.asked == (["b"] if refuses else ["b", "a"])


async def test_a_group_keeps_no_place_where_a_victim_was_not_deleted() -> None:
    """A pod that the API server refuses to delete counts for a group as it does for a single pod."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        pair = Pair.beside(world)
        world.refusing = {"c"}
        world.may_answer.set()
        await pair.preempt(preemption_executor)
        await anyio.wait_all_tasks_blocked()
        text = (
            "preemption: without all pods of lower priority, 1 of 2 missing members would have room."
            " The API server lately refused to delete 1 pod of lower priority."
        )
        assert {each.text for each in (await pair.preempt(preemption_executor)).values()} == {text}


async def test_a_group_stays_whole_of_which_one_member_cannot_be_deleted() -> None:
    """Its other members are no victims, either."""
    async with preempting(half("b", 8)) as (world, preemption_executor):
        see_job(world)
        world.refusing = {"c"}
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        after = await post_filter(world, preemption_executor, popped(world.queue, 106.0))
        assert (after.nomination, after.held) == (CLEAR, False)


@pytest.mark.parametrize("where", ["pending", "elsewhere", "terminating", "gone"])
async def test_a_pod_that_has_left_the_node_by_itself_is_not_deleted(where: str) -> None:
    """Its Binding has failed, so that it waits or is decided for another node; or it ends, and nobody preempts it."""
    async with preempting(half("b", 8)) as (world, preemption_executor):
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1, unschedulable=True))
        world.cluster.assume(half("a", 0), CoreMask(0xFFFF))
        await post_filter(world, preemption_executor, world.pending())
        if where == "terminating":
            world.cluster.put_pod(half("a", 0, terminating=True))
        else:
            world.cluster.forget("uid-a")
        if where == "elsewhere":
            world.cluster.assume(attrs.evolve(half("a", 0), node_name="m"), CoreMask(0xFFFF))
        world.may_answer.set()
        preemption_executor.stop()
    assert world.asked == ["b"]
    assert world.reports == [("b", "big on n")]
    assert world.victims == (1, 1)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        pytest.param({"PATCH a": [GONE]}, ["b"], id="before the reason"),
        pytest.param({"DELETE a": [GONE]}, ["b"], id="before the deletion"),
        pytest.param({"DELETE a": [UnreachableError("lost"), GONE]}, ["a", "b"], id="perhaps by our own deletion"),
    ],
)
async def test_a_victim_that_had_gone_by_itself_is_not_reported(
    answers: dict[str, list[Exception]], told: list[str]
) -> None:
    """kube-scheduler sends no Event either; a repeated deletion that finds nothing had an effect the first time."""

    def meanwhile(request: str) -> None:
        if answers.get(request):
            raise answers[request].pop(0)

    answers = {request: list(errors) for request, errors in answers.items()}
    client = Requests(meanwhile)
    async with preempting(half("a", 0), half("b", 8), client=client) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        world.now += 5.0
        preemption_executor.stop()
    assert sorted(world.reports) == [(name, "big on n") for name in told]
    assert world.victims == (1, len(told))


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
        world.queue.add(attrs.evolve(BIG, nominated_node_name="n"), 1.0)
        world.cluster.put_node(node("n", "trn1.32xlarge"))
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("cheap", on="m", devices=16, ids=range(16), priority=-1))
        world.queue.activate(BIG.uid, 100.0)
        assert (await post_filter(world, executor, popped(world.queue, 100.0))).nomination == Nominate("m")


async def test_nobody_is_evicted_for_a_pod_that_ends_before_its_victims_are_asked() -> None:
    """Also not a victim that waits to be bound."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.waiting.add("uid-a")
        await post_filter(world, preemption_executor, world.pending())
        world.cluster.clear_nomination("uid-big")
        world.queue.remove("uid-big")
        await anyio.wait_all_tasks_blocked()
        assert (world.asked, world.reports) == ([], [])


async def test_nobody_is_evicted_who_is_no_victim_of_the_new_nomination() -> None:
    """The pod came back, and its nomination was made again for space that others have left."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        world.cluster.nominate("n", Nomination(BIG, victims=frozenset({"uid-b"})))
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert world.asked == ["b"]


async def test_a_victim_that_waits_to_be_bound_is_not_deleted() -> None:
    """It goes back to the queue and counts as evicted; victims on the node are deleted as usual."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.waiting.add("uid-a")
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert world.asked == ["b"]
        assert sorted(world.reports) == [("a", "big on n"), ("b", "big on n")]


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
        assert len(world.asked) == len(world.reports) == 32
        assert world.queue.pop(99.0) is None
    async with preempting(*crowd("default", "other")) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert len(world.asked) == WORKERS


async def test_an_error_of_one_eviction_is_that_victims() -> None:
    """It counts as not evicted, and the pod that needs its place is tried again after a backoff."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.broken.add("a")
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert world.reports == [("b", "big on n")]
        assert world.queue.pop(100.9) is None
        assert popped(world.queue, 101.0).pod.name == "big"


JOB = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "job"), least=2)


def see_job(world: World, *, a: dict[str, Any] | None = None) -> None:
    """Let a pod on the first node, and one on another, be members of a group that needs both."""
    world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
    world.cluster.put_pod(pod("keeps", on="m", devices=8, ids=range(8), priority=9))
    members = half("a", 0, group=JOB, **(a or {})), pod("c", on="m", devices=8, ids=range(8, 16), group=JOB)
    for member in members:
        world.cluster.put_pod(member)
        world.cluster.groups.put(member)


async def test_a_group_that_cannot_run_with_fewer_leaves_as_a_whole() -> None:
    """Its member on another node is told the same; it leaves also after a restart in the middle."""
    async with preempting(half("b", 8)) as (world, preemption_executor):
        see_job(world)
        world.may_answer.set()
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        assert sorted(world.asked) == ["a", "b", "c"]
        assert ("c", "big on n") in world.reports
    async with preempting() as (world, preemption_executor):
        see_job(world, a={"terminating": True, "preempted": True})
        world.may_answer.set()
        preemption_executor.adopt(world.pending(attrs.evolve(BIG, nominated_node_name="n")), PROFILE)
        await anyio.wait_all_tasks_blocked()
        assert world.asked == ["c"]


async def lose_members(world: World, executor: PreemptionExecutor, least: int) -> tuple[QueuedPod, QueuedPod]:
    """Let two pods preempt members of a group of three that have a machine each; return them."""
    group = attrs.evolve(JOB, least=least)
    for number, name in enumerate(("n", "m", "o")):
        world.cluster.put_node(node(name, "trn1.32xlarge", created=number))
        member = pod(f"a{number}", on=name, devices=16, ids=range(16), group=group)
        world.cluster.put_pod(member)
        world.cluster.groups.put(member)
    first, second = world.pending(), world.pending(attrs.evolve(BIG, uid="uid-second", name="second"))
    for preemptor in (first, second):
        await post_filter(world, executor, preemptor)
        await anyio.wait_all_tasks_blocked()
    return first, second


async def asked_again(world: World, times: int) -> None:
    """Wait until evictions have been asked for so many times."""
    with anyio.fail_after(PATIENCE):
        while len(world.asked) < times:  # noqa: ASYNC110 - a list has no event
            await anyio.sleep(0.01)


async def test_a_group_that_loses_members_to_several_pods_leaves_as_a_whole() -> None:
    """A member whose end has been asked for counts as gone before the watch shows it."""
    async with preempting() as (world, preemption_executor):
        await lose_members(world, preemption_executor, least=2)
        assert len(world.asked) > 2
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert {*world.asked} == {"a0", "a1", "a2"}


async def test_only_the_first_pod_waits_for_the_rest_of_a_group() -> None:
    """The second asks its own victim alone; if the first has gone before any member has, it evicts the rest."""
    async with preempting() as (world, preemption_executor):
        world.pausing, world.pause = {"a0", "a1", "a2"}, 0.01
        first, _ = await lose_members(world, preemption_executor, least=3)
        assert sorted(world.asked) == ["a0", "a1", "a1", "a2"]
        world.cluster.clear_nomination(first.pod.uid)
        world.now += 5.0
        await asked_again(world, 7)
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert {name for name, text in world.reports if text == "second on m"} == {"a0", "a1", "a2"}


async def test_the_rest_of_a_group_of_which_a_member_has_left_goes_whoever_needs_it() -> None:
    """Its members could not run."""
    async with preempting() as (world, preemption_executor):
        world.pausing, world.pause = {"a1", "a2"}, 0.01
        world.may_answer.set()
        first, _ = await lose_members(world, preemption_executor, least=3)
        assert "a2" not in dict(world.reports)
        world.cluster.clear_nomination(first.pod.uid)
        world.now += 5.0
        await asked_again(world, 5)
        await anyio.wait_all_tasks_blocked()
        assert {name for name, _ in world.reports} == {"a0", "a1", "a2"}


async def test_the_rest_of_a_group_is_asked_again_if_that_has_failed() -> None:
    """A moment of trouble does not leave it half gone, although the pod that needs its space has it by then."""
    async with preempting() as (world, preemption_executor):
        world.broken = {"a2"}
        world.may_answer.set()
        first, _ = await lose_members(world, preemption_executor, least=3)
        assert "a2" not in dict(world.reports)
        world.cluster.clear_nomination(first.pod.uid)
        world.broken = set()
        with anyio.fail_after(PATIENCE):
            while "a2" not in dict(world.reports):  # noqa: ASYNC110 - a list has no event
                await anyio.sleep(0.01)


async def test_members_that_wait_while_the_others_leave_are_held() -> None:
    """One more would be bound beside members that are about to go."""
    async with preempting() as (world, preemption_executor):
        await lose_members(world, preemption_executor, least=3)
        late = pod("a3", devices=16, group=attrs.evolve(JOB, least=3))
        world.cluster.groups.put(late)
        world.queue.add(late, 0.0)
        assert world.queue.groups.is_held(JOB.key)
        for number in range(3):
            world.cluster.remove_pod(f"uid-a{number}")
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        assert not world.queue.groups.is_held(JOB.key)


async def test_what_the_last_leader_has_nominated_is_kept_before_any_pod_is_tried() -> None:
    """Those that rank higher come first."""
    async with preempting() as (world, preemption_executor):
        for name, priority in (("lower", 5), ("higher", 6)):
            pending = attrs.evolve(BIG, uid=f"uid-{name}", name=name, priority=priority, nominated_node_name="n")
            world.queue.add(pending, 0.0)
        await preemption_executor.adopt_all({BIG.scheduler_name: PROFILE})
        assert [kept.pod.name for kept in world.row("n").nominations] == ["higher"]


async def test_a_group_that_the_last_leader_left_half_gone_leaves_whole() -> None:
    """Whoever needed the space: its nomination may not have been written, and it may be gone."""
    async with preempting() as (world, preemption_executor):
        see_job(world, a={"terminating": True, "preempted": True})
        world.may_answer.set()
        await preemption_executor.adopt_all({BIG.scheduler_name: PROFILE})
        await asked_again(world, 1)
        assert world.asked == ["c"]


async def test_no_victim_of_a_group_leaves_once_one_member_has_lost_its_place() -> None:
    """Each of the two members was to get a node; the victims that were not asked yet stay."""
    async with preempting(*crowd("default")) as (world, preemption_executor):
        after = await Pair.beside(world).preempt(preemption_executor)
        assert {each.held for each in after.values()} == {True}
        assert [len(world.row(name).nominations) for name in ("n", "m")] == [1, 1]
        await anyio.wait_all_tasks_blocked()
        asked = list(world.asked)
        world.cluster.put_node(node("m", "trn1.32xlarge", unschedulable=True))
        preemption_executor.recheck("m")
        world.may_answer.set()
        preemption_executor.stop()
    assert len(asked) < 33
    assert world.asked == asked


@attrs.define
class Pair:
    """Two members of a group that need a machine each, in flight."""

    world: World
    members: list[QueuedPod]

    @classmethod
    def beside(cls, world: World) -> "Pair":
        """Add a full machine to the first one, and pop the members."""
        world.cluster.put_node(node("m", "trn1.32xlarge", created=1))
        world.cluster.put_pod(pod("c", on="m", devices=16, ids=range(16)))
        pair = cls(world, [world.pending(attrs.evolve(BIG, uid=f"uid-{name}", name=name)) for name in ("x", "y")])
        for member in pair.members:
            member.pod = attrs.evolve(member.pod, group=JOB)
            world.cluster.groups.put(member.pod)
            world.queue.groups.join(member, JOB.key, 0.0)
        return pair

    async def preempt(
        self, preemption_executor: PreemptionExecutor, pause: Pause = anyio.lowlevel.checkpoint
    ) -> Mapping[str, PostFilter]:
        """Search for room."""
        gang = gang_of(self.world.cluster, [member.pod for member in self.members])
        return await preemption_executor.post_filter_group(self.members, gang, PROFILE, pause)


async def test_a_victim_that_was_spared_keeps_no_space() -> None:
    """One member's node is cordoned before all victims are asked: the other's victim stays, its place is lost, too."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        world.pausing, world.pause = {"a", "b", "c"}, 0.01
        await Pair.beside(world).preempt(preemption_executor)
        await anyio.wait_all_tasks_blocked()
        world.cluster.put_node(node("m", "trn1.32xlarge", unschedulable=True))
        preemption_executor.recheck("m")
        world.now += 5.0
        with anyio.fail_after(PATIENCE):
            while world.cluster.has_nominations:  # noqa: ASYNC110 - a cluster has no event
                await anyio.sleep(0.01)
    assert len(world.asked) == 3


async def test_a_victim_counts_in_its_budget_at_once() -> None:
    """The disruption controller needs a while: the next search spares the other pods of the application."""
    protected = [half(name, 8 * number, labels={"app": "a"}) for number, name in enumerate("ab")]
    async with preempting(*protected) as (world, preemption_executor):
        selector = LabelSelector((Requirement("app", Operator.IN, ("a",)),))
        world.cluster.budgets.put(DisruptionBudget("u", "default", "one", selector, allowed=2))
        await post_filter(world, preemption_executor, world.pending())
        (budget,) = world.cluster.budgets.of("default").by_key.values()
        assert (budget.allowed, {*budget.disrupted}) == (0, {"a", "b"})
        world.cluster.budgets.take_back(protected[0])  # it was refused, or is not needed
        (budget,) = world.cluster.budgets.of("default").by_key.values()
        assert (budget.allowed, {*budget.disrupted}) == (1, {"b"})
        world.cluster.budgets.put(attrs.evolve(budget, allowed=5))
        world.cluster.budgets.take_back(protected[1])
        assert world.cluster.budgets.of("default").by_key["default/one"].allowed == 5


async def test_members_that_fit_without_any_victim_are_tried_there() -> None:
    """And nowhere else, or their own nominations would keep the others off; if that is in vain, it is said."""
    async with preempting() as (world, preemption_executor):
        pair = Pair.beside(world)
        world.cluster.put_node(node("o", "trn1.32xlarge", created=2))
        world.cluster.nominate("n", Nomination(pair.members[0].pod, CoreMask((1 << 32) - 1)))
        with pytest.raises(ChangedError):
            await pair.preempt(preemption_executor)
        kept = [world.cluster.nomination(member.pod.uid) for member in pair.members]
        assert {each and each[0] for each in kept} == {"n", "o"}
        assert await pair.preempt(preemption_executor) == {}
        assert not world.cluster.has_nominations


@pytest.mark.parametrize("fails", [False, True])
async def test_evictions_that_end_before_the_members_are_put_back(fails: bool) -> None:
    """They wait for nothing then: what helps them wakes them, and a failure sends them into their backoff."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        pair = Pair.beside(world)
        world.refusing = {"a", "b", "c"} if fails else set()
        after = await pair.preempt(preemption_executor)
        assert [member.is_preempting for member in pair.members] == [True, True]
        world.may_answer.set()
        await anyio.wait_all_tasks_blocked()
        for member in pair.members:
            held = after[member.pod.uid].held and member.is_preempting
            world.queue.put_back_refused(member, FIT, 0.0, is_preempting=held, has_nomination=True)
        assert [member.is_preempting for member in pair.members] == [False, False]
        if not fails:
            world.queue.note(ClusterEvent.ASSIGNED_POD_GONE)
        assert world.queue.pop(200.0) in pair.members


async def test_a_group_that_becomes_held_during_the_search_evicts_nobody() -> None:
    """A member has gone meanwhile: no space is kept for the others, either."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        pair = Pair.beside(world)
        with mock.patch.object(type(world.queue.groups), "is_held", return_value=True), pytest.raises(ChangedError):
            await pair.preempt(preemption_executor)
        assert not world.cluster.has_nominations
        assert world.asked == []


async def test_a_group_evicts_nobody_for_a_place_that_is_nominated_meanwhile() -> None:
    """A pod of kube-scheduler, say, has the place of one member; the victims of the others would leave in vain."""
    async with preempting(half("a", 0), half("b", 8)) as (world, preemption_executor):
        pair = Pair.beside(world)
        other = Nomination(attrs.evolve(BIG, uid="uid-s", name="s"), CoreMask((1 << 32) - 1), frozenset({"uid-c"}))

        def search(*asked: Any) -> Generator[None, None, object]:
            found = yield from search_for_group(*asked)
            world.cluster.nominate("m", other)
            return found

        with mock.patch.object(executor_module, "search_for_group", search):
            after = await pair.preempt(preemption_executor)
    assert {each.nomination for each in after.values()} == {KEEP}
    assert world.asked == []


async def test_nobody_takes_what_a_second_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its pauses single pods would take one place after the other, and thousands of members search for ever."""
    monkeypatch.setattr("neuron_scheduler.steps.LONGEST_TURN", -1.0)
    free, more = list[str](), iter("opq")
    async with preempting() as (world, preemption_executor):
        pair = Pair.beside(world)

        def search(*asked: Any) -> Generator[None, None, object]:
            found: Any = yield from search_for_group(*asked)
            free[:] = [name for name, nomination in found.places.values() if not nomination.victims]
            yield
            return found

        async def pause() -> None:
            if free:
                world.cluster.put_node(node(free.pop(), "trn1.32xlarge", unschedulable=True))
                world.cluster.put_node(node(next(more), "trn1.32xlarge", created=2))

        with mock.patch.object(executor_module, "search_for_group", search):
            after = await pair.preempt(preemption_executor, pause)
    assert {each.nomination for each in after.values()} == {Nominate("m"), Nominate("o")}


async def test_a_member_without_a_place_gives_up_the_node_that_is_kept_for_it() -> None:
    """Another member has its place there now; else the group would lose it to itself at each search."""
    async with preempting() as (world, preemption_executor):
        pair = Pair.beside(world)
        left = world.pending(attrs.evolve(BIG, uid="uid-z", name="z"))
        left.pod = attrs.evolve(left.pod, group=JOB)
        world.cluster.groups.put(left.pod)
        world.queue.groups.join(left, JOB.key, 0.0)
        pair.members.append(left)

        def search(*asked: Any) -> Generator[None, None, object]:
            found = yield from search_for_group(*asked)
            world.cluster.nominate("n", Nomination(left.pod, CoreMask((1 << 32) - 1)))
            return found

        with mock.patch.object(executor_module, "search_for_group", search):
            after = await pair.preempt(preemption_executor)
    assert {each.nomination for each in after.values()} == {Nominate("n"), Nominate("m")}


async def test_a_pod_that_goes_while_others_are_adopted_keeps_no_space() -> None:
    """There are pauses: the last leader may have nominated thousands of members, and each kind needs indexes."""
    async with preempting() as (world, preemption_executor):
        world.cluster.put_node(node("m", "trn1.32xlarge"))
        waiting = [
            world.pending(attrs.evolve(BIG, uid=f"uid-{name}", name=name, nominated_node_name=name)) for name in "nm"
        ]
        steps = preemption_executor.adopt_each(waiting, {BIG.scheduler_name: PROFILE})
        pauses = 0
        while not world.cluster.has_nominations:
            next(steps)
            pauses += 1
        assert pauses > 5, "its indexes are built in steps"
        world.queue.remove("uid-m")
        run(steps)
        assert world.cluster.nominees_among({"uid-n", "uid-m"}) == {"uid-n"}
