"""
Processes of the simulated machines: what the kernel does to them.

All of them share one event loop. Each step of the loop belongs to the process, and the thread, in whose context it was
scheduled: a process that is stopped keeps its steps for later, and one that is killed loses them. Refuses to know what
a process does.
"""

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Final

import attrs

from tests.simulation.clock import CLOCK

KILLED: Final = 137


@attrs.frozen(eq=False)
class Thread:
    """A thread of a process; its steps are run one at a time, in their order."""

    process: "Process"
    name: str


THREAD: ContextVar[Thread | None] = ContextVar("THREAD", default=None)
"""The thread to which the code that runs belongs; None for the world outside of all processes."""


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
    _stopped: dict[str, float] = attrs.field(factory=dict, init=False)  # thread, or "" for all: until when
    _kept: dict[str, list[asyncio.Handle]] = attrs.field(factory=dict, init=False)
    _remains: list[object] = attrs.field(factory=list, init=False)
    _at_end: list[Callable[[], None]] = attrs.field(factory=list, init=False)

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.exit_code is None

    def context(self, thread: str = "main") -> Context:
        """Return a new context in which code belongs to a thread of this process."""
        context = copy_context()
        context.run(THREAD.set, Thread(self, thread))
        return context

    def at_end(self, function: Callable[[], None]) -> None:
        """Call a function when the process has ended, such as one that closes a connection."""
        self._at_end.append(function)

    def stop(self, seconds: float, *, thread: str = "") -> None:
        """Run no step for so many seconds, of a thread (one long step) or of the whole process (SIGSTOP, SIGCONT)."""
        loop = asyncio.get_running_loop()
        self._stopped[thread] = max(self._stopped.get(thread, 0.0), loop.time() + seconds)
        loop.call_at(self._stopped[thread], self._go_on, thread, context=Context())

    def is_stopped(self, thread: str) -> bool:
        """Return whether a thread runs no step now."""
        return "" in self._stopped or thread in self._stopped

    def keep(self, thread: str, handle: asyncio.Handle) -> None:
        """Keep a step of a thread that is stopped, or of a process that has ended: nothing of it may be finalized."""
        if self.alive:
            self._kept.setdefault(thread, []).append(handle)
        else:
            self._remains.append(handle)

    def end(self, exit_code: int) -> None:
        """End at once: no further step runs, and no `finally`; connections are reset."""
        if not self.alive:
            return
        self.exit_code = exit_code
        self._remains.extend(self._kept.values())
        self._kept.clear()
        self._remains.extend(self.tasks)
        for function in self._at_end:
            function()
        self.ended(self)

    @property
    def tasks(self) -> list[asyncio.Task[object]]:
        """The tasks that have not ended, in no order."""
        return [
            task for task in asyncio.all_tasks() if (thread := getattr(task, "thread", None)) and thread.process is self
        ]

    def _go_on(self, thread: str) -> None:
        loop = asyncio.get_running_loop()
        if not self.alive or self._stopped.get(thread, 0.0) > loop.time():
            return
        self._stopped.pop(thread, None)
        for name in [name for name in self._kept if not self.is_stopped(name)]:
            loop._ready.extend(self._kept.pop(name))  # type: ignore[attr-defined]  # in the order in which they came


def current() -> Process | None:
    """Return the process to which the code that runs belongs."""
    thread = THREAD.get()
    return None if thread is None else thread.process


def _offset_of_current() -> float:
    process = current()
    return 0.0 if process is None else process.wall_offset


def _host_name() -> str:
    process = current()
    return "world" if process is None else process.name


CLOCK.wall_offset = _offset_of_current
socket.gethostname = _host_name  # a pod's is its name
