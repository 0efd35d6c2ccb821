"""What becomes of a Binding that waits, and of the calls that wait for it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from neuron_scheduler.kube.writes.binder import Bound, Refused
from neuron_scheduler.model.selectors import Effect, Taint
from tests.controllers.test_binding_cycle import IN_DOUBT, until
from tests.support.builders import pod
from tests.support.extender_road import Answer, Road, assert_nothing_is_held, call, serving, torus, turns


async def at_the_fence(road: Road) -> None:
    """Bind a pod of four devices that does not start, so that the next one waits."""
    road.foreign("first", devices=4)
    assert await road.verb.bind(call("first")) == ""
    road.confirm("first")


@asynccontextmanager
async def waiting(road: Road, **fields: Any) -> AsyncIterator[Answer]:
    """Let a call for the pod `p` of four devices wait at the fence; at the end of the block it is answered."""
    await at_the_fence(road)
    road.foreign("p", devices=4, **fields)
    answer = Answer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer.of, road, "p")
        await until(lambda: road.scheduler.binding_cycle.fence.waiting_count == 1)
        yield answer


async def test_a_call_waits_at_the_fence() -> None:
    """Until the kubelet has admitted the pod before it."""
    async with serving() as road:
        async with waiting(road) as answer:
            assert answer.text is None
            road.change("first", admitted=True)
        assert answer.text == ""
        assert road.held() == 16


async def test_a_resource_that_kube_scheduler_gets_elsewhere_is_no_obstacle() -> None:
    """A DRA driver may provide it, or kube-scheduler is told to ignore it; also after a wait at the fence."""
    async with serving() as road:
        async with waiting(road, requests={"example.com/claimed": 1}) as answer:
            road.change("first", admitted=True)
        assert answer.text == ""


async def test_a_call_does_not_wait_at_the_fence_for_ever() -> None:
    """kube-scheduler is told to try again before its own timeout, and nothing is held."""
    async with serving() as road:
        await at_the_fence(road)
        road.foreign("p", devices=4)
        road.verb.longest_call = 0.01
        assert "have not started yet; try again later" in await road.verb.bind(call("p"))
        assert (road.held(), len(road.verb.calls), road.scheduler.binding_cycle.fence.waiting_count) == (8, 0, 0)
        road.change("first", admitted=True)
        assert await road.verb.bind(call("p")) == ""


async def test_a_binding_without_an_outcome_is_not_waited_for_for_ever() -> None:
    """It keeps its place and is sent again; a later call for the node gets the outcome."""
    async with serving(outcomes={"p": IN_DOUBT}) as road:
        road.foreign("p", devices=4)
        road.verb.longest_call = 0.01
        assert "has no outcome yet; it is sent again until it has" in await road.verb.bind(call("p"))
        assert (road.held(), len(road.verb.calls)) == (8, 1)
        road.verb.longest_call = 60.0
        road.outcomes["p"] = Bound()
        assert await road.verb.bind(call("p")) == ""
        assert len(road.verb.calls) == 0


async def test_a_client_that_hangs_up_at_the_fence_takes_its_binding_along() -> None:
    """kube-scheduler will call again; until then nothing is held for the pod."""
    async with serving() as road:
        async with waiting(road) as answer:
            answer.scope.cancel()
        assert (road.held(), len(road.verb.calls), road.scheduler.binding_cycle.fence.waiting_count) == (8, 0, 0)
        road.change("first", admitted=True)
        await turns()
        assert road.tried == ["first"]


async def test_a_client_that_hangs_up_leaves_the_binding_to_another_caller() -> None:
    """The second call, after a timeout, still gets the pod bound."""
    async with serving() as road:
        await at_the_fence(road)
        road.foreign("p", devices=4)
        first, second = Answer(), Answer()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.of, road, "p")
            tasks.start_soon(second.of, road, "p")
            await until(lambda: road.scheduler.binding_cycle.fence.waiting_count == 1)
            await turns()
            first.scope.cancel()
            await turns()
            road.change("first", admitted=True)
        assert (first.text, second.text) == (None, "")


async def test_a_client_that_hangs_up_after_the_binding_was_sent_loses_nothing() -> None:
    """The pod keeps its place until the outcome is known, and its place is free again if it is refused."""
    async with serving(outcomes={"p": IN_DOUBT}) as road:
        road.foreign("p", devices=4)
        answer = Answer()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer.of, road, "p")
            await until(lambda: road.count("p") > 1)
            assert not road.verb.is_abandoned("uid-p")
            answer.scope.cancel()
        assert (road.held(), len(road.verb.calls)) == (8, 1)
        assert road.verb.is_abandoned("uid-p")
        road.outcomes["p"] = Refused(403, "no")
        await until(lambda: len(road.verb.calls) == 0)
        assert not road.verb.is_abandoned("uid-p")
        assert_nothing_is_held(road)


CHANGES: dict[str, Callable[[Road], object]] = {
    "the pod is gone": lambda road: road.lose("p"),
    "the pod begins to terminate": lambda road: road.change("p", terminating=True),
    "the node is gone": lambda road: road.nodes.on_deleted(torus("n")),
    "the node is being drained": lambda road: road.nodes.on_updated(
        torus("n"), torus("n", taints=(Taint("t", Effect.NO_EXECUTE),))
    ),
    "another process gives its cores away": lambda road: road.see(
        pod("thief", devices=4, ids=(4, 5, 6, 7), on="n", admitted=True)
    ),
    "the pod was resized": lambda road: road.change("p", requests={"cpu": 5}),
    "the process stops": lambda road: road.scheduler.stop(),
}


@pytest.mark.parametrize("case", CHANGES)
async def test_what_happens_at_the_fence_is_an_error_for_the_caller(case: str) -> None:
    """The Binding is not sent, and the pod holds nothing any more."""
    async with serving() as road:
        async with waiting(road) as answer:
            CHANGES[case](road)
            await turns()
            road.change("first", admitted=True)
        assert answer.text
        assert road.tried == ["first"]
        assert road.cluster.node_of("uid-p") is None
        assert len(road.verb.calls) == 0


async def test_both_roads_share_the_fence() -> None:
    """A pod of our own queue waits for the one that kube-scheduler had bound, and the other way round."""
    async with serving() as road:
        await at_the_fence(road)
        road.add("own", devices=4)
        await turns()
        assert road.scheduler.binding_cycle.fence.waiting_count == 1
        road.change("first", admitted=True)
        await until(lambda: ("own", "n") in road.reports)
        road.foreign("p", devices=4)
        answer = Answer()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer.of, road, "p")
            await turns()
            assert answer.text is None
            answer.scope.cancel()
