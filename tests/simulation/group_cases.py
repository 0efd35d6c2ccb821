"""
Seeds with groups of pods that start together: two in sixteen, one with the faults that it has anyway, the other one
with a case of `hard_groups` and none.

Groups compete with each other and with single pods for a few machines, and are made in ways that are hard: member by
member in turns, late, never complete, restarted under the same name while the old pods end. Bindings are refused now
and then for half of them, and the leader is killed in the middle for half.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

import attrs

from tests.simulation import hard_groups
from tests.simulation.deed_choices import after, moment
from tests.simulation.deeds import (
    Annotate,
    BindElsewhere,
    CreatePod,
    DeletePod,
    Finalize,
    LabelNode,
    OpenGate,
    RecreatePod,
)
from tests.simulation.fault_choices import bearable, longest
from tests.simulation.hard_cases import EVERY, always, more, once
from tests.simulation.http_faults import LATE
from tests.simulation.pod_plans import ULTRASERVER, PodPlan
from tests.simulation.scenario import Deed, Fault, Scenario

TURNS: Final = (5, 13)
"""What is left when a seed with groups is divided by `EVERY`."""
HARD: Final = TURNS[1]
REFUSALS: Final = ("403 rights", "403 rights", "500", "429")


def with_groups(scenario: Scenario) -> Scenario:
    """Return a scenario whose pods are those of groups and their rivals, if its seed is one of these."""
    if scenario.seed % EVERY not in TURNS:
        return scenario
    dice = Random(f"{scenario.seed}/groups")
    if scenario.seed % EVERY == HARD:
        case = hard_groups.CASES[scenario.seed // EVERY % len(hard_groups.CASES)](scenario, dice)
        return attrs.evolve(case, deeds=tuple(sorted(case.deeds, key=lambda deed: deed.at)))
    count, kind = dice.choice((2, 3, 3, 4, 5)), dice.choice(("trn1.32xlarge", "trn2.48xlarge"))
    nodes = tuple((f"n{number}", kind) for number in range(1, count + 1))
    kept = [deed for deed in scenario.deeds if not hasattr(deed, "pod") and (not hasattr(deed, "name") or deed.at <= 0)]
    case = attrs.evolve(scenario, nodes=nodes, deeds=tuple(kept), controllers=False)
    recipe = dice.random() < 0.25
    deeds: list[Deed] = [*_labels(dice, nodes)] if recipe else []
    began = [round(dice.uniform(0.5, case.quiet_at * 0.6), 3) for _ in range(dice.choice((1, 2, 2)))]
    ranks = Random(f"{scenario.seed}/priorities")
    for name, at in zip("gh", began, strict=False):
        size, priority = min(dice.choice((1, 2, 3, 3, 4)), count), ranks.choice(("", "", "low", "high", "urgent"))
        deeds += _group(dice, name, at, case.quiet_at, count=size, recipe=recipe, priority=priority)
    deeds += _rivals(dice, began, case.quiet_at)
    faults = [*_refusals(dice, case), *_kills(dice, case, began)]
    case = attrs.evolve(bearable(more(case, deeds, faults)), per_look=dice.choice((0.0, *hard_groups.SLOW)))
    return attrs.evolve(case, deeds=tuple(sorted(case.deeds, key=lambda deed: deed.at)))


def _labels(dice: Random, nodes: tuple[tuple[str, str], ...]) -> Iterator[Deed]:
    """Yield the labels of one UltraServer, which has the first four nodes, or too few."""
    for place, (node, _) in enumerate(nodes[: dice.choice((2, 4, 4))]):
        labels = ((ULTRASERVER, "u1"), (ULTRASERVER.replace("server-id", "node-id"), str(place)))
        yield LabelNode(at=0.05, node=node, labels=labels)


def _group(
    dice: Random, name: str, at: float, quiet_at: float, *, count: int, recipe: bool, priority: str
) -> list[Deed]:
    """Return the life of a group: it is made, and perhaps a member of it, or all of it, once more."""
    more_than_needed = dice.random() < 0.2
    fate = dice.choice(("stays", "stays", "restarted", "restarted", "one is deleted", "one comes again", "another's"))
    plan = PodPlan(
        name=name,
        devices=(dice.choice((16, 16, 16, 8, 4)),),
        cpu=0,
        priority=priority,
        grace=1,
        seconds=round(dice.uniform(5, 20), 1) if dice.random() < 0.4 else 0.0,
        gated=not recipe and dice.random() < 0.25,
        finalized=fate == "restarted",
        group=name,
        least=0 if recipe else max(1, count - more_than_needed),
    )
    members = [attrs.evolve(plan, name=f"{name}{number}") for number in range(count)]
    if dice.random() < 0.2:
        members[-1] = attrs.evolve(members[-1], node="n1")
    if not recipe and dice.random() < 0.15:
        members[0] = attrs.evolve(members[0], least=max(1, members[0].least + dice.choice((-1, 1))))
    if recipe and dice.random() < 0.3:
        members = [attrs.evolve(member, prefers=True) for member in members]
    if not recipe and dice.random() < 0.2:
        members += [attrs.evolve(member, name=f"{member.name}-later") for member in members[:2]]
    if dice.random() < 0.05:
        members[0] = attrs.evolve(members[0], scheduler="default-scheduler")
    if len(members) > 1 and dice.random() < 0.12:
        members.pop()
    deeds = [*_made(dice, members, at, quiet_at)]
    one, later = dice.choice(members), after(dice, at + 0.3, quiet_at)
    match fate:
        case "restarted":
            later = round(min(at + dice.uniform(1.0, 12.0), quiet_at - 2.0), 3)
            ended = round(later + dice.uniform(0.3, 1.5), 3)
            deeds += [DeletePod(at=later, name=member.name) for member in members]
            deeds += [Finalize(at=ended, name=member.name) for member in members]
            again = [attrs.evolve(member, name=f"{member.name}b", finalized=False) for member in members]
            deeds += _made(dice, again, round(later + 0.01, 3), quiet_at, steps=(0.0, 0.3, 0.6))
        case "one is deleted":
            deeds.append(DeletePod(at=later, name=one.name, forced=dice.random() < 0.5))
        case "one comes again":
            deeds.append(RecreatePod(at=later, pod=attrs.evolve(one, gated=False) if not one.gated else one))
        case "another's":
            deeds.append(BindElsewhere(at=later, name=one.name, node="n1"))
    if dice.random() < 0.2:
        deeds.append(Annotate(at=after(dice, at, quiet_at), name=one.name))
    return deeds


def _made(
    dice: Random, members: list[PodPlan], at: float, quiet_at: float, steps: tuple[float, ...] = (0.0, 0.0, 0.4, 3.0)
) -> Iterator[Deed]:
    """Yield the creation of members, and the end of their gates: in a burst, in turns with other groups, or slowly."""
    step, gates = dice.choice(steps), dice.choice((0.001, 0.3))
    for number, member in enumerate(members):
        moment_of_it = round(min(at + number * step, quiet_at - 0.6), 3)
        yield CreatePod(at=moment_of_it, pod=member)
        if member.gated:
            lifted = min(at + len(members) * step + gates * number, quiet_at - 0.5)
            yield OpenGate(at=round(lifted, 4), name=member.name)


def _rivals(dice: Random, began: list[float], quiet_at: float) -> Iterator[Deed]:
    """Yield single pods at any time and beside the groups; one may be older, and let in only after a group."""
    for number in range(dice.choice((2, 4, 6))):
        soon = dice.choice(began) + dice.uniform(0.01, 1.5)
        at = dice.choice((moment(dice, 0.1, quiet_at), soon, soon))
        plan = PodPlan(
            name=f"r{number}",
            devices=(dice.choice((16, 16, 16, 8, 4)),),
            cpu=0,
            priority=dice.choice(("", "", "", "", "low", "high")),
            seconds=round(dice.uniform(2, 15), 1) if dice.random() < 0.7 else 0.0,
        )
        yield CreatePod(at=round(min(at, quiet_at - 0.5), 3), pod=plan)
    if dice.random() < 0.5:
        yield CreatePod(at=0.1, pod=PodPlan(name="older", devices=(16,), cpu=0, gated=True))
        opened = dice.choice(began) + dice.uniform(0.01, 1.0)
        yield OpenGate(at=round(min(opened, quiet_at - 0.5), 3), name="older")


def _refusals(dice: Random, case: Scenario) -> Iterator[Fault]:
    if dice.random() < 0.5:
        refused = always(case, "server refuses", "bindings", chance=0.3)
        yield attrs.evolve(refused, detail=dice.choice(REFUSALS))
    if dice.random() < 0.3:
        yield always(case, LATE, "bindings", round(min(0.8, longest(case)), 2), 0.4)


def _kills(dice: Random, case: Scenario, began: list[float]) -> Iterator[Fault]:
    """Yield the deaths of all replicas, one soon after the other, when a group has just been decided."""
    if dice.random() < 0.5:
        at = min(dice.choice(began) + dice.choice((0.03, 0.3, 1.0)), case.quiet_at - 1)
        for number in range(case.replicas):
            yield once("killed", round(min(at + dice.choice((0.0, 0.4)), case.quiet_at - 0.5), 3), number)
