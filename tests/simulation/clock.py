"""
Virtual time: seconds pass when the simulated loop says so, for all code that reads a clock.

`install` replaces the functions of `time`, and the source of random bytes, before any other module is imported:
libraries keep references to them. `datetime.now` cannot be replaced, because msgspec knows the class; the package
reads the wall clock through `time.time`. Refuses to sleep: code that blocks the event loop raises. Imports next to
nothing.
"""

import os
import random
import sys
import time
from collections.abc import Callable
from typing import Final, NoReturn, SupportsIndex

START: Final = 1_800_000_000
"""The wall-clock second at which each simulation starts."""
BOOTED: Final = 10_000
"""Monotonic seconds at the start."""
_LATE: Final = ("asyncio", "anyio", "aiohttp", "attrs", "neuron_scheduler")
_NS: Final = 1_000_000_000


class VirtualClock:
    """
    The time of one simulation.

    Attributes:
        now: seconds since the start.
        per_look: seconds that pass while code looks at the monotonic clock. A step that never looks takes no time, and
            one that looks again and again, to pause when its turn is over, takes as long as its work would.
        wall_offset: returns by how many seconds the wall clock of the process that asks is wrong.
        bytes: where random bytes come from.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.per_look = 0.0
        self.wall_offset: Callable[[], float] = float
        self.bytes = random.Random(0)

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        self.now += self.per_look
        return BOOTED + self.now

    def time(self) -> float:
        """Return seconds since 1970 as the process that asks believes them to be."""
        return START + self.now + self.wall_offset()


CLOCK: Final = VirtualClock()
"""The clock of this interpreter, which simulates one seed."""


def install() -> None:
    """
    Let all code read the virtual clock from now on.

    Raises:
        RuntimeError: a module that keeps references to the real functions is imported already.
    """
    early = [name for name in _LATE if name in sys.modules]
    if early:
        raise RuntimeError(f"install the virtual clock before importing {', '.join(early)}")
    for monotonic in ("monotonic", "perf_counter", "thread_time", "process_time"):
        setattr(time, monotonic, CLOCK.monotonic)
        setattr(time, f"{monotonic}_ns", lambda: int(CLOCK.monotonic() * _NS))
    time.time = CLOCK.time
    time.time_ns = lambda: int(CLOCK.time() * _NS)
    time.clock_gettime = lambda clock: CLOCK.time() if clock == time.CLOCK_REALTIME else CLOCK.monotonic()
    os.getpid = lambda: 1  # as in a container; it is in each log line
    time.sleep = _refuse_to_sleep
    os.urandom = _random_bytes
    random._urandom = os.urandom  # type: ignore[attr-defined]  # what `secrets` reads


def begin(seed: int, per_look: float = 0.0) -> None:
    """Start the time of a simulation, and seed all randomness that the code under test draws."""
    CLOCK.now, CLOCK.per_look = 0.0, per_look
    CLOCK.bytes = random.Random(f"{seed}/bytes")
    random.seed(f"{seed}/random")


def _random_bytes(size: int, /) -> bytes:
    return CLOCK.bytes.randbytes(size)


def _refuse_to_sleep(_seconds: SupportsIndex | float, /) -> NoReturn:
    raise RuntimeError("this blocks the event loop")
