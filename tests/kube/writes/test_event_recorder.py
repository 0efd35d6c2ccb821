"""Events are queued, and dropped if they cannot be written."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.kube.writes.event_recorder import EventRecorder, cut, micro_time
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.patience import PATIENCE
from tests.support.scripted_server import Answer, Scripted, answer, hang, refuse, reset, scripted


def test_notes_are_cut_in_bytes() -> None:
    """A note has at most 1024 bytes, ends with dots if it was cut, and stays valid UTF-8."""
    assert cut("x" * 1024) == "x" * 1024
    assert cut("x" * 1025) == "x" * 1020 + " ..."
    long = cut("ä" * 1000)
    assert len(long.encode()) <= 1024
    assert long.endswith("ä ...")


def test_micro_time() -> None:
    """Always six digits."""
    assert micro_time(1_795_248_000_000_001_999) == "2026-11-21T08:00:00.000001Z"


POD = Pod(uid="u1", namespace="d", name="p", resource_version="7")
WRITTEN = answer({"kind": "Event", "apiVersion": "events.k8s.io/v1"}, status=201)
FAILED: dict[str, Any] = {"type": "Warning", "reason": "FailedScheduling", "action": "Scheduling"}
START = 1_795_248_000_123_456_789


@asynccontextmanager
async def recording(*script: Answer, **options: Any) -> AsyncIterator[tuple[Scripted, EventRecorder, list[str]]]:
    """Run a recorder against the script; `dropped` has an entry for each event that was lost."""
    dropped: list[str] = []
    errors = UnexpectedErrors(Metrics().count_unexpected_error)
    options = {"wall_clock": lambda: START, "pause": 0.0, "on_retry": lambda _write: None, "errors": errors, **options}
    async with scripted(*script) as (server, client):
        recorder = EventRecorder(
            client=client, hostname="host", on_dropped=lambda: dropped.append("x"), writers=1, **options
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recorder.run)
            yield server, recorder, dropped
            tasks.cancel_scope.cancel()


async def test_the_events_name_is_valid_however_long_the_pods_is() -> None:
    """The API server refuses names of more than 253 characters, and such as end a part with a dash."""
    async with recording(WRITTEN) as (server, recorder, _):
        pod = attrs.evolve(POD, name=f"{'c' * 200}.{'d' * 34}-{'e' * 17}")
        recorder.record(pod, type="Normal", reason="Scheduled", action="Binding", note="assigned")
        await recorder.drain(PATIENCE)

    (seen,) = server.seen
    assert seen.json["metadata"]["name"] == f"{'c' * 200}.{'d' * 34}.{START:x}"


async def test_one_event() -> None:
    """It has all fields that the API requires, and no others."""
    async with recording(WRITTEN) as (server, recorder, dropped):
        recorder.record(POD, type="Normal", reason="Scheduled", action="Binding", note="assigned")
        await recorder.drain(PATIENCE)

    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/d/events")
    assert {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"p.{START:x}", "namespace": "d"},
        "eventTime": "2026-11-21T08:00:00.123456Z",
        "reportingController": "my-scheduler",
        "reportingInstance": "my-scheduler-host",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "d",
            "name": "p",
            "uid": "u1",
            "resourceVersion": "7",
        },
        "type": "Normal",
        "reason": "Scheduled",
        "action": "Binding",
        "note": "assigned",
    } == seen.json
    assert not dropped


async def test_the_pods_own_scheduler_reports() -> None:
    """Each profile reports under its own name; for pods of other schedulers the first profile does."""
    async with recording(*[WRITTEN] * 3, controllers=("one", "two")) as (server, recorder, _):
        for name in ("two", "one", "theirs"):
            recorder.record(attrs.evolve(POD, uid=name, scheduler_name=name), note="0/1", **FAILED)
        await recorder.drain(PATIENCE)

    reporters = [(seen.json["reportingController"], seen.json["reportingInstance"]) for seen in server.seen]
    assert reporters == [("two", "two-host"), ("one", "one-host"), ("one", "one-host")]


async def test_a_full_queue_drops() -> None:
    """Recording never waits: beyond the capacity an event is lost and counted."""
    async with recording(capacity=2) as (_, recorder, dropped):
        for number in range(5):
            recorder.record(attrs.evolve(POD, uid=f"u{number}"), note="x", **FAILED)
        assert (len(recorder), len(dropped)) == (2, 3)


@pytest.mark.parametrize(
    ("failures", "requests", "lost"),
    [
        ([reset, refuse(500), refuse(429), WRITTEN], 4, 0),
        ([refuse(403, "Forbidden", "namespace is being terminated")], 1, 1),
        ([refuse(500)] * 12, 12, 1),
        ([answer("<html/>", status=502), answer("<html/>", status=403), WRITTEN], 3, 0),
        ([reset, refuse(409, "AlreadyExists")], 2, 0),
    ],
    ids=["in the end", "never allowed", "never up", "a proxy's pages", "written without an answer"],
)
async def test_failures(failures: list[Answer], requests: int, lost: int) -> None:
    """A lost event is tried again for a while, a refused one is not."""
    async with recording(*failures) as (server, recorder, dropped):
        recorder.record(POD, note="x", **FAILED)
        await recorder.drain(PATIENCE)

    assert (requests, lost) == (len(server.seen), len(dropped))


async def test_events_that_cannot_be_written_hold_no_writer() -> None:
    """They are tried again later; other events are written meanwhile, and a drain ends."""
    async with recording(refuse(500), refuse(500), WRITTEN, pause=3600.0) as (server, recorder, dropped):
        for number in range(3):
            recorder.record(attrs.evolve(POD, uid=f"u{number}"), note="x", **FAILED)
        with anyio.fail_after(PATIENCE):
            while len(server.seen) < 3:
                await anyio.lowlevel.checkpoint()
        assert len(recorder) == 2
        await recorder.drain(0.0)
    assert not dropped


async def test_drain_has_a_deadline() -> None:
    """A hanging server does not keep the process from ending."""
    async with recording(hang) as (_, recorder, _dropped):
        recorder.record(POD, note="x", **FAILED)
        with anyio.fail_after(PATIENCE):
            await recorder.drain(0.05)
