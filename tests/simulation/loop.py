"""
An event loop on which time passes only when nothing else can happen.

Each step takes a few microseconds of virtual time, so that code which waits for a clock comes to its end. Steps belong
to processes (`process`), and connections are in memory (`network`). Refuses threads, files, signals and real sockets:
what the code under test does with them has to be given to it in another form.
"""

import asyncio
import heapq
import itertools
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final

from anyio._backends import _asyncio as backend

from tests.simulation.clock import BOOTED, CLOCK
from tests.simulation.network import Network
from tests.simulation.process import PROCESS, Process

STEP: Final = 0.000_02
"""Virtual seconds that a step takes."""


class StuckError(Exception):
    """Nothing can happen any more, or far too much does."""


class SimulatedTask(asyncio.Task[Any]):
    """A task whose hash does not depend on its place in memory: sets of tasks are iterated."""

    _numbers = itertools.count()

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, context: Context | None = None, **options: Any) -> None:
        self.number = next(self._numbers)
        self.process = PROCESS.get() if context is None else context.get(PROCESS)
        super().__init__(coroutine, context=context, **options)

    def __hash__(self) -> int:
        return self.number


class _InOrder(dict[Any, None]):
    """A set that is iterated in the order of insertion."""

    def add(self, element: object) -> None:
        self[element] = None

    def remove(self, element: object) -> None:
        del self[element]

    def discard(self, element: object) -> None:
        self.pop(element, None)


class SimulatedLoop(asyncio.BaseEventLoop):
    """
    The loop.

    Attributes:
        network: all connections.
        steps: how many have run.
        most_steps: how many may run; more mean that something turns without an end.
        stepped: called after each step of a process.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, network: Network, *, most_steps: int) -> None:
        super().__init__()
        self.network = network
        self.steps = 0
        self.most_steps = most_steps
        self.stepped: Callable[[Process], None] = lambda _process: None
        self.set_task_factory(_new_task)  # type: ignore[arg-type]  # typeshed knows no `context`

    def time(self) -> float:
        """Return the monotonic seconds of the virtual clock."""
        return BOOTED + CLOCK.now

    def _run_once(self) -> None:
        self._let_time_pass()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process is None:
                handle._run()
            elif not process.alive or process.is_stopped:
                process.keep(handle)
            else:
                handle._run()
                self.stepped(process)
            CLOCK.now += STEP
            self.steps += 1
        if self.steps > self.most_steps:
            raise StuckError(f"{self.steps:,} steps, and no end")

    def _let_time_pass(self) -> None:
        """Make the timers that are due ready; if nothing is ready, go to the next one."""
        timers = self._scheduled
        while timers and timers[0].cancelled():
            heapq.heappop(timers)._scheduled = False  # type: ignore[attr-defined]
        if not self._ready and not self._stopping:
            if not timers:
                raise StuckError("nothing can happen any more")
            CLOCK.now = max(CLOCK.now, timers[0].when() - BOOTED)
        due = self.time() + 1e-9
        while timers and timers[0].when() <= due:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(timer)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> list[Any]:
        """Return the address itself: there are no names."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect in memory; the socket is a number and no more."""
        await self.network.connect(sock.fileno(), address)

    async def create_connection(self, protocol_factory: Any, *_place: Any, sock: Any = None, **_options: Any) -> Any:
        """Return the transport and protocol of a connected socket."""
        transport = self.network.open(sock.fileno(), protocol_factory)
        sock.close()
        return transport, transport.protocol

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_options: Any) -> Any:
        """Listen in memory."""
        process = PROCESS.get()
        return self.network.listen((host, port), protocol_factory, "world" if process is None else process.name)

    def run_in_executor(  # type: ignore[override]  # what runs it is not chosen by the caller
        self, _executor: Any, function: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run a function at once: a thread would end at a time of its own."""
        future: asyncio.Future[Any] = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
            future.set_exception(error)
        return future

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped when it is due."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread."""

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there is no selector."""


def _new_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], context: Context | None = None
) -> SimulatedTask:
    return SimulatedTask(coroutine, loop=loop, context=context)


def keep_order() -> None:
    """Let anyio's scopes cancel in the order in which tasks and scopes were made, not in that of addresses."""
    scope = backend.CancelScope
    original = scope.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._child_scopes, self._tasks = _InOrder(), _InOrder()

    scope.__init__ = init  # type: ignore[method-assign]
