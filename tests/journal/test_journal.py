"""The journal never waits, drops what is too much, and begins again with the state of the cluster."""

import asyncio
import threading
from collections.abc import Callable

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.journal.changes import PutNode, PutPod
from neuron_scheduler.journal.journal import Journal
from neuron_scheduler.journal.records import At, Decided, Lost, RecordedProfile, Started
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import schedule_pod
from tests.journal.memory import Memory
from tests.support.builders import node, pod
from tests.support.patience import PATIENCE

PROFILE = default_profile("my-scheduler")


@attrs.define(eq=False)
class Lines:
    """A journal in memory."""

    memory: Memory = attrs.field(factory=Memory)
    lost: list[int] = attrs.field(factory=list)
    most_waiting: int = 100
    last_seconds: float = 60.0
    journal: Journal = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.journal = Journal(
            output=self.memory,
            profiles=(RecordedProfile("my-scheduler", ("SmallestBlock",)),),
            wall_clock=lambda: 7.5,
            lost=self.lost.append,
            most_waiting=self.most_waiting,
            last_seconds=self.last_seconds,
        )

    def kinds(self, number: int = -1) -> list[str]:
        """Return the kinds of the records of a file."""
        return [type(record).__name__ for record in self.memory.records(number)]


async def test_a_file_begins_with_the_state() -> None:
    """What came before the first write is its state, in an order in which it can be made."""
    lines = Lines()
    cluster = lines.journal.cluster
    cluster.put_pod(pod("early", on="n"))
    cluster.put_node(node("n"))
    cluster.put_node(node("gone"))
    cluster.remove_node("gone")
    await lines.journal._write_what_waits()
    assert lines.kinds() == ["Started", "PutNode", "PutPod"]
    cluster.put_pod(pod("late", on="n"))
    cluster.put_pod(pod("late", on="n"))
    cluster.remove_pod("uid-none")
    await lines.journal.finish()
    assert lines.kinds() == ["Started", "PutNode", "PutPod", "At", "PutPod"]
    assert lines.memory.records()[3] == At(7)
    assert lines.memory.closed


def cancelling(scope: anyio.CancelScope) -> Callable[[], object]:
    """Return what cancels a scope of this event loop from another thread, and waits until that is done."""
    loop, done = asyncio.get_running_loop(), threading.Event()

    def cancel() -> None:
        scope.cancel()
        loop.call_later(0.01, done.set)  # when every task of the scope has run

    def call() -> None:
        loop.call_soon_threadsafe(cancel)
        assert done.wait(PATIENCE)

    return call


@pytest.mark.parametrize("at", ["begin", "write"])
async def test_a_write_that_hangs_does_not_keep_the_process_from_its_end(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk or the reader of a pipe may hang for ever: the end of the journal is missing, and a warning says so."""
    lines, back = Lines(last_seconds=0.01), threading.Event()
    lines.journal.cluster.put_node(node("n"))
    with anyio.fail_after(PATIENCE):
        with anyio.CancelScope() as scope:
            cancel = cancelling(scope)
            lines.memory.meanwhile[at] = lambda: (cancel(), back.wait(PATIENCE))
            await lines.journal.run()
        await lines.journal.finish()
    back.set()
    assert [record.message for record in caplog.records] == [
        "The end of the decision journal is missing: a write to it hangs"
    ]
    assert not lines.memory.closed


async def test_a_pipe_that_hangs_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The same where what still waits is written after the stop."""
    lines, back = Lines(last_seconds=0.01), threading.Event()
    await lines.journal._write_what_waits()
    lines.journal.cluster.put_node(node("n"))
    lines.memory.meanwhile["write"] = lambda: back.wait(PATIENCE)
    with anyio.fail_after(PATIENCE):
        await lines.journal.finish()
    back.set()
    assert len(caplog.records) == 1


async def test_an_error_of_the_journal_does_not_end_the_scheduler() -> None:
    """No thread could be started, for example: it is tried again, like a full disk."""
    lines, tried = Lines(), anyio.Event()
    loop = asyncio.get_running_loop()

    def no_thread() -> None:
        loop.call_soon_threadsafe(tried.set)
        raise RuntimeError("can't start new thread")

    lines.memory.meanwhile["begin"] = no_thread
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lines.journal.run)
            await tried.wait()
            while not lines.lost:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    await lines.journal.finish()
    assert lines.kinds() == ["Started"]


async def test_a_state_that_fills_a_file(caplog: pytest.LogCaptureFixture) -> None:
    """It is tried as seldom as on a full disk, with no more lines than a file may have; the warning names the flag."""
    lines = Lines(memory=Memory(room=100))
    for number in range(500):
        lines.journal.cluster.put_node(node(f"n{number}"))
    assert not await lines.journal._succeeds(lines.journal._write_what_waits)
    assert (len(lines.memory.files[0]), lines.memory.whole) == (100, 0)
    assert "raise --decision-journal-max-bytes" in str(vars(caplog.records[0])["pairs"]["err"])
    lines.memory.room = 1000
    assert await lines.journal._succeeds(lines.journal._write_what_waits)
    assert (len(lines.memory.files[1]), lines.memory.whole) == (501, 1)


@pytest.mark.parametrize("at", ["begin", "write"])
async def test_a_stop_in_the_middle_of_a_write(at: str) -> None:
    """Lines that have been made are written all the same: without them the rest of the file fits no cluster."""
    lines = Lines()
    lines.journal.cluster.put_node(node("n"))
    with anyio.CancelScope() as scope:
        lines.memory.meanwhile[at] = cancelling(scope)
        await lines.journal.run()
    lines.journal.cluster.put_pod(pod("late", on="n"))
    await lines.journal.finish()
    assert lines.kinds() == ["Started", "PutNode", "At", "PutPod"]


async def test_nothing_is_recorded_before_the_first_write() -> None:
    """A replica on standby writes no file and keeps no decisions."""
    lines = Lines()
    lines.journal.cluster.put_node(node("n"))
    waiting = pod("p", scheduler_name="my-scheduler")
    lines.journal.decided(waiting, schedule_pod(lines.journal.cluster, waiting, PROFILE))
    await lines.journal.finish()
    assert lines.memory.files == []


async def test_decisions() -> None:
    """A decision has its outcome, a refusal its counts."""
    lines = Lines()
    cluster = lines.journal.cluster
    cluster.put_node(node("n", "trn1.32xlarge"))
    await lines.journal._write_what_waits()
    for devices in (4, 7):
        waiting = pod("p", devices=devices, scheduler_name="my-scheduler")
        lines.journal.decided(waiting, schedule_pod(cluster, waiting, PROFILE))
    await lines.journal._write_what_waits()
    placed, refused = (record for record in lines.memory.records() if isinstance(record, Decided))
    assert (placed.node_name, placed.ids, placed.feasible, placed.nodes) == ("n", (0, 1, 2, 3), 1, 1)
    assert (refused.node_name, refused.cause) == ("", "invalid_count")
    assert refused.reasons[0][1] == 1


async def test_a_full_file_is_replaced() -> None:
    """What waited is written to the old file, and the new one begins with the state."""
    lines = Lines()
    lines.journal.cluster.put_node(node("a"))
    await lines.journal._write_what_waits()
    lines.journal.cluster.put_node(node("b"))
    lines.memory.full = True
    await lines.journal._write_what_waits()
    assert [lines.kinds(number) for number in (0, 1)] == [
        ["Started", "PutNode", "At", "PutNode"],
        ["Started"] + ["PutNode"] * 2,
    ]


async def test_too_many_records_are_dropped() -> None:
    """All that waits is dropped and counted, and the next file can be replayed on its own."""
    lines = Lines(most_waiting=5)
    await lines.journal._write_what_waits()
    for number in range(20):
        lines.journal.cluster.put_node(node(f"n{number}"))
    assert sum(lines.lost) == 21  # with the time before the first
    await lines.journal._write_what_waits()
    assert lines.memory.records(0)[-1] == Lost(21)
    assert lines.kinds() == ["Started"] + ["PutNode"] * 20


async def test_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    """One warning; what waited is lost; when there is room again, a new file begins."""
    lines = Lines()
    lines.memory.broken = True
    for _ in range(3):
        lines.journal.cluster.put_node(node(f"n{len(lines.lost)}"))
        assert not await lines.journal._succeeds(lines.journal._write_what_waits)
    assert [record.message for record in caplog.records] == ["Cannot write the decision journal; trying again later"]
    lines.memory.broken = False
    await lines.journal._write_what_waits()
    assert isinstance(lines.memory.records()[0], Started)
    assert [type(r) for r in lines.memory.records() if isinstance(r, PutNode | PutPod)] == [PutNode] * 3
