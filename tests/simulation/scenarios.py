"""
Makes a scenario from a seed: a small cluster at its limits, users who change their minds, and a few kinds of faults.

A seed chooses few kinds and lets each strike often, sometimes many, sometimes none: then only the order of things is by
chance. `deed_choices` and `fault_choices` choose the parts; `hard_cases` adds to a few, `group_cases`, `turn_cases` and
`claim_cases` make others.
"""

from random import Random
from typing import Final

from tests.simulation import claim_cases, fault_choices, group_cases, hard_cases, hard_groups, turn_cases
from tests.simulation.deed_choices import OTHER_NAMESPACE, deeds_of_nodes, deeds_of_pods, nodes_of
from tests.simulation.deeds import CreateNamespace
from tests.simulation.scenario import Deed, Scenario

QUIET: Final = 45.0
"""Seconds at the end in which nothing goes wrong any more, and nobody does anything."""

SLOW: Final = 6
"""What is left when a seed whose machines are slow is divided by eight."""


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    dice = Random(f"{seed}/scenario")
    quiet_at = float(dice.choice((25, 40, 40, 60)))
    nodes = nodes_of(dice)
    controllers = dice.random() < 0.2
    deeds: list[Deed] = [CreateNamespace(at=0.0, name=OTHER_NAMESPACE)]
    deeds += deeds_of_pods(dice, nodes, quiet_at, controllers=controllers)
    deeds += deeds_of_nodes(dice, nodes, quiet_at)
    scenario = Scenario(
        seed=seed,
        replicas=dice.choice((1, 2, 2, 2, 3)),
        api_servers=dice.choice((1, 1, 2)),
        fenced=dice.random() < 0.85,
        lease=dice.choice(((15.0, 10.0, 2.0), (15.0, 10.0, 2.0), (6.0, 4.0, 1.0))),
        page_size=dice.choice((0, 0, 3)),
        controllers=controllers,
        nodes=nodes,
        deeds=tuple(deeds),
        per_look=Random(f"{seed}/machines").choice(hard_groups.SLOW) if seed % 8 == SLOW else 0.0,
        quiet_at=quiet_at,
        ends_at=quiet_at + QUIET,
    )
    chosen = group_cases.with_groups(hard_cases.with_hard_case(fault_choices.with_faults(scenario, dice)))
    return claim_cases.with_claims(turn_cases.with_turns(chosen))
