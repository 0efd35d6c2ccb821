"""PodScheduled is written when it changes, with the newest message, and not after a Binding."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import attrs
import msgspec
import pytest

from neuron_scheduler.kube.writes.condition_writer import (
    REFUSED_PAUSE,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    ConditionWriter,
    WaitingStatus,
    encode_patch,
    status_of,
)
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate, NominationChange
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.clock import Clock
from tests.support.patience import PATIENCE
from tests.support.scripted_server import Answer, Scripted, answer, refuse, reset, scripted

POD = Pod(uid="u1", namespace="d", name="p", observed_generation=4, resource_version="7")


NOMINATED = attrs.evolve(POD, nominated_node_name="n1", scheduled=PodCondition("False", "Unschedulable", "m"))

PATCHED = answer({"kind": "Pod"})
MODIFIED = refuse(409, "Conflict", "the object has been modified", kind="pods", name="p")
TOO_BIG = refuse(500, "", "etcdserver: request is too large")


@asynccontextmanager
async def writing(
    *script: Answer, clock: Clock | None = None, random: float = 0.0, known: Pod | None = None
) -> AsyncIterator[tuple[Scripted, ConditionWriter]]:
    async with scripted(*script) as (server, client):
        writer = ConditionWriter(
            client=client,
            pod_by_key=lambda _key: known,
            on_retry=lambda _write: None,
            clock=clock or Clock(),
            wall_clock=lambda: 1_795_248_000.5,
            random=lambda: random,
            errors=UnexpectedErrors(Metrics().count_unexpected_error),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.run)
            yield server, writer
            tasks.cancel_scope.cancel()


async def settled(server: Scripted, requests: int, writer: ConditionWriter | None = None) -> None:
    """Return when so many requests have been answered and, with a writer, so many patches have succeeded."""
    with anyio.fail_after(PATIENCE):
        while len(server.seen) < requests or (writer is not None and writer.written < requests):
            await anyio.lowlevel.checkpoint()


async def written(writer: ConditionWriter, patches: int) -> None:
    """Return when so many patches have succeeded."""
    with anyio.fail_after(PATIENCE):
        while writer.written < patches:
            await anyio.lowlevel.checkpoint()


async def pause(writer: ConditionWriter, clock: Clock, tries: int) -> float:
    """Return the seconds after so many failed tries, rounded, when they are over."""
    entry = writer.entries["u1"]
    with anyio.fail_after(PATIENCE):
        while entry.tries < tries or entry.due is None:
            await anyio.lowlevel.checkpoint()
    seconds, clock.now = round(entry.due - clock.now, 3), entry.due
    writer._queue._wake_all()
    return seconds


async def pauses(*failures: Answer, random: float = 0.0) -> list[float]:
    """Return the seconds between the tries of a condition that is written after these failures."""
    clock = Clock()
    async with writing(*failures, PATCHED, clock=clock, random=random) as (_, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        waits = [await pause(writer, clock, tries) for tries in range(1, len(failures) + 1)]
        await written(writer, 1)
    return waits


async def quiet() -> None:
    for _ in range(20):
        await anyio.lowlevel.checkpoint()


async def test_the_patch() -> None:
    """Status, reason, full message, generation; the uid is a precondition."""
    async with writing(PATCHED) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="0/1 nodes")
        await settled(server, 1, writer)

    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/namespaces/d/pods/p/status")
    assert seen.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert seen.json == {
        "metadata": {"uid": "u1", "resourceVersion": "7"},
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
    """What is in the pod's status, or was just written, is not written again."""
    waiting = attrs.evolve(POD, scheduled=PodCondition("False", UNSCHEDULABLE, "same"))
    async with writing(PATCHED) as (server, writer):
        writer.set(waiting, reason=UNSCHEDULABLE, message="same")
        writer.set(attrs.evolve(POD, uid="u2"), reason=UNSCHEDULABLE, message="x")
        await settled(server, 1, writer)
        writer.set(attrs.evolve(POD, uid="u2"), reason=UNSCHEDULABLE, message="x")
        await quiet()
        assert len(server.seen) == 1
        assert len(writer) == 0


async def test_the_time_of_transition_stays_when_only_the_reason_changes() -> None:
    """The status was False before, so the patch leaves its time out."""
    waiting = attrs.evolve(POD, scheduled=PodCondition("False", UNSCHEDULABLE, "old"))
    async with writing(PATCHED) as (server, writer):
        writer.set(waiting, reason=SCHEDULER_ERROR, message="new")
        await settled(server, 1, writer)

    assert "lastTransitionTime" not in server.seen[0].json["status"]["conditions"][0]


async def test_numbers_change_at_most_every_half_minute() -> None:
    """A changed reason is written at once; changed numbers wait, and then the newest are written."""
    clock = Clock()
    async with writing(PATCHED, PATCHED, PATCHED, clock=clock) as (server, writer):
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

    messages = {seen.json["status"]["conditions"][0]["message"] for seen in server.seen}
    assert {"0/1 nodes: 1 Insufficient cpu", "0/3 nodes: 3 Insufficient cpu", "wakes the writers"} == messages


async def test_numbers_that_changed_back_are_written_when_they_change_again() -> None:
    """The write that was put off has nothing to say by then, and stands in the way of no other."""
    clock = Clock()
    one, two = ("0/2 nodes are available: 1 Insufficient cpu", "0/2 nodes are available: 2 Insufficient cpu")
    async with writing(*[PATCHED] * 4, clock=clock) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message=one)
        await settled(server, 1, writer)
        writer.set(POD, reason=UNSCHEDULABLE, message=two)
        writer.set(POD, reason=UNSCHEDULABLE, message=one)
        for count, message in ((2, one), (4, two)):
            clock.now += 60
            writer.set(POD, reason=UNSCHEDULABLE, message=message)
            writer.set(attrs.evolve(POD, uid=f"u{count}"), reason=UNSCHEDULABLE, message="wakes the writers")
            await settled(server, count, writer)
    assert two in [seen.json["status"]["conditions"][0]["message"] for seen in server.seen]


async def test_the_newest_message_wins() -> None:
    """An outdated message is never written after, or instead of, a newer one."""
    released = anyio.Event()

    async def slow(request: object) -> object:
        await released.wait()
        return await PATCHED(request)  # type: ignore[arg-type]  # whatever the server hands over

    async with writing(slow, PATCHED) as (server, writer):  # type: ignore[arg-type]  # as above
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1)
        writer.set(POD, reason=SCHEDULER_ERROR, message="two")
        writer.set(POD, reason=SCHEDULER_ERROR, message="three")
        await quiet()
        assert len(server.seen) == 1
        released.set()
        await settled(server, 2, writer)

    assert [seen.json["status"]["conditions"][0]["message"] for seen in server.seen] == ["one", "three"]


async def test_back_to_what_was_written_before() -> None:
    """A message that is taken back while it is under way does not stay."""
    released = anyio.Event()

    async def slow(request: object) -> object:
        await released.wait()
        return await PATCHED(request)  # type: ignore[arg-type]  # whatever the server hands over

    async with writing(PATCHED, slow, PATCHED) as (server, writer):  # type: ignore[arg-type]  # as above
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1, writer)
        writer.set(POD, reason=UNSCHEDULABLE, message="two")
        await settled(server, 2)
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        released.set()
        await settled(server, 3, writer)

    assert [seen.json["status"]["conditions"][0]["message"] for seen in server.seen] == ["one", "two", "one"]


async def test_back_to_what_was_written_before_a_write_without_an_answer() -> None:
    """It may have been committed, so nothing is known of what the status says."""
    clock = Clock()
    async with writing(PATCHED, reset, PATCHED, clock=clock) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1, writer)
        writer.set(POD, reason=SCHEDULER_ERROR, message="two")
        await pause(writer, clock, 1)
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await written(writer, 2)

    assert server.seen[-1].json["status"]["conditions"][0]["message"] == "one"


async def test_nothing_is_waited_for_before_a_bind() -> None:
    """A pod that is about to be bound is forgotten, also during a patch: the version in it makes that harmless."""
    released = anyio.Event()

    async def slow(request: object) -> object:
        await released.wait()
        return await MODIFIED(request)  # type: ignore[arg-type]  # whatever the server hands over

    async with writing(slow) as (server, writer):  # type: ignore[arg-type]  # as above
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1)
        writer.set(POD, reason=UNSCHEDULABLE, message="two, much later")
        writer.forget("u1")
        released.set()
        await quiet()
        assert len(server.seen) == 1
        assert len(writer) == 0


async def test_a_pod_that_has_changed_is_patched_at_the_version_that_the_watch_shows() -> None:
    """After a conflict with another write to the pod, its condition is written soon."""
    async with writing(PATCHED, known=attrs.evolve(POD, resource_version="9")) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await written(writer, 1)
    assert [seen.json["metadata"] for seen in server.seen] == [{"uid": "u1", "resourceVersion": "9"}]
    assert await pauses(MODIFIED, MODIFIED) == SOON[:2]


@pytest.mark.parametrize(
    "shown", [attrs.evolve(POD, node_name="n1"), attrs.evolve(POD, uid="u2")], ids=["bound", "another"]
)
async def test_a_pod_that_waits_no_more_is_left_alone(shown: Pod) -> None:
    """No patch has the version that it got with its Binding, or that of another pod."""
    async with writing(known=shown) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await quiet()
        assert (len(server.seen), len(writer)) == (0, 0)


async def test_a_nomination() -> None:
    """The nominated node is written with the condition; Clear removes it."""
    async with writing(PATCHED, PATCHED) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="m", nomination=Nominate("n1"))
        await settled(server, 1, writer)
        writer.set(POD, reason=UNSCHEDULABLE, message="m", nomination=CLEAR)
        await settled(server, 2, writer)

    assert [seen.json["status"]["nominatedNodeName"] for seen in server.seen] == ["n1", None]


async def test_a_nomination_stays_until_it_is_taken_back() -> None:
    """A condition with KEEP leaves the nomination, and clearing the nomination leaves the condition."""
    async with writing(PATCHED, PATCHED) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="m", nomination=Nominate("n1"))
        writer.set(POD, reason=UNSCHEDULABLE, message="another")
        await settled(server, 1, writer)
        writer.clear_nomination(POD)
        await settled(server, 2, writer)
    statuses = [seen.json["status"] for seen in server.seen]
    assert [status["nominatedNodeName"] for status in statuses] == ["n1", None]
    assert [status["conditions"][0]["message"] for status in statuses] == ["another", "another"]


async def test_a_nomination_from_before_a_restart_is_taken_back() -> None:
    """The condition in the pod's status is kept; without a condition nothing is cleared."""
    pod = attrs.evolve(POD, nominated_node_name="n1", scheduled=PodCondition("False", UNSCHEDULABLE, "m"))
    async with writing(PATCHED) as (server, writer):
        writer.clear_nomination(attrs.evolve(POD, uid="u2"))
        writer.clear_nomination(pod)
        await settled(server, 1, writer)
        await quiet()
    (seen,) = server.seen
    assert seen.json["status"]["nominatedNodeName"] is None
    assert seen.json["status"]["conditions"][0]["message"] == "m"


SOON = [0.8, 1.6, 3.2, 6.4, 12.8, 25.6]
"""The pauses of the first minute."""
FORBIDDEN = refuse(403, "Forbidden")


async def test_what_is_refused_is_tried_less_and_less() -> None:
    """Thousands of pods without a right or behind a webhook do not fill the API server; once allowed, it is written."""
    assert await pauses(*[FORBIDDEN] * 10) == [*SOON, 51.2, 102.4, REFUSED_PAUSE, REFUSED_PAUSE]
    spread = await pauses(*[FORBIDDEN] * 8, random=0.5)
    assert spread[-2:] == [76.8, 120.0], "pods that were refused together do not come back together"


async def test_what_is_no_refusal_is_tried_twice_a_minute() -> None:
    """No answer, a proxy's page, an overload or a broken webhook may end soon."""
    page = answer("<html/>", status=403)
    assert await pauses(*[reset, refuse(500), refuse(429), page] * 3) == [*SOON, *[30.0] * 6]
    assert await pauses(refuse(401, "Unauthorized"), refuse(404, "NotFound"), TOO_BIG) == SOON[:3]
    assert (await pauses(*[FORBIDDEN] * 8, refuse(500)))[-1] == 30.0


async def test_a_refusal_after_a_success_is_a_new_one() -> None:
    """The pauses begin again."""
    clock = Clock()
    async with writing(*[FORBIDDEN] * 7, PATCHED, *[FORBIDDEN] * 6, PATCHED, clock=clock) as (_, writer):
        for patches, refusals in ((1, 7), (2, 6)):
            writer.set(POD, reason=SCHEDULER_ERROR, message=f"the text {'x' * patches}")
            waits = [await pause(writer, clock, tries) for tries in range(1, refusals + 1)]
            await written(writer, patches)
    assert waits == SOON


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    """Only the next attempt writes again."""
    async with writing(refuse(404, "NotFound", kind="pods", name="p"), PATCHED) as (server, writer):
        writer.set(POD, reason=UNSCHEDULABLE, message="one")
        await settled(server, 1)
        await quiet()
        assert (len(server.seen), len(writer)) == (1, 0)


@pytest.mark.parametrize(
    ("nomination", "written"),
    [(Nominate("n2"), {"nominatedNodeName": "n2"}), (CLEAR, {"nominatedNodeName": None}), (KEEP, {})],
    ids=str,
)
def test_the_nominated_node_in_the_patch(nomination: NominationChange, written: dict[str, str | None]) -> None:
    """A name sets the field, null removes it, and a patch without it leaves it as it is."""
    patch = msgspec.json.decode(encode_patch(NOMINATED, WaitingStatus("r", "m", nomination), now=0.0))
    status = patch["status"]
    del status["conditions"]
    assert status == written


@pytest.mark.parametrize("nomination", [Nominate("n1"), KEEP], ids=str)
def test_the_status_that_the_pod_has(nomination: NominationChange) -> None:
    """It equals the status that is to be written, so that nothing is written."""
    assert status_of(NOMINATED, nomination) == WaitingStatus("Unschedulable", "m", nomination)
