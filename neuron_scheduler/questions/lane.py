"""
The share of the event loop that questions get: a few at a time, in steps, and each for a limited time.

The event loop that answers also schedules, so every other task may run after each step. A question ends when nobody
waits for its answer any more. Refuses to know what is asked.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.errors import NeuronSchedulerError

AT_ONCE: Final = 2
WAITING: Final = 16
SECONDS: Final = 8.0
"""For one question, its wait for a turn included; a connection ends after 10 s."""

T = TypeVar("T")


class CrowdedError(NeuronSchedulerError):
    """Too many questions wait already."""


class ClientGoneError(NeuronSchedulerError):
    """Nobody waits for the answer any more."""


@attrs.define(eq=False, kw_only=True)
class Lane:
    """
    Where questions wait for their turn.

    Attributes:
        at_once: questions that are answered at a time.
        waiting: questions that may wait beside them.
        seconds: for each.
    """

    at_once: int = AT_ONCE
    waiting: int = WAITING
    seconds: float = SECONDS
    _inside: int = attrs.field(default=0, init=False)
    _turns: anyio.Semaphore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = anyio.Semaphore(self.at_once)

    @asynccontextmanager
    async def turn(self, gone: Callable[[], bool]) -> AsyncIterator[None]:
        """
        Wait for a turn, and hold it inside the block.

        Raises:
            CrowdedError: too many wait already.
            ClientGoneError: `gone` says that nobody waits for the answer.
            TimeoutError: the time is over.
        """
        if self._inside >= self.at_once + self.waiting:
            raise CrowdedError("too many questions are being answered; try again")
        self._inside += 1
        try:
            with anyio.fail_after(self.seconds):
                async with self._turns:
                    if gone():
                        raise ClientGoneError("the client has gone")
                    yield
        finally:
            self._inside -= 1


async def last(steps: Iterator[T | None], gone: Callable[[], bool]) -> T:
    """
    Run steps to their end, and return the last value; every other task may run after each step.

    Raises:
        ClientGoneError: nobody waits for the answer any more.
    """
    answer: T | None = None
    for answer in steps:
        if answer is None:
            await anyio.lowlevel.checkpoint()
            if gone():
                raise ClientGoneError("the client has gone")
    if answer is None:
        raise LookupError("the steps ended without an answer")
    return answer
