"""
A simulation of nothing, for tests of what runs simulations: some seeds fail, crash or never end.

It has the names of `tests.simulation.simulation` that the runner uses. Refuses to import the package.
"""

import attrs

from tests.simulation.clock import CLOCK
from tests.simulation.scenario import Fault, Scenario

FAILS, CRASHES, HANGS = 3, 4, 5
"""Seed 3 breaks a rule, as long as two of its faults and one deed are there."""


@attrs.frozen
class Deed:
    """A deed that has no effect."""

    at: float

    def done_in(self, world: object) -> None:
        """Do nothing."""


@attrs.frozen
class Violation:
    """As the oracles report it."""

    at: float
    oracle: str
    text: str


@attrs.define
class History:
    """What happened."""

    text: str
    violations: list[Violation]
    faults: dict[str, int]

    def printed(self) -> str:
        """Return the text."""
        return self.text

    def digest(self) -> str:
        """Return a digest."""
        return f"{len(self.text):x}"


@attrs.frozen
class Outcome:
    """The result."""

    scenario: Scenario
    history: History


def scenario_of(seed: int) -> Scenario:
    """Return a scenario of ten deeds and ten faults."""
    return Scenario(
        seed=seed,
        replicas=3,
        nodes=(("a", "trn1.32xlarge"), ("b", "trn1.32xlarge")),
        deeds=tuple(Deed(at) for at in range(10)),
        faults=tuple(Fault(kind="rain", at=at, until=at) for at in range(10)),
    )


def simulate(scenario: Scenario) -> Outcome:
    """Do what the seed says."""
    if scenario.seed == CRASHES:
        raise RuntimeError("a crash of the simulation")
    while scenario.seed == HANGS:
        CLOCK.now += 1
    faults, deeds = ({part.at for part in parts} for parts in (scenario.faults, scenario.deeds))
    broken = scenario.seed == FAILS and {2, 7} <= faults and 4 in deeds
    violations = [Violation(4.0, "dry shoes", "they are wet")] * broken
    text = f"{len(faults)} times it rained on {scenario.replicas} replicas and {len(scenario.nodes)} nodes"
    return Outcome(scenario, History(text, violations, {"rain": len(faults)}))
