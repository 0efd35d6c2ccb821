"""PodScheduled is written when it changes, by the newest message, and not over a Binding."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.kube.backoff import Backoff
from neuron_scheduler.kube.conditions import SCHEDULER_ERROR, UNSCHEDULABLE, ConditionWriter
from neuron_scheduler.model.pod import Pod, PodCondition
from tests.kube.scripted import Answer, Scripted, answer, hang, refuse, reset, scripted

POD = Pod(uid="u1", namespace="d", name="p", observed_generation=4)


@attrs.define(eq=False)
class Clock:
    """Seconds that pass when told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@asynccontextmanager
async def writing(*script: Answer, clock: Clock | None = None) -> AsyncIterator[tuple[Scripted, ConditionWriter]]:
    """Run a writer against the script."""
    async with scripted(*script) as (server, client):
        writer = ConditionWriter(
            client=client, clock=clock or Clock(), wall_clock=lambda: 1_795_248_000.5, random=lambda: 0.0
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            yield server, writer
            tasks.cancel_scope.cancel()


async def settled(server: Scripted, requests: int, writer: ConditionWriter | None = None) -> None:
    """Return when so many requests have been answered and, with a writer, so many patches have succeeded."""
    with anyio.fail_after(5):
        while len(server.seen) < requests or (writer is not None and writer.written < requests):
            await anyio.lowlevel.checkpoint()


async def quiet() -> None:
    """Let everything that could happen happen."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def test_the_patch() -> None:
    """Status, reason, full message, generation; the uid is a precondition."""
    async with writing(answer()) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="0/1 nodes")
        await settled(server, 1, writer)

    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/namespaces/d/pods/p/status")
    assert seen.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert seen.json == {
        "metadata": {"uid": "u1"},
        "status": {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes",
                    "observedGeneration": 4,
                    "lastTransitionTime": "2026-11-21T08:00:00Z",
                }
            ]
        },
    }


async def test_nothing_changed_nothing_written() -> None:
    """What the pod says already, or what was just written, is not written again."""
    told = attrs.evolve(POD, scheduled=PodCondition("False", UNSCHEDULABLE, "same"))
    async with writing(answer()) as (server, writer):
        writer.set(told, reason=UNSCHEDULABLE, message="same")
        writer.set(attrs.evolve(POD, uid="u2"), reason=UNSCHEDULABLE, message="x")
        await settled(server, 1, writer)
        writer.set(attrs.evolve(POD, uid="u2"), reason=UNSCHEDULABLE, message="x")
        await quiet()
        assert len(server.seen) == 1
        assert len(writer) == 0


async def test_the_time_of_transition_stays_when_only_the_reason_changes() -> None:
    """The status was False before, so its time is left to the merge."""
    told = attrs.evolve(POD, scheduled=PodCondition("False", UNSCHEDULABLE, "old"))
    async with writing(answer()) as (server, writer):
        writer.set(told, reason=SCHEDULER_ERROR, message="new")
        await settled(server, 1, writer)

    assert "lastTransitionTime" not in server.seen[0].json["status"]["conditions"][0]


async def test_numbers_change_at_most_every_half_minute() -> None:
    """A changed reason is told at once; changed numbers wait, and then the newest are told."""
    clock = Clock()
    async with writing(answer(), answer(), answer(), clock=clock) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="0/1 nodes: 1 Insufficient cpu")
        await settled(server, 1, writer)
        clock.now += 29
        writer.set(POD, reason=UNSCHEDULABLE, message="0/2 nodes: 2 Insufficient cpu")
        writer.set(POD, reason=UNSCHEDULABLE, message="0/3 nodes: 3 Insufficient cpu")
        await quiet()
        assert len(server.seen) == 1
        clock.now += 1
        writer.set(attrs.evolve(POD, uid="u2"), reason=UNSCHEDULABLE, message="wakes the writers")
        await settled(server, 3, writer)

    told = {seen.json["status"]["conditions"][0]["message"] for seen in server.seen}
    assert {"0/1 nodes: 1 Insufficient cpu", "0/3 nodes: 3 Insufficient cpu", "wakes the writers"} == told


async def test_the_newest_message_wins() -> None:
    """An outdated message is never written after, or instead of, a newer one."""
    released = anyio.Event()

    async def slow(request: object) -> object:
        await released.wait()
        return await answer()(request)  # type: ignore[arg-type]  # whatever the server hands over

    async with writing(slow, answer()) as (server, writer):  # type: ignore[arg-type]  # as above
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1)
        writer.set(POD, reason=SCHEDULER_ERROR, message="two")
        writer.set(POD, reason=SCHEDULER_ERROR, message="three")
        await quiet()
        assert len(server.seen) == 1
        released.set()
        await settled(server, 2, writer)

    assert [seen.json["status"]["conditions"][0]["message"] for seen in server.seen] == ["one", "three"]


async def test_withdrawn_before_a_bind() -> None:
    """Nothing is written about a pod on its way to a node, and what is on its way is waited for."""
    released = anyio.Event()

    async def slow(request: object) -> object:
        await released.wait()
        return await answer()(request)  # type: ignore[arg-type]  # whatever the server hands over

    async with writing(slow) as (server, writer):  # type: ignore[arg-type]  # as above
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1)
        writer.set(POD, reason=UNSCHEDULABLE, message="two, much later")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.withdraw, "u1")
            await quiet()
            released.set()
        await quiet()
        assert len(server.seen) == 1
        assert len(writer) == 0


async def test_forgotten() -> None:
    """A pod that is gone is not written about, also while its write is being tried again."""
    async with writing(*[hang] * 4) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        writer.forget("u1")
        await quiet()
        assert not server.seen


async def test_a_nomination() -> None:
    """The nominated node stands beside the condition; empty clears it."""
    async with writing(answer(), answer()) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="m", nominated="n1")
        await settled(server, 1, writer)
        writer.set(POD, reason=UNSCHEDULABLE, message="m", nominated="")
        await settled(server, 2, writer)

    assert [seen.json["status"]["nominatedNodeName"] for seen in server.seen] == ["n1", None]


async def test_a_nomination_stays_until_it_is_taken_back() -> None:
    """A condition without a word about it leaves the nomination, and taking it back leaves the condition."""
    async with writing(answer(), answer()) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="m", nominated="n1")
        writer.set(POD, reason=UNSCHEDULABLE, message="another")
        await settled(server, 1, writer)
        writer.denominate(POD)
        await settled(server, 2, writer)
    told = [seen.json["status"] for seen in server.seen]
    assert [status["nominatedNodeName"] for status in told] == ["n1", None]
    assert [status["conditions"][0]["message"] for status in told] == ["another", "another"]


async def test_a_nomination_from_before_a_restart_is_taken_back() -> None:
    """What the pod's own status says is enough to know its condition; without one there is nothing to take back."""
    pod = attrs.evolve(POD, nominated_node_name="n1", scheduled=PodCondition("False", UNSCHEDULABLE, "m"))
    async with writing(answer()) as (server, writer):
        writer.denominate(attrs.evolve(POD, uid="u2"))
        writer.denominate(pod)
        await settled(server, 1, writer)
        await quiet()
    (seen,) = server.seen
    assert seen.json["status"]["nominatedNodeName"] is None
    assert seen.json["status"]["conditions"][0]["message"] == "m"


@pytest.mark.parametrize("failure", [reset, refuse(500), refuse(429)], ids=["reset", "500", "429"])
async def test_out_of_reach_is_tried_again(failure: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition that autoscalers wait for is not given up."""
    monkeypatch.setattr(Backoff, "next", lambda _self, **_options: 0.0)
    async with writing(failure, answer()) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 2)
        while not writer.written:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("status", [404, 409, 403])
async def test_a_refusal_is_final(status: int) -> None:
    """The pod is gone, is another, or may not be touched; the next attempt says something new."""
    async with writing(refuse(status), answer()) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1)
        await quiet()
        assert len(server.seen) == 1
        writer.set(POD, reason=UNSCHEDULABLE, message="another")
        await settled(server, 2)
