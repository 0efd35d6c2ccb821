"""
Let a command of a person end when it is interrupted.

SIGINT (Ctrl-C) and SIGTERM cancel the work, so that its connections are closed and a screen is given back. Does not
be used by the scheduler's process, whose requests to stop are in `stopping`.
"""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def interruptible() -> AsyncIterator[None]:
    """End the block without an error when a signal comes; errors of the block leave it in an ExceptionGroup."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
