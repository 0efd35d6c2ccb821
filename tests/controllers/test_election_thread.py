"""A candidate in its thread renews the Lease while the scheduler's event loop is blocked, up to a limit."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.controllers.election_thread import ElectionThread
from neuron_scheduler.errors import ConfigurationError, LeaseLostError
from neuron_scheduler.kube.writes.lease import Record
from tests.support.leases import Memory
from tests.support.patience import PATIENCE

DEADLINE = 1000.0


@attrs.define(eq=False)
class Clock:
    """Seconds for all threads; a test can add some."""

    offset: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return time.monotonic() + self.offset


@attrs.define(eq=False)
class World:
    """One candidate, with deadlines that no slow machine misses, for a Lease that only its thread touches."""

    memory: Memory = attrs.field(factory=Memory)
    clock: Clock = attrs.field(factory=Clock)
    connected: list[str] = attrs.field(factory=list)
    codes: list[int] = attrs.field(factory=list)
    ended: threading.Event = attrs.field(factory=threading.Event)
    updates: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    election: ElectionThread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.memory.after = lambda _verb: self.updates.release()
        self.election = ElectionThread(
            connect=self.connect,
            identity="me",
            lease_duration=1.5 * DEADLINE,
            renew_deadline=DEADLINE,
            retry_period=0.01,
            clock=self.clock,
            end_process=self.end,
            last_seconds=0.01,
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Memory]:
        """Open the Lease, and note in which thread."""
        self.connected.append(threading.current_thread().name)
        try:
            yield self.memory
        finally:
            self.connected.append("closed")

    def end(self, code: int) -> None:
        """Note the exit code of the process."""
        self.codes.append(code)
        self.ended.set()

    def renewals(self) -> Iterator[float]:
        """Yield the send times of renewals, each of which is waited for without a turn of the event loop."""
        while self.updates.acquire(timeout=PATIENCE):
            yield self.election.renewed_at or 0.0

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and hold the event loop until a renewal was sent after that."""
        self.clock.offset += seconds
        now = self.clock()
        assert any(renewed_at >= now for renewed_at in self.renewals())


async def test_a_held_event_loop_delays_no_renewal() -> None:
    """It is blocked for longer than the renew deadline in total, and the Lease stays ours."""
    world = World()
    assert await world.election.start()
    for _ in range(9):
        world.pass_time(0.1 * DEADLINE)
    world.clock.offset += 0.6 * DEADLINE  # now it has been silent for too long, but the Lease has not expired
    assert world.election.may_bind()
    world.election.beat()
    world.pass_time(0.1 * DEADLINE)
    assert world.election.leading
    await world.election.leave(release=True)

    assert world.memory.record is not None
    assert world.memory.record.holder == ""
    assert world.connected == ["lease", "closed"]
    assert not world.codes


async def test_an_event_loop_that_is_held_for_ever_ends_the_process() -> None:
    """The Lease is not renewed; if the scheduler does not react to the loss, the thread ends the process with 1."""
    world = World()
    assert await world.election.start()
    world.clock.offset += 2.1 * DEADLINE
    assert world.ended.wait(PATIENCE)  # without a turn of this event loop

    assert world.codes == [1]
    assert not world.election.may_bind()
    with pytest.raises(LeaseLostError, match="the scheduler did not answer"):
        await world.election.hold()
    await world.election.leave(release=True)


async def test_a_lost_lease_is_told_to_the_scheduler() -> None:
    """A scheduler that reacts to the loss ends by itself."""
    world = World()
    assert await world.election.start()

    def taken(verb: str) -> None:
        if verb == "update":
            world.memory.put(Record("other", 15))

    world.memory.before = taken
    world.election.last_seconds = 2 * PATIENCE
    with anyio.fail_after(PATIENCE), pytest.raises(LeaseLostError, match="held by other"):
        await world.election.hold()
    assert not world.election.may_bind()
    assert world.election.renewed_at is None
    await world.election.leave(release=True)

    assert world.memory.record is not None
    assert world.memory.record.holder == "other"
    assert not world.codes


async def test_what_keeps_it_from_connecting_is_raised() -> None:
    """A configuration that cannot be used is raised by the start."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Memory]:
        raise ConfigurationError("no kubeconfig")
        yield  # it is a generator

    election = ElectionThread(connect=connect)
    with anyio.fail_after(PATIENCE), pytest.raises(ConfigurationError, match="no kubeconfig"):
        await election.start()
    await election.leave(release=True)


@pytest.mark.parametrize("release", [True, False])
async def test_who_leaves_stops_renewing(*, release: bool) -> None:
    """The Lease is given back, or expires if a Binding may still succeed."""
    world = World()
    assert await world.election.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.election.hold)
        await world.election.leave(release=release)
    calls = len(world.memory.calls)
    await world.election.leave(release=True)  # too late: it is over

    assert world.memory.record is not None
    assert world.memory.record.holder == ("" if release else "me")
    assert len(world.memory.calls) == calls


async def test_a_follower_leaves_without_a_trace() -> None:
    """The Lease of another holder is not changed, and the thread ends."""
    world = World()
    world.memory.put(Record("other", 3600))
    async with anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE):
            assert not await world.election.start()
        tasks.start_soon(world.election.acquire)
        with anyio.fail_after(PATIENCE):
            while "watch" not in world.memory.calls:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await world.election.leave(release=True)

    assert world.memory.calls == ["get", "watch"]
    assert world.connected == ["lease", "closed"]


async def test_a_thread_without_an_event_loop_is_told_to_the_scheduler() -> None:
    """What keeps the loop of the thread from running is raised by the start, and no one is waited for."""
    world = World()
    world.election.beside = lambda _run, over: over(OSError("no file descriptors"))
    with anyio.fail_after(PATIENCE), pytest.raises(OSError, match="no file descriptors"):
        await world.election.start()
    with anyio.fail_after(PATIENCE):
        await world.election.leave(release=True)
    assert not world.codes


async def test_a_thread_whose_event_loop_is_torn_down_counts_as_a_lost_lease() -> None:
    """A cancelled task is no stop of the scheduler; one that does not react is ended also then."""
    world = World()
    tasks: list[asyncio.Task[None]] = []

    def beside(run: Callable[[], Coroutine[Any, Any, None]], _over: object) -> None:
        tasks.append(asyncio.get_running_loop().create_task(run()))

    world.election.beside = beside
    assert await world.election.start()
    tasks[0].cancel()
    with anyio.fail_after(PATIENCE), pytest.raises(LeaseLostError, match="ended unexpectedly"):
        await world.election.hold()
    with anyio.fail_after(PATIENCE):
        await tasks[0]
    assert world.codes == [1]


async def test_leaving_before_the_start() -> None:
    """A stop before the caches have synced needs no thread."""
    world = World()
    await world.election.leave(release=True)

    assert not world.connected
