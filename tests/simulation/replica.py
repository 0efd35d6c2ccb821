"""
One replica of the scheduler: the real `app` in a simulated process, started again when it ends, as a kubelet does.
"""

import asyncio
import contextlib
import contextvars
import signal
from collections.abc import Callable, Mapping
from contextvars import Context
from random import Random
from typing import Final

import attrs

from neuron_scheduler import app
from neuron_scheduler.commands.run import CLEAN, log_end
from neuron_scheduler.settings.config import Config
from neuron_scheduler.stopping import StopRequests
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.wiring import Parts
from tests.simulation.clock import BOOTED
from tests.simulation.process import KILLED, Process
from tests.simulation.scenario import Fault, Scenario

REFUSED: Final = 2
"""The exit code of a process whose configuration cannot work."""
RESTART: Final = (0.5, 3.0)
"""Seconds until a process that has ended is started again."""


@attrs.define(eq=False, kw_only=True)
class Replica:
    """
    A replica and its processes, one after the other.

    Attributes:
        note: called with a line about what happens to the processes.
        process: the last one; before the first, one that has ended.
        wall_offset: seconds by which the wall clock of its machine is wrong.
        parts: of that process; None until they are built.
        ends: its processes that have ended.
    """

    name: str
    config: Config
    dice: Random
    note: Callable[[str, str], None]
    process: Process = attrs.field(init=False)
    wall_offset: float = attrs.field(default=0.0, init=False)
    parts: Parts | None = attrs.field(default=None, init=False)
    ends: list[Process] = attrs.field(factory=list, init=False)
    _requests: StopRequests = attrs.field(factory=StopRequests, init=False)

    def __attrs_post_init__(self) -> None:
        self.process = Process(self.name, lambda _process: None, exit_code=CLEAN)

    def start(self) -> None:
        """Start a process."""
        self.process, self.parts, self._requests = Process(self.name, self._ended), None, StopRequests()
        self.process.wall_offset = self.wall_offset
        self._requests._notify = lambda: self.process.end(CLEAN)
        self.note(self.name, "started")
        context = self.process.context()
        context.run(asyncio.get_running_loop().create_task, self._main(self.process), context=context)

    def terminate(self) -> None:
        if self.process.alive:
            self._requests.receive(signal.SIGTERM)

    async def _main(self, process: Process) -> None:
        code = REFUSED
        with contextlib.suppress(ConfigurationError):
            with log_end() as end:
                async with app.build(self.config, self._requests) as scheduler:
                    self.parts = scheduler.parts
                    await scheduler.run()
            code = end.code
        process.end(code)

    def _ended(self, process: Process) -> None:
        self.ends.append(process)
        self.note(self.name, f"ended with {process.exit_code}")
        pause = self.dice.uniform(*RESTART)
        asyncio.get_running_loop().call_later(pause, self.start, context=contextvars.Context())


def _killed(replica: Replica, _fault: Fault) -> None:
    replica.process.end(KILLED)


def _stopped(replica: Replica, fault: Fault) -> None:
    replica.process.stop(fault.seconds)


def _terminated(replica: Replica, _fault: Fault) -> None:
    replica.terminate()


def _wrong_clock(replica: Replica, fault: Fault) -> None:
    """The wall clock jumps by so many seconds, also backwards; successors on that machine have the wrong one, too."""
    replica.wall_offset += fault.seconds
    replica.process.wall_offset = replica.wall_offset


KINDS: Final[Mapping[str, Callable[[Replica, Fault], None]]] = {
    "killed": _killed,
    "stopped": _stopped,
    "long step": _stopped,
    "terminated": _terminated,
    "wrong clock": _wrong_clock,
}


def plan_faults(scenario: Scenario, replicas: Mapping[str, Replica], struck: Callable[[str, str], None]) -> None:
    """Let the faults of processes happen at their times; one that finds its process dead has no effect."""
    loop = asyncio.get_running_loop()

    def strike(fault: Fault) -> None:
        replica = replicas[fault.target]
        if replica.process.alive:
            struck(fault.kind, fault.target)
            KINDS[fault.kind](replica, fault)

    for fault in scenario.faults:
        if fault.kind in KINDS and fault.target in replicas:
            loop.call_at(BOOTED + fault.at, strike, fault, context=Context())
