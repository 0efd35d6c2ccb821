"""
What happens to processes in a scenario: they are killed, stopped, asked to end, or get a wrong clock.

Each happens once, at its time. A scheduler has to bear all of them: nodes fail, kernels stop a container that has used
its share of the CPU, `kubectl rollout` ends a pod, and a clock is set. Refuses to do anything to API servers: `world`
does.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Final

from tests.simulation.clock import BOOTED
from tests.simulation.process import KILLED
from tests.simulation.replica import Replica
from tests.simulation.scenario import Fault, Scenario


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


def plan(scenario: Scenario, replicas: Mapping[str, Replica], struck: Callable[[str, str], None]) -> None:
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
