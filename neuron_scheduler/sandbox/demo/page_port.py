"""
One address for the page, whichever scheduler is the active one: a port that leads to its port.

The schedulers' own ports are free ones, and change with each restart, as a pod's address does in a cluster. Like
`kubectl port-forward` it passes bytes on, and ends a connection at once if there is no scheduler.
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
import anyio.abc

_HOST: Final = "127.0.0.1"


@asynccontextmanager
async def leading_to(port_now: Callable[[], int | None]) -> AsyncIterator[int]:
    """Listen while the block is open, on the port that it gets; `port_now` is where a new connection goes."""

    async def handle(client: anyio.abc.SocketStream) -> None:
        port = port_now()
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with client:
                if port is not None:
                    await _connect(client, port)

    listener = await anyio.create_tcp_listener(local_host=_HOST)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610 - not Django's
        tasks.cancel_scope.cancel()


async def _connect(client: anyio.abc.SocketStream, port: int) -> None:
    """Pass bytes on in both directions, until the scheduler ends its side."""
    async with await anyio.connect_tcp(_HOST, port) as scheduler, anyio.create_task_group() as tasks:
        tasks.start_soon(_pass_on, client, scheduler)
        await _pass_on(scheduler, client)
        tasks.cancel_scope.cancel()


async def _pass_on(source: anyio.abc.SocketStream, target: anyio.abc.SocketStream) -> None:
    with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for received in source:
            await target.send(received)
        await target.send_eof()
