"""
Processes of the simulated machines: what the kernel does to them.

All of them share one event loop. Each step of the loop belongs to the process in whose context it was scheduled: a
process that is stopped keeps its steps for later, and one that is killed loses them.
"""

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Final

import attrs

from tests.simulation.clock import CLOCK

KILLED: Final = 137


PROCESS: ContextVar["Process | None"] = ContextVar("PROCESS", default=None)
"""The process to which the code that runs belongs; None for the world outside of all processes."""


@attrs.define(eq=False)
class Process:
    """
    One process.

    Attributes:
        name: of the machine or pod; a successor has the same.
        ended: called once with the exit code.
        exit_code: None while it lives; 137 if it was killed.
        wall_offset: seconds by which its wall clock is wrong.
    """

    name: str
    ended: Callable[["Process"], None]
    exit_code: int | None = None
    wall_offset: float = attrs.field(default=0.0, init=False)
    _stopped_until: float = attrs.field(default=0.0, init=False)
    _kept: list[asyncio.Handle] = attrs.field(factory=list, init=False)
    _remains: list[object] = attrs.field(factory=list, init=False)
    _at_end: list[Callable[[], None]] = attrs.field(factory=list, init=False)

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def context(self) -> Context:
        """Return a new context in which code belongs to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def at_end(self, function: Callable[[], None]) -> None:
        """Call a function when the process has ended, such as one that closes a connection."""
        self._at_end.append(function)

    def stop(self, seconds: float) -> None:
        """Run no step for so many seconds: SIGSTOP and SIGCONT, or one long step."""
        loop = asyncio.get_running_loop()
        self._stopped_until = max(self._stopped_until, loop.time() + seconds)
        loop.call_at(self._stopped_until, self._go_on, context=Context())

    @property
    def is_stopped(self) -> bool:
        return self._stopped_until > 0

    def keep(self, handle: asyncio.Handle) -> None:
        """Keep a step of a process that is stopped, or that has ended: nothing of it may be finalized."""
        if self.alive:
            self._kept.append(handle)
        else:
            self._remains.append(handle)

    def end(self, exit_code: int) -> None:
        """End at once: no further step runs, and no `finally`; connections are reset."""
        if not self.alive:
            return
        self.exit_code = exit_code
        self._remains.extend(self._kept)
        self._kept.clear()
        self._remains.extend(self.tasks)
        for function in self._at_end:
            function()
        self.ended(self)

    @property
    def tasks(self) -> list[asyncio.Task[object]]:
        """The tasks that have not ended, in no order."""
        return [task for task in asyncio.all_tasks() if getattr(task, "process", None) is self]

    def _go_on(self) -> None:
        loop = asyncio.get_running_loop()
        if not self.alive or self._stopped_until > loop.time():
            return
        self._stopped_until = 0.0
        loop._ready.extend(self._kept)  # type: ignore[attr-defined]  # in the order in which they came
        self._kept.clear()


def current() -> Process | None:
    """Return the process to which the code that runs belongs."""
    return PROCESS.get()


def _offset_of_current() -> float:
    process = current()
    return 0.0 if process is None else process.wall_offset


def _host_name() -> str:
    process = current()
    return "world" if process is None else process.name


CLOCK.wall_offset = _offset_of_current
socket.gethostname = _host_name  # a pod's is its name
