"""
The share of the event loop that questions get: a few at a time, in steps, and each for a limited time.

The event loop that answers also schedules, so every other task may run after each step. A single question is answered
at once; many of them wait for their share. A question whose client has gone is cancelled by the server.
"""

import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import attrs

from neuron_scheduler.telemetry.errors import NeuronSchedulerError

AT_ONCE: Final = 2
WAITING: Final = 16
SECONDS: Final = 8.0
"""For one question, its wait for a turn included; a connection ends after 10 s."""
SHARE: Final = 0.2  # of the event loop's time in the long run
SAVED: Final = 0.5  # seconds of it that may be used before that: two pictures of a fleet of 5,000 machines

T = TypeVar("T")


class CrowdedError(NeuronSchedulerError):
    """Too many questions wait already."""


@attrs.define(eq=False, kw_only=True)
class Lane:
    """
    Where questions wait for their turn.

    Attributes:
        at_once: questions that are answered at a time.
        waiting: questions that may wait beside them.
        seconds: for each.
        clock: seconds, monotonic.
        cpu: seconds of CPU that this thread has used.
    """

    at_once: int = AT_ONCE
    waiting: int = WAITING
    seconds: float = SECONDS
    clock: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.thread_time
    _inside: int = attrs.field(default=0, init=False)
    _turns: anyio.Semaphore = attrs.field(init=False)
    _saved: float = attrs.field(default=SAVED, init=False)
    _saved_at: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = anyio.Semaphore(self.at_once)
        self._saved_at = self.clock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator["Turn"]:
        """
        Wait for a turn, and hold it inside the block.

        Raises:
            CrowdedError: too many wait already.
            TimeoutError: the time is over.
        """
        if self._inside >= self.at_once + self.waiting:
            raise CrowdedError("too many questions are being answered; try again")
        self._inside += 1
        try:
            with anyio.fail_after(self.seconds):
                async with self._turns:
                    yield Turn(self)
        finally:
            self._inside -= 1

    def pause(self) -> float:
        """Return how many seconds the next step has to wait for, because questions have used their share."""
        now = self.clock()
        self._saved = min(SAVED, self._saved + SHARE * (now - self._saved_at))
        self._saved_at = now
        return max(0.0, -self._saved / SHARE)

    def spend(self, cpu: float, elapsed: float = 0.0) -> None:
        """
        Count a step by the time for which it has kept the event loop, since that is what scheduling lacks.

        That is more than its CPU time where the machine or a CPU limit gives this process less than a whole CPU; but a
        process that was stopped for a while has lost that time for another reason.
        """
        self._saved -= max(cpu, min(elapsed, cpu / SHARE))


@attrs.frozen(eq=False)
class Turn:
    """The turn of one question."""

    _lane: Lane

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Take all steps and return the answer; every other task may run after each step."""
        while True:
            started, used = self._lane.clock(), self._lane.cpu()
            try:
                next(steps)
            except StopIteration as end:
                answer: T = end.value
                return answer
            finally:
                self._lane.spend(self._lane.cpu() - used, self._lane.clock() - started)
            await anyio.sleep(self._lane.pause())
