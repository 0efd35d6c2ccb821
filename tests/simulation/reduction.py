"""
What can be left out of a scenario, by name: `d3` is its third deed, `f1` its first fault, `n2` its second node, and
`r2` its second replica.

Refuses to choose: that is for `smaller`.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

import attrs

from tests.simulation.scenario import Scenario

T = TypeVar("T")


def parts_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of all parts that can be left out; one replica and one node stay."""
    return (
        *(f"f{number}" for number in range(1, len(scenario.faults) + 1)),
        *(f"d{number}" for number in range(1, len(scenario.deeds) + 1)),
        *(f"r{number}" for number in range(2, scenario.replicas + 1)),
        *(f"n{number}" for number in range(2, len(scenario.nodes) + 1)),
    )


def listed(scenario: Scenario, left_out: Collection[str] = ()) -> str:
    """Return a text with everything that is left of a scenario, each part with its name."""
    own_http = "its own HTTP client" if scenario.own_http else "aiohttp"
    fence = "with" if scenario.fenced else "without"
    lease = ", ".join(f"{seconds:g}" for seconds in scenario.lease)
    replicas = scenario.replicas - sum(part.startswith("r") for part in left_out)
    head = (
        f"seed {scenario.seed}: {replicas} replicas over {own_http}, {scenario.api_servers} API servers {fence} the "
        f"fence, Lease {lease} s, quiet from {scenario.quiet_at:g} s, ends at {scenario.ends_at:g} s"
    )
    parts = (f"  {name:>4} {text}" for name, text in _named(scenario) if name not in left_out)
    return "\n".join((head, *parts))


def _named(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for number, node in enumerate(scenario.nodes, start=1):
        yield f"n{number}", " ".join(node)
    for number, deed in enumerate(scenario.deeds, start=1):
        yield f"d{number}", f"{deed.at:.3f} s: {deed}"
    for number, fault in enumerate(scenario.faults, start=1):
        yield f"f{number}", str(fault)


def without(scenario: Scenario, parts: Collection[str]) -> Scenario:
    """
    Return the scenario without some of its parts.

    Raises:
        ValueError: it has no such part.
    """
    unknown = sorted(set(parts) - set(parts_of(scenario)))
    if unknown:
        raise ValueError(f"the scenario of seed {scenario.seed} has no {', '.join(unknown)}")
    return attrs.evolve(
        scenario,
        faults=_rest("f", scenario.faults, parts),
        deeds=_rest("d", scenario.deeds, parts),
        nodes=_rest("n", scenario.nodes, parts),
        replicas=scenario.replicas - sum(part.startswith("r") for part in parts),
    )


def _rest(letter: str, values: Sequence[T], parts: Collection[str]) -> tuple[T, ...]:
    return tuple(value for number, value in enumerate(values, start=1) if f"{letter}{number}" not in parts)
