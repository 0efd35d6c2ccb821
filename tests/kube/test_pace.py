"""Waiting times, turns and queues: arithmetic without a clock."""

import anyio
import anyio.lowlevel

from neuron_scheduler.kube.backoff import Backoff
from neuron_scheduler.kube.rate import TokenBucket
from neuron_scheduler.kube.worklist import Worklist


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


def test_no_rate_no_limit() -> None:
    """Zero means unlimited."""
    assert max(TokenBucket(lambda: 0.0).take() for _ in range(100)) == 0.0


async def test_a_worklist() -> None:
    """First in, first out; full or closed it refuses, and its end is told to everyone who waits."""
    worklist: Worklist[int] = Worklist(2)
    got: list[int | None] = []

    async def take() -> None:
        while (item := await worklist.next()) is not None:
            got.append(item)
        got.append(None)

    assert [worklist.put(number) for number in range(3)] == [True, True, False]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        tasks.start_soon(take)
        while len(worklist):
            await anyio.lowlevel.checkpoint()
        assert worklist.put(7)
        worklist.close()
        assert not worklist.put(8)

    assert got == [0, 1, 7, None, None]
