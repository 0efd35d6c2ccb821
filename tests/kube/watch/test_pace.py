"""Waiting times, turns and queues: arithmetic without a clock."""

import anyio
import anyio.lowlevel

from neuron_scheduler.kube.http.backoff import Backoff
from neuron_scheduler.kube.http.rate_limit import TokenBucket
from neuron_scheduler.work_queue import WorkQueue


def test_backoff_doubles_up_to_its_limit() -> None:
    """As client-go's reflector: 0.8 s to 30 s."""
    backoff = Backoff(lambda: 0.0)

    assert [backoff.next() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    backoff.reset()
    assert backoff.next() == 0.8


def test_backoff_has_jitter_and_respects_the_server() -> None:
    """Replicas do not come back together, and not before they were asked to."""
    assert round(Backoff(lambda: 0.5).next(), 6) == 1.2
    assert Backoff(lambda: 0.999, first=30).next() == 30.0
    assert Backoff(lambda: 0.0).next(at_least=60.0) == 60.0


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    """Turns are given out ahead; saved ones are bounded by the burst."""
    now = 100.0
    bucket = TokenBucket(lambda: now, qps=10, burst=3)

    assert [round(bucket.take(), 6) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]
    now = 1000.0
    assert [round(bucket.take(), 6) for _ in range(4)] == [0.0, 0.0, 0.0, 0.1]


def test_a_turn_that_is_not_there_is_not_taken() -> None:
    """Asking in vain costs nothing later."""
    now = 100.0
    bucket = TokenBucket(lambda: now, qps=10, burst=3)

    assert [bucket.take_now() for _ in range(10)] == [True] * 3 + [False] * 7
    now += 0.1
    assert [bucket.take_now(), bucket.take_now()] == [True, False]


def test_no_rate_no_limit() -> None:
    """Zero means unlimited."""
    assert TokenBucket(lambda: 0.0).take_now()
    assert max(TokenBucket(lambda: 0.0).take() for _ in range(100)) == 0.0


async def test_a_worklist() -> None:
    """First in, first out; full or closed it refuses, but what is pushed; its end is told to everyone who waits."""
    work_queue: WorkQueue[int] = WorkQueue(2)
    got: list[int | None] = []

    async def take() -> None:
        while (item := await work_queue.next()) is not None:
            got.append(item)
        got.append(None)

    assert [work_queue.put(number) for number in range(3)] == [True, True, False]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        tasks.start_soon(take)
        while len(work_queue):
            await anyio.lowlevel.checkpoint()
        assert work_queue.put(7)
        for number in (8, 9):
            work_queue.push(number)
        work_queue.close()
        assert not work_queue.put(10)

    assert got == [0, 1, 7, 8, 9, None, None]


async def test_an_item_wakes_one_of_those_who_wait() -> None:
    """Dozens wait where little happens; all but one of them would wake for nothing."""
    work_queue: WorkQueue[int] = WorkQueue(9)
    turns: list[int] = []

    async def take(number: int) -> None:
        while await work_queue.next() is not None:
            turns.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(take, number)
        await anyio.wait_all_tasks_blocked()
        for item in range(4):
            work_queue.put(item)
            assert len(work_queue._takers) == 2
            await anyio.wait_all_tasks_blocked()
        work_queue.close()

    assert turns == [0, 1, 2, 0]


async def test_giving_waits_for_room() -> None:
    """Who may wait is held back instead of refused."""
    work_queue: WorkQueue[int] = WorkQueue(1)

    async def give() -> None:
        for item in range(4):
            await work_queue.give(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give)
        await anyio.wait_all_tasks_blocked()
        assert len(work_queue) == 1
        assert [await work_queue.next() for _ in range(4)] == [0, 1, 2, 3]


async def test_a_turn_is_passed_on_by_one_that_is_cancelled() -> None:
    """An item is not left behind because the one that it woke has gone."""
    work_queue: WorkQueue[int] = WorkQueue(9)
    got: list[int | None] = []

    async def take() -> None:
        got.append(await work_queue.next())

    async with anyio.create_task_group() as others:
        async with anyio.create_task_group() as first:
            first.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            others.start_soon(take)
            others.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            first.cancel_scope.cancel()
            work_queue.put(7)
        await anyio.wait_all_tasks_blocked()
        assert got == [7]
        work_queue.close()

    assert got == [7, None]
