"""A command that is interrupted ends, and what it has opened is closed."""

import os
import signal

import anyio
import anyio.lowlevel
import pytest

from neuron_scheduler.interruption import interruptible
from tests.support.patience import PATIENCE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_the_block(number: signal.Signals) -> None:
    """The work is cancelled, its end is awaited, and the command goes on after the block."""
    steps = []
    with anyio.fail_after(PATIENCE):
        async with interruptible():
            try:
                await anyio.wait_all_tasks_blocked()  # the signal's receiver is open
                os.kill(os.getpid(), number)
                await anyio.sleep_forever()
            finally:
                steps.append("closed")
        steps.append("after")
    assert steps == ["closed", "after"]


async def test_a_block_that_ends_by_itself() -> None:
    """Nothing is awaited any more, and the signal is Python's own again."""
    before = signal.getsignal(signal.SIGINT)
    with anyio.fail_after(PATIENCE):
        async with interruptible():
            await anyio.lowlevel.checkpoint()
    assert signal.getsignal(signal.SIGINT) == before


async def test_an_error_leaves_the_block() -> None:
    """It comes in a group, as from every task group."""
    with pytest.raises(ExceptionGroup) as group:
        async with interruptible():
            raise ValueError("no cluster")
    assert group.group_contains(ValueError, match="no cluster")
