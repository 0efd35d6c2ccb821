"""
Seeds with turns: one in 32.

Pods for whole machines wait while pieces of both machines come free. Later pods of the same priority may not take the
pieces that are kept, those of a higher priority take them; for half of the seeds the leader is killed meanwhile.
"""

from random import Random
from typing import Final

import attrs

from tests.simulation.deed_choices import OTHER_NAMESPACE
from tests.simulation.deeds import CreatePod
from tests.simulation.hard_cases import alone, more, once
from tests.simulation.pod_plans import PodPlan
from tests.simulation.scenario import Deed, Scenario

EVERY: Final = 32
TURN: Final = 30
"""What is left when a seed with turns is divided by `EVERY`."""
_QUIET: Final = 170.0


def with_turns(scenario: Scenario) -> Scenario:
    """Return a scenario whose profile gives turns, and whose pods need them, if its seed is one of these."""
    if scenario.seed % EVERY != TURN:
        return scenario
    dice = Random(f"{scenario.seed}/turns")
    nodes = tuple((f"n{number}", "trn1.32xlarge") for number in (1, 2))
    fields = {"controllers": False, "per_look": 0.0, "turn_after": 20.0, "quiet_at": _QUIET, "ends_at": _QUIET + 45}
    case = alone(scenario, until=999.0, nodes=nodes, page_size=0, bind_concurrency=48, replicas=2, **fields)
    deeds: list[Deed] = []
    for number in range(8):
        seconds = dice.uniform(9, 15) if number % 4 < 2 else dice.choice((0.0, dice.uniform(60, 160)))
        deeds.append(_pod(f"s{number}", 1 + number / 10, 4, seconds=seconds, priority="urgent"))  # nobody evicts it
    deeds += [_pod(f"w{number}", 4.0 + number, 16) for number in range(dice.choice((1, 2)))]
    deeds += [_pod(f"l{number}", dice.uniform(100, 160), 4) for number in range(dice.choice((0, 2, 3)))]
    deeds += [_pod(f"u{number}", dice.uniform(100, 160), 8, priority="urgent") for number in range(dice.choice((0, 2)))]
    kills = [once("killed", round(dice.uniform(20, 150), 3), 0)] * dice.choice((0, 1))
    case = more(case, deeds, kills)
    return attrs.evolve(case, deeds=tuple(sorted(case.deeds, key=lambda deed: deed.at)))


def _pod(name: str, at: float, devices: int, *, seconds: float = 0.0, priority: str = "") -> CreatePod:
    plan = PodPlan(name=name, namespace=OTHER_NAMESPACE, devices=(devices,), cpu=0, seconds=seconds, priority=priority)
    return CreatePod(at=round(at, 3), pod=plan)
