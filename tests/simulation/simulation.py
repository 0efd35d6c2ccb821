"""
Simulates a scenario from its beginning to its end, under the eyes of all oracles.

    scenario -> loop, network, servers and users (`world`), replicas -> history and violations

Call it once in a process: what is left of the killed is never cleaned up.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextvars import Context
from random import Random
from typing import Final

import attrs

from neuron_scheduler.kube.watch import informer
from neuron_scheduler.telemetry import logs
from tests.simulation import clock
from tests.simulation.clock import BOOTED, CLOCK
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop, StuckError, keep_order
from tests.simulation.network import Network
from tests.simulation.oracles.watching import watching
from tests.simulation.process import Process, current
from tests.simulation.replica import Replica, plan_faults
from tests.simulation.scenario import Deed, FaultWindows, Scenario
from tests.simulation.world import World

MOST_STEPS: Final = 3_000_000
"""Steps of a simulation; a usual one takes some ten thousand."""
ROLLOUT: Final = 2.0
"""Seconds within which all replicas are started."""
CATCHES_UP: Final = 7
"""In one seed of so many, new leaders wait for their watch as in a large cluster: 0.2 s for each pod."""


@attrs.frozen
class Outcome:
    """A scenario, and what became of it."""

    scenario: Scenario
    history: History


def simulate(scenario: Scenario) -> Outcome:
    """Simulate a scenario in this process."""
    clock.begin(scenario.seed, scenario.per_look)
    keep_order()
    if scenario.seed % CATCHES_UP == 1:
        informer.MANY, informer.LISTED = 0, 5  # type: ignore[misc]  # a constant of the real process
    history = History(lambda: CLOCK.now)
    windows = FaultWindows(scenario.seed, scenario.faults, history.struck)
    network = Network(seed=scenario.seed, faults=windows)
    loop = SimulatedLoop(network, most_steps=MOST_STEPS)
    logs.configure(stream=_Lines(history))  # type: ignore[arg-type]  # all that is needed of a stream
    try:
        played = loop.create_task(_played(scenario, loop, network, windows, history))
        played.add_done_callback(lambda _played: loop.stop())  # it ends early by an error only
        loop.run_forever()
        if played.done():
            played.result()
    except StuckError as error:
        history.violation("progress", str(error))
    return Outcome(scenario, history)


async def _played(
    scenario: Scenario, loop: SimulatedLoop, network: Network, windows: FaultWindows, history: History
) -> None:
    world = World(scenario, network, windows, history)
    async with world.serving():
        replicas = _replicas(scenario, world, history)
        oracles = watching(scenario, world, replicas, history)
        loop.stepped = oracles.stepped
        plan_faults(scenario, replicas, history.struck)
        _plan(loop, world, iter(scenario.deeds))
        await asyncio.sleep(BOOTED + scenario.ends_at - loop.time())
        oracles.ended()
        history.line("simulation", f"ends after {CLOCK.now:.0f} s")
        loop.stop()
        await loop.create_future()  # nothing is cleaned up: that would be a part of no history


def _plan(loop: SimulatedLoop, world: World, deeds: Iterator[Deed]) -> None:
    """Have the deeds done in their order, also those of one moment: the loop's timers of one time have no order."""
    deed = next(deeds, None)
    if deed is None:
        return

    def do() -> None:
        _plan(loop, world, deeds)
        world.do(deed)

    loop.call_at(BOOTED + deed.at, do, context=Context())


def _replicas(scenario: Scenario, world: World, history: History) -> Mapping[str, Replica]:
    """Start the replicas, one soon after the other."""
    loop, dice = asyncio.get_running_loop(), Random(f"{scenario.seed}/replicas")
    names = [f"scheduler-{number}" for number in range(scenario.replicas)]
    replicas = {
        name: Replica(name=name, config=world.config, dice=Random(f"{scenario.seed}/{name}"), note=history.line)
        for name in names
    }
    for replica in replicas.values():
        loop.call_later(dice.uniform(0, ROLLOUT), replica.start, context=Context())
    return replicas


@attrs.define(eq=False)
class _Lines:
    """The stderr of all processes."""

    history: History

    def write(self, text: str) -> int:
        """Note lines of the process that writes them."""
        process: Process | None = current()
        for line in text.splitlines():
            self.history.log("world" if process is None else process.name, line)
        return len(text)

    def flush(self) -> None:
        """Do nothing."""
