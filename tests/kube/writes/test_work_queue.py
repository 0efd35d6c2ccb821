"""Items by due time; among those that are due, the namespaces take turns."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.kube.writes.work_queue import DelayingQueue
from tests.support.patience import PATIENCE


@attrs.define(eq=False)
class World:
    """A queue whose workers record their items and keep them until the test continues; calling it returns the time."""

    now: float = 0.0
    workers: int = 1
    share: int = 1
    begun: list[str] = attrs.field(factory=list)
    may_end: anyio.Event = attrs.field(factory=anyio.Event)
    queue: DelayingQueue[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.queue = DelayingQueue(clock=self, share=self.share)

    def __call__(self) -> float:
        return self.now

    async def work(self, item: str) -> None:
        """Take an item; those with a `!` hang."""
        self.begun.append(item)
        if item.endswith("!"):
            await self.may_end.wait()

    def add(self, *items: str, due: float = 0.0) -> None:
        """Add items; the first letter is the namespace."""
        for item in items:
            self.queue.add(item, item[0], due)


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[None]:
    """Run the workers during the block, and wait for their end."""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(world.workers):
                tasks.start_soon(world.queue.serve, world.work)
            yield
            await anyio.wait_all_tasks_blocked()
            world.may_end.set()
            world.queue.close()


async def test_namespaces_take_turns() -> None:
    """A thousand items of one namespace delay an item of another by one item."""
    world = World()
    world.add("a1", "a2", "a3", "b1", "c1", "b2")
    async with serving(world):
        pass
    assert world.begun == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_nothing_comes_before_it_is_due() -> None:
    """Items come in the order of their due times, not of their addition."""
    world = World()
    world.add("a3", due=30.0)
    world.add("a2", due=20.0)
    async with serving(world):
        await anyio.wait_all_tasks_blocked()
        assert world.begun == []
        world.now = 25.0
        world.add("b1")
        await anyio.wait_all_tasks_blocked()
        assert world.begun == ["b1", "a2"]
        assert len(world.queue) == 1
        world.now = 30.0


async def test_a_worker_wakes_by_itself() -> None:
    """A worker wakes at the due time without another item."""
    world = World()
    queue = DelayingQueue[str](clock=anyio.current_time, share=1)
    queue.add("a", "a", anyio.current_time() + 0.001)
    queue.close()
    with anyio.fail_after(PATIENCE):
        await queue.serve(world.work)
    assert world.begun == ["a"]


async def test_a_namespace_that_hangs_leaves_workers_to_others() -> None:
    """A namespace has its share of the workers; the rest of its items follow later."""
    world = World(workers=3, share=2)
    world.add("a1!", "a2!", "a3", "b1", "b2")
    async with serving(world):
        await anyio.wait_all_tasks_blocked()
        assert world.begun == ["a1!", "b1", "a2!", "b2"]
    assert world.begun[-1] == "a3"


async def test_what_is_put_back_while_it_closes_is_still_worked_on() -> None:
    """The queue ends empty."""
    queue = DelayingQueue[int](clock=lambda: 0.0, share=1)
    done: list[int] = []

    async def work(item: int) -> None:
        done.append(item)
        if item:
            queue.add(item - 1, "a", 0.0)

    queue.add(3, "a", 0.0)
    queue.close()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(queue.serve, work)
    assert done == [3, 2, 1, 0]


async def test_a_cancelled_worker_leaves_its_namespace_to_others() -> None:
    """Cancelling a worker ends only that worker."""
    world = World()
    world.add("a1!", "a2")
    with pytest.raises(TimeoutError), anyio.fail_after(0):
        await world.queue.serve(world.work)
    async with serving(world):
        pass
    assert world.begun == ["a1!", "a2"]
