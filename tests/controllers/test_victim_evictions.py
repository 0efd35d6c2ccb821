"""Which evictions are requested, when they end, and what is reported about them."""

import asyncio

import anyio
import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers.preemption_executor import PostFilter
from neuron_scheduler.controllers.victim_evictions import SHARE, WORKERS
from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.model.nomination import Nominate
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from tests.support.builders import node
from tests.support.preempting import BIG, Requests, crowd, half, post_filter, preempting
from tests.support.queueing import popped

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


@pytest.mark.parametrize("error", [None, ApiError(500, message="etcd is away")])
async def test_a_victim_is_deleted_as_long_as_it_is_needed(error: ApiError | None) -> None:
    """The second look changes nothing otherwise: a deletion that fails is tried again."""
    errors = [error]

    def meanwhile(request: str) -> None:
        if request == "DELETE a" and (problem := errors.pop() if errors else None) is not None:
            raise problem

    client = Requests(meanwhile)
    async with preempting(half("a", 0), half("b", 8), client=client) as (world, preemption_executor):
        await post_filter(world, preemption_executor, world.pending())
        await anyio.wait_all_tasks_blocked()
        world.now += 5.0
        preemption_executor.stop()
    assert client.sent.count("DELETE a") == (1 if error is None else 2)
    assert sorted(world.reports) == [("a", "big on n"), ("b", "big on n")]
    assert world.victims == (1, 2)


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
        world.cluster.remove_pod("uid-v0")  # by itself: it need not be asked again
        preemption_executor.stop()
    again = [f"v{number}" for number in range(1, WORKERS)]
    assert sorted(world.asked) == sorted([*(f"v{number}" for number in range(16)), *again])
    assert len(world.reports) == 15


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
