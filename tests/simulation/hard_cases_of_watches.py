"""
Hard cases of watches whose lines are damaged: on top of what a seed has anyway, or while little else happens.

One has other answers with bytes that are no UTF-8. Refuses to lose a line, or to change a value into another valid one:
nobody can see that.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.simulation.case_parts import alone, always, more, pods, small
from tests.simulation.deeds import DeletePod, RecreatePod
from tests.simulation.hard_cases_of_news import damaged_lists
from tests.simulation.pod_plans import PodPlan
from tests.simulation.scenario import Deed, Fault, Scenario
from tests.simulation.watch_damage import GARBLED, GLUED, IDENTITY, LINES, VERSION

_NODES: Final = (("n1", "trn1.32xlarge"),)
_QUIET: Final = 40.0
_ENDS: Final = 85.0


def _damaged_lines(scenario: Scenario, dice: Random) -> Scenario:
    """Lines of the watches of pods, or of all, are damaged all the time, in a few ways."""
    target = dice.choice(("", "pods", "pods", "nodes"))
    chance = dice.choice((0.02, 0.1, 0.3))
    return more(scenario, faults=[always(scenario, kind, target, chance=chance) for kind in dice.sample([*LINES], 3)])


def _damaged_lines_of_a_full_node(scenario: Scenario, dice: Random) -> Scenario:
    """The only node is full, some of its pods end, and as many come at the same moment: each event counts."""
    case = alone(scenario, until=99.0, nodes=_NODES, replicas=2, quiet_at=_QUIET, ends_at=_ENDS)
    deeds: list[Deed] = [*pods("holds", 16, 0.5, grace=1)]
    for number in range(14):
        at = round(dice.uniform(5, 36), 3)
        deeds += [DeletePod(at=at, name=f"holds{number}"), small(f"asks{number}", at, devices=(1,))]
    kind = dice.choice((GARBLED, GARBLED, GLUED, IDENTITY))
    return more(case, deeds, [always(case, kind, "pods", chance=dice.choice((0.05, 0.15)))])


def _damaged_bookmarks(scenario: Scenario, dice: Random) -> Scenario:
    """
    Bookmarks have wrong versions, most of them the last ones of their watches; events are late. The only node is full.

    A watch from an earlier version would show for seconds how pods ended that have come again under their names since.
    """
    case = alone(scenario, until=99.0, nodes=_NODES, replicas=2, quiet_at=_QUIET, ends_at=_ENDS)
    deeds: list[Deed] = [*pods("holds", 16, 0.5), *pods("asks", 3, 9.0)]
    for number in range(6):
        again = PodPlan(name=f"holds{number}", devices=(1,), cpu=0)
        deeds.append(RecreatePod(at=round(3 + number / 2, 3), pod=again))
    deeds += [small(f"late{number}", dice.uniform(20, 39), devices=(1,)) for number in range(3)]
    late = Fault(kind="watch late", at=14.0, until=_QUIET, target="pods", seconds=0.3)
    return more(case, deeds, [always(case, VERSION, "BOOKMARK", chance=dice.choice((0.5, 1.0))), late])


def _damaged_at_the_end(scenario: Scenario, dice: Random) -> Scenario:
    """Each line of the watches of pods is damaged right before the last pods come."""
    quiet = scenario.quiet_at
    fault = Fault(kind=dice.choice([*LINES]), at=quiet - 8, until=quiet, target="pods")
    return more(scenario, [small(f"s{n}", dice.uniform(quiet - 7, quiet - 1)) for n in range(4)], [fault])


def _answers_that_are_no_text(scenario: Scenario, dice: Random) -> Scenario:
    """Lists are damaged as in another case, and other answers are, by bytes that a decoder may overlook."""
    case = damaged_lists(scenario, dice)
    faults = [*case.faults, always(case, "answer garbled", dice.choice(("gets", "bindings", "lease")), chance=0.1)]
    no_text = [attrs.evolve(fault, detail="no text") if fault.kind == "answer garbled" else fault for fault in faults]
    return attrs.evolve(case, faults=tuple(no_text))


CASES: Final[tuple[Callable[[Scenario, Random], Scenario], ...]] = (
    _damaged_lines,
    _damaged_lines_of_a_full_node,
    _damaged_bookmarks,
    _damaged_lines_of_a_full_node,
    _damaged_at_the_end,
    _answers_that_are_no_text,
)
