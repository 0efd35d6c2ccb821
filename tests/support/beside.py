"""A server in another thread, so that a command which runs its own event loop can ask it from this one."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from anyio.from_thread import start_blocking_portal

T = TypeVar("T")


@contextmanager
def beside(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Run a server as long as the block lasts."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server) as served:
        yield served
