"""A bounded queue for tasks that wait."""

import anyio
import anyio.lowlevel

from neuron_scheduler.work_queue import WorkQueue


async def test_a_work_queue() -> None:
    """First in, first out; full or closed it refuses all but pushed items; its end reaches every waiting task."""
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


async def test_an_item_wakes_one_waiting_task() -> None:
    """Dozens of tasks may wait; all but one of them would wake for nothing."""
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
    """A caller that may wait is delayed instead of refused."""
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
    """An item is not left behind because the task that it woke is gone."""
    work_queue: WorkQueue[int] = WorkQueue(9)
    got: list[int | None] = []

    async def take() -> None:
        got.append(await work_queue.next())

    async with anyio.create_task_group() as rest:
        async with anyio.create_task_group() as first:
            first.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            rest.start_soon(take)
            rest.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            first.cancel_scope.cancel()
            work_queue.put(7)
        await anyio.wait_all_tasks_blocked()
        assert got == [7]
        work_queue.close()

    assert got == [7, None]
