"""A candidate takes, renews and gives back a Lease in memory whose API can fail, hang and race."""

import datetime as dt
import io
import re
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.controllers.leader_elector import SOONER, LeaderElector
from neuron_scheduler.kube.writes.lease import Record
from neuron_scheduler.model.annotations import EXTENDER_ADDRESS
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, LeaseLostError, UnreachableError
from tests.support.leases import CONFLICT, Memory
from tests.support.patience import PATIENCE
from tests.telemetry.test_logs import _logging_as_before  # noqa: F401 - a fixture that every test here uses

NOW = dt.datetime(2026, 11, 21, 8, tzinfo=dt.UTC)


@attrs.define(eq=False)
class Clock:
    """Seconds of the event loop; a test can add some."""

    offset: float = 0.0

    def __call__(self) -> float:
        return anyio.current_time() + self.offset


def candidate(memory: Memory, name: str = "me", **options: object) -> LeaderElector:
    """Return a candidate with long deadlines and a short retry period."""
    defaults: dict[str, object] = {
        "lease_duration": 1500,
        "renew_deadline": 1000,
        "retry_period": 0.01,
        "clock": Clock(),
        "now": lambda: NOW,
        "random": lambda: 0.0,
    }
    return LeaderElector(leases=memory, identity=name, **{**defaults, **options})  # type: ignore[arg-type]  # by keyword


def ready() -> anyio.Event:
    """Return an event that is set."""
    event = anyio.Event()
    event.set()
    return event


async def acquired(leader: LeaderElector) -> float:
    """Let it acquire, and return how many seconds that took."""
    start = anyio.current_time()
    with anyio.fail_after(PATIENCE):
        await leader.acquire(ready())
    return anyio.current_time() - start


async def held(leader: LeaderElector, reached: Callable[[], bool]) -> None:
    """Let it hold until something is reached."""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leader.hold)
            while not reached():
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


async def test_a_held_lease_is_waited_for_by_its_own_duration() -> None:
    """It expires by local time since it was first seen, whatever its renewTime is, and is tried exactly then."""
    memory = Memory()
    memory.put(Record("other", 1, None, NOW - dt.timedelta(days=1)))
    took = await acquired(candidate(memory))

    assert took >= 0.99  # timers of the loop are accurate to a millisecond
    assert memory.calls[:2] == ["get", "watch"]
    assert memory.calls[-2:] == ["get", "update"]


@pytest.mark.parametrize("record", [None, Record("", 3600), Record("me", 3600)], ids=["absent", "released", "ours"])
async def test_a_free_lease_is_taken_at_once(record: Record | None) -> None:
    """It is free if it does not exist, has no holder, or has our name in it."""
    memory = Memory()
    memory.put(record)
    await acquired(candidate(memory))
    assert "watch" not in memory.calls


def configured() -> io.StringIO:
    """Log into the stream that is returned."""
    stream = io.StringIO()
    logs.configure(stream=stream)
    return stream


def logged(stream: io.StringIO) -> list[str]:
    """Return what was logged, without headers."""
    return [line.partition("] ")[2] for line in stream.getvalue().splitlines()]


async def test_a_standby_says_whom_it_waits_for() -> None:
    """It logs its candidacy, each new holder once, and its success, in client-go's words."""
    memory, stream = Memory(), configured()
    memory.put(Record("a", 3600))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(acquired, candidate(memory))
        for record in (Record("a", 3600), Record("b", 3600), Record("b", 3600), Record("", 1)):
            for _ in range(50):
                await anyio.lowlevel.checkpoint()
            memory.put(record)

    lease = 'lease="kube-system/my-scheduler"'
    assert logged(stream) == [
        f'"Attempting to acquire leader lease..." {lease} identity="me"',
        f'"New leader elected" {lease} identity="a"',
        f'"New leader elected" {lease} identity="b"',
        f'"Successfully acquired lease" {lease} identity="me"',
    ]


async def test_a_lease_that_cannot_be_read_is_told_once() -> None:
    """One line for each cause, one more every ten minutes, and one when it can be read again."""
    forbidden = ApiError(403, reason="Forbidden", message="not you")

    def before(_verb: str) -> None:
        tries = len(memory.calls)
        if tries == 50:
            clock.offset += 601.0
        if tries < 10 or 20 <= tries < 60:
            raise forbidden
        if tries < 20:
            raise UnreachableError("no route")

    memory, stream, clock = Memory(before=before), configured(), Clock()
    await acquired(candidate(memory, clock=clock, retry_period=0.0001))

    assert all(re.search(r" leader_elector\.py:", line) for line in stream.getvalue().splitlines())
    lease = 'lease="kube-system/my-scheduler"'
    refused = f'"Could not take the lease, retrying" err="{forbidden}" {lease}'
    assert logged(stream)[1:] == [
        refused,
        f'"Could not reach the lease, retrying" err="no route" {lease}',
        refused,
        f'"Lease can be taken again" {lease}',
        f'"Successfully acquired lease" {lease} identity="me"',
    ]


async def test_a_watch_that_is_refused_is_told_once() -> None:
    """A standby that polls does not log each poll."""

    def before(verb: str) -> None:
        if verb == "watch":
            if memory.calls.count("watch") == 30:
                memory.put(Record("", 1))
            raise UnreachableError("hung up")

    memory, stream = Memory(before=before), configured()
    memory.put(Record("other", 3600))
    await acquired(candidate(memory, retry_period=0.0001))
    assert len([line for line in logged(stream) if line.startswith('"Watch of the lease broke off"')]) == 1


@pytest.mark.parametrize("change", [Record("", 1), None], ids=["released", "deleted"])
async def test_a_release_is_noticed_at_once(change: Record | None) -> None:
    """Candidates watch the Lease; a clean handover takes no time."""
    memory = Memory()
    memory.put(Record("other", 3600))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(acquired, candidate(memory))
        while "watch" not in memory.calls:
            await anyio.lowlevel.checkpoint()
        memory.put(change)

    assert memory.record is not None
    assert memory.record.holder == "me"
    assert "get" not in memory.calls[memory.calls.index("watch") :]  # a busy server takes a while for each request


async def test_no_bind_is_started_after_the_deadline() -> None:
    """Also before the loss was noticed, as after a long sleep of the machine."""
    clock = Clock()
    leader = candidate(Memory(), clock=clock)
    await acquired(leader)
    assert leader.may_bind()
    clock.offset += 1000

    assert not leader.may_bind()


async def test_the_send_time_counts_not_the_answer() -> None:
    """A renewal with a late answer extends the time from when it was sent."""
    clock = Clock()

    def before(verb: str) -> None:
        if verb == "create":
            clock.offset += 900

    leader = candidate(Memory(before=before), clock=clock)
    await acquired(leader)
    clock.offset += 101

    assert not leader.may_bind()


async def test_the_last_try_has_time_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try fails after 0.6 s: those after 2.6 s each would be at 2, 4.6, 7.2 and 9.8 s, the last one in vain."""
    clock, tries = Clock(), list[float]()

    async def sleep(seconds: float) -> None:
        clock.offset += seconds
        await anyio.lowlevel.checkpoint()

    def before(verb: str) -> None:
        if verb == "update":
            tries.append(clock() - began)
            clock.offset += 0.6
            raise UnreachableError("reset")

    leader = candidate(Memory(before=before), clock=clock, lease_duration=15, renew_deadline=10, retry_period=2)
    began = clock()
    await acquired(leader)
    monkeypatch.setattr(anyio, "sleep", sleep)
    with anyio.fail_after(PATIENCE), pytest.raises(LeaseLostError, match="could not be renewed within 10 s; reset"):
        await leader.hold()

    assert len(tries) == 4
    assert tries[-1] <= 10 - 2 / SOONER


async def test_the_watchdog() -> None:
    """A leader that has not renewed for lease duration and 20 s is dead, whatever else it does; a follower never is."""
    now = 100.0
    leader = candidate(Memory(), clock=lambda: now, lease_duration=15)
    now = 1e9
    assert leader.find_overdue() is None
    now = 100.0
    await acquired(leader)
    now = 135.0
    assert leader.find_overdue() is None
    now = 136.0
    assert leader.find_overdue() == "the Lease was last renewed 36 s ago; it lasts 15 s"


async def test_a_renewal_whose_answer_was_lost() -> None:
    """After a conflict with our own write the Lease is read back and renewed."""
    memory = Memory()
    leader = candidate(memory)
    await acquired(leader)
    assert memory.record is not None
    memory.put(memory.record)
    await held(leader, lambda: memory.version > 3)

    assert leader.may_bind()


@pytest.mark.parametrize("backup", ["has an older one", "has none"])
async def test_a_lease_that_is_older_than_before_is_lost(backup: str) -> None:
    """After etcd was restored from a backup, watches go on from a version that is still to come, and show nothing."""
    memory = Memory()
    leader = candidate(memory)
    await acquired(leader)
    older = memory.record
    await held(leader, lambda: memory.version > 3)
    if backup == "has none":
        memory.version = 0  # the next renewal creates it
    else:
        memory.record = older
    with anyio.fail_after(PATIENCE), pytest.raises(LeaseLostError, match="older than before: was etcd restored"):
        await leader.hold()


@pytest.mark.parametrize("loses_race", [False, True])
async def test_who_is_not_ready_takes_the_lease_at_the_first_look_only(*, loses_race: bool) -> None:
    """Later another replica that is ready may want it; who has looked goes on to list."""

    def win(verb: str) -> None:
        if verb == "create":
            memory.put(Record("other", 1500))
            raise CONFLICT

    memory, is_ready = Memory(before=win), anyio.Event()
    if not loses_race:
        memory.put(Record("other", 1500))
    late = candidate(memory)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(late.acquire, is_ready)
        with anyio.fail_after(PATIENCE):
            await late.tried.wait()
        memory.put(Record("", 1500))
        await anyio.wait_all_tasks_blocked()
        assert not late.is_leading
        is_ready.set()
        with anyio.fail_after(PATIENCE):
            await late.acquired.wait()


async def test_a_standby_ends_if_the_lease_is_older_than_before() -> None:
    """It would lead with what it knew before etcd was restored."""
    memory = Memory()
    memory.put(Record("other", 1))
    backup = memory.record
    memory.put(Record("other", 1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_then_restore, memory, backup)
        with anyio.fail_after(PATIENCE), pytest.raises(LeaseLostError, match="was etcd restored"):
            await candidate(memory).acquire(ready())


async def wait_then_restore(memory: Memory, backup: Record | None) -> None:
    """Restore the Lease as soon as a candidate watches it."""
    while "watch" not in memory.calls:
        await anyio.lowlevel.checkpoint()
    memory.record = backup


async def test_a_404_that_is_no_api_servers_does_not_cost_the_lease() -> None:
    """A proxy's 404 means nothing for the Lease; it is renewed when the proxy works again."""
    pages = [ApiError(404, message="<html>")] * 4

    def before(_verb: str) -> None:
        if pages and leader.is_leading:
            raise pages.pop()

    memory = Memory(before=before)
    leader = candidate(memory)
    await acquired(leader)
    await held(leader, lambda: memory.version > 1)

    assert not pages
    assert leader.may_bind()


async def test_release() -> None:
    """The holder is cleared, the transitions stay, and no bind starts from then on."""
    memory = Memory()
    leader = candidate(memory, lease_duration=15, renew_deadline=10, retry_period=2)
    await acquired(leader)
    assert await leader.release()

    assert Record("", 1, NOW, NOW, 0, "2") == memory.record
    assert memory.calls[-2:] == ["create", "update"]  # it is not read first: the successor waits
    assert not leader.may_bind()
    assert not await leader.release()


async def test_release_takes_nothing_from_others() -> None:
    """A Lease that another candidate holds meanwhile is not changed."""
    memory = Memory()
    leader = candidate(memory)
    await acquired(leader)
    memory.put(Record("other", 15))
    assert not await leader.release()

    assert memory.record is not None
    assert memory.record.holder == "other"


async def test_release_survives_cancellation_and_failure() -> None:
    """A process that is stopped still releases the Lease; if it cannot, the Lease expires."""
    memory = Memory()
    leader = candidate(memory)
    await acquired(leader)
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert await leader.release()

    def down(_verb: str) -> None:
        raise UnreachableError("down")

    failing = Memory()
    other = candidate(failing)
    await acquired(other)
    failing.before = down
    assert not await other.release()


@pytest.mark.parametrize("winner", ["other", ""])
async def test_who_loses_a_race_for_the_lease_looks_at_once_and_then_waits(winner: str) -> None:
    """The winner's time counts from the moment at which we see it; a webhook may answer 409, and nobody has won."""

    def win(verb: str) -> None:
        if verb == "create":
            memory.put(Record(winner, 3600) if winner else None)
            raise CONFLICT

    memory = Memory(before=win)
    loser = candidate(memory, retry_period=3600, random=lambda: 1.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(loser.acquire, ready())
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    assert (memory.calls, loser.holder) == (["get", "create", "get"], winner)


@pytest.mark.parametrize("page", [False, True], ids=["cut off", "answered by a proxy"])
async def test_a_lease_taken_by_a_write_without_an_answer_is_given_back(*, page: bool) -> None:
    """The write succeeded, and we never knew; the next holder need not wait for the expiry. A page has no reason."""

    def after(_verb: str) -> Awaitable[None]:
        if page:
            raise ApiError(409, message="<html>")
        return anyio.sleep_forever()

    memory = Memory(before=lambda verb: anyio.sleep_forever() if verb == "get" and memory.record else None, after=after)
    leader = candidate(memory, lease_duration=15, renew_deadline=10, retry_period=2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leader.acquire, ready())
        with anyio.fail_after(PATIENCE):
            while memory.record is None:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    memory.before = memory.after = lambda _verb: None
    assert await leader.release()

    assert Record("", 1, NOW, NOW, 0, "2") == memory.record


async def test_a_lease_taken_by_a_write_that_arrives_late_is_given_back() -> None:
    """The first write arrives before the second, which is refused: the Lease is ours although we never knew it."""
    memory, updates = Memory(), list[Record]()
    memory.put(Record("", 1))

    def before(verb: str) -> Awaitable[None] | None:
        if verb != "update":
            return anyio.sleep_forever() if len(updates) == 2 else None
        assert memory.record is not None
        updates.append(attrs.evolve(memory.record, holder="me"))
        if len(updates) == 1:
            raise UnreachableError("cut off, and delivered late")
        memory.put(updates[0])
        return None

    memory.before = before
    leader = candidate(memory)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leader.acquire, ready())
        with anyio.fail_after(PATIENCE):
            while memory.calls[-3:] != ["get", "update", "get"] or len(updates) < 2:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    memory.before = lambda _verb: None
    assert await leader.release()
    assert memory.record is not None
    assert memory.record.holder == ""


async def test_a_release_outlasts_a_renewal_that_comes_in_between() -> None:
    """A renewal that was cancelled may reach the server between the read of the Lease and its release."""
    late = [1, 2]

    def before(verb: str) -> None:
        if verb == "update" and late:
            late.pop()
            memory.put(memory.record)

    memory = Memory()
    leader = candidate(memory)
    await acquired(leader)
    memory.before = before
    assert await leader.release()

    assert memory.record is not None
    assert memory.record.holder == ""


OTHERS = {"theirs": "kept"}


async def test_the_address_of_the_extender_is_in_the_lease_while_it_is_held() -> None:
    """It is written when the Lease is taken and renewed, and removed when it is released; others' annotations stay."""
    memory = Memory()
    memory.put(Record("", 1, annotations=OTHERS, metadata={"labels": {"a": "b"}}))
    leader = candidate(memory, extender_address="http://10.0.0.7:12345")
    await acquired(leader)
    for _ in range(2):
        assert memory.record is not None
        assert memory.record.annotations == {**OTHERS, EXTENDER_ADDRESS: "http://10.0.0.7:12345"}
        assert memory.record.metadata == {"labels": {"a": "b"}}
        await leader._renew()
    assert leader.leader_address == ""  # it is for followers
    await leader.release()
    assert memory.record is not None
    assert memory.record.annotations == OTHERS


async def test_a_holder_without_an_extender_leaves_no_address() -> None:
    """Requests would be sent to the holder before it."""
    memory = Memory()
    memory.put(Record("", 1, annotations={**OTHERS, EXTENDER_ADDRESS: "http://10.0.0.6:12345"}))
    await acquired(candidate(memory))
    assert memory.record is not None
    assert memory.record.annotations == OTHERS


async def test_a_follower_knows_the_address_as_long_as_the_lease_is_held() -> None:
    """It follows the watch; an expired or released Lease has no holder to trust."""
    memory, clock = Memory(), Clock()
    held_by = Record("other", 1000).with_extender_address("http://10.0.0.6:12345")
    memory.put(held_by)
    follower = candidate(memory, clock=clock)
    assert follower.leader_address == ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follower.acquire, ready())
        await anyio.wait_all_tasks_blocked()
        assert follower.leader_address == "http://10.0.0.6:12345"
        memory.put(attrs.evolve(held_by, holder="third").with_extender_address("http://10.0.0.5:12345"))
        await anyio.wait_all_tasks_blocked()
        assert follower.leader_address == "http://10.0.0.5:12345"
        clock.offset += 1001
        assert follower.leader_address == ""
        clock.offset -= 1001
        memory.put(Record("third", 1000))
        await anyio.wait_all_tasks_blocked()
        assert follower.leader_address == ""
        tasks.cancel_scope.cancel()


async def run(leader: LeaderElector, tasks: anyio.abc.TaskGroup) -> None:
    """Run it until it has tried to take the Lease."""
    tasks.start_soon(leader.run, ready())
    with anyio.fail_after(PATIENCE):
        await leader.tried.wait()


@pytest.mark.parametrize("release", [True, False])
async def test_who_leaves_stops_renewing(*, release: bool) -> None:
    """The Lease is given back, or expires if a Binding may still succeed."""
    memory = Memory()
    leader = candidate(memory)
    async with anyio.create_task_group() as tasks:
        await run(leader, tasks)
        assert leader.acquired.is_set()
        await leader.leave(release=release)
        calls = len(memory.calls)
        await anyio.wait_all_tasks_blocked()

    assert memory.record is not None
    assert memory.record.holder == ("" if release else "me")
    assert len(memory.calls) == calls


async def test_a_follower_leaves_without_a_trace() -> None:
    """The Lease of another holder is not changed."""
    memory = Memory()
    memory.put(Record("other", 3600))
    follower = candidate(memory)
    async with anyio.create_task_group() as tasks:
        await run(follower, tasks)
        await anyio.wait_all_tasks_blocked()
        await follower.leave(release=True)

    assert memory.calls == ["get", "watch"]
    assert not follower.acquired.is_set()


async def test_a_process_that_was_frozen_says_so() -> None:
    """No renewal was tried in time, so it is not the API server's fault."""
    memory, clock = Memory(), Clock()
    leader = candidate(memory, clock=clock)
    await acquired(leader)
    clock.offset += 1001
    with anyio.fail_after(PATIENCE), pytest.raises(LeaseLostError, match="the scheduler did not answer; was it frozen"):
        await leader.hold()

    assert memory.calls.count("update") == 0
