"""
Seeds with claims: two in sixteen, with the faults that they have anyway, and more of what claims can meet.

Nodes give devices by slices, which change, go and come again with their drivers. Pods have claims of templates, several
claims, or share one; some are members of groups. Writes of claims are late, lost, refused and sent again, the watch of
claims is late or dies, and the leader is killed right when it writes, or goes on to write when another one leads.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

import attrs

from tests.simulation.claim_deeds import ALL, CreateClaim, DeleteClaim, Publish
from tests.simulation.deed_choices import after, moment
from tests.simulation.deeds import (
    Annotate,
    BindElsewhere,
    CreateNode,
    CreatePod,
    DeleteNode,
    DeletePod,
    OpenGate,
    RecreatePod,
    SetHealthy,
    TakeLease,
)
from tests.simulation.fault_choices import bearable, longest
from tests.simulation.hard_cases import EVERY, always, more, once
from tests.simulation.http_faults import AFTER, BEFORE
from tests.simulation.pod_plans import PodPlan
from tests.simulation.scenario import Deed, Fault, Scenario
from tests.simulation.watch_cache import LAG

TURNS: Final = (0, 12)
"""What is left when a seed with claims is divided by `EVERY`."""
KIND: Final = "m5.xlarge"
"""What the nodes say; their devices are in slices."""
WANTED: Final = (("one",), ("one",), ("two",), ("four",), ("four",), ("eight",), ("xl",), ("all",), ("four", "one"))
_WATCHED: Final = ("resourceclaims", "resourceclaims", "resourceslices", "pods")


def with_claims(scenario: Scenario) -> Scenario:
    """Return a scenario whose pods have claims on devices, if its seed is one of these."""
    if scenario.seed % EVERY not in TURNS:
        return scenario
    dice = Random(f"{scenario.seed}/claims")
    nodes = tuple((f"n{number}", KIND) for number in range(1, dice.choice((1, 2, 2, 3)) + 1))
    kept = [deed for deed in scenario.deeds if _is_kept(deed)]
    case = attrs.evolve(scenario, nodes=nodes, deeds=tuple(kept), controllers=False, claims=True)
    quiet = case.quiet_at
    pods = [*_singles(dice, quiet), *_sharing(dice, quiet), *(_group(dice, quiet) if dice.random() < 0.3 else ())]
    deeds: list[Deed] = [*pods, *_devices(dice, nodes, quiet)]
    if case.fenced and dice.random() < 0.4:  # for a moment, two lead
        deeds += [TakeLease(at=moment(dice, 3, quiet, before=9), holder="", seconds=1) for _ in range(2)]
    case = bearable(more(case, deeds, [*_faults(dice, case), *_kills(dice, case, pods)]))
    return attrs.evolve(case, deeds=tuple(sorted(case.deeds, key=lambda deed: deed.at)))


def _is_kept(deed: Deed) -> bool:
    """Return whether a deed says nothing of pods, or of nodes of other kinds."""
    others = isinstance(deed, CreateNode | DeleteNode | SetHealthy | BindElsewhere)
    return not (others or hasattr(deed, "pod") or (hasattr(deed, "name") and deed.at > 0))


def _plan(dice: Random, name: str, claims: tuple[str, ...]) -> PodPlan:
    return PodPlan(
        name=name,
        claims=claims,
        cpu=0,
        priority=dice.choice(("", "", "", "low", "high")),
        seconds=round(dice.uniform(2, 20), 1) if dice.random() < 0.5 else 0.0,
        grace=dice.choice((0, 1, 30)),
        gated=dice.random() < 0.1,
    )


def _singles(dice: Random, quiet_at: float) -> Iterator[Deed]:
    """Yield pods in groups of equal ones, and what becomes of them."""
    number, burst = 0, dice.random() < 0.3
    while number < dice.choice((6, 10, 16)):
        plan = _plan(dice, "", dice.choice(WANTED))
        at = round(dice.uniform(0.3, 4.0 if burst else quiet_at * 0.9), 3)
        for _ in range(dice.choice((1, 1, 2, 4))):
            pod, number = attrs.evolve(plan, name=f"p{number}"), number + 1
            yield CreatePod(at=at, pod=pod)
            if pod.gated:
                yield OpenGate(at=after(dice, at, quiet_at), name=pod.name)
            later, fate = after(dice, at, quiet_at), dice.random()
            if fate < 0.15:
                yield DeletePod(at=later, name=pod.name, forced=dice.random() < 0.3)
            elif fate < 0.25:
                yield RecreatePod(at=later, pod=attrs.evolve(pod, gated=False, claims=dice.choice(WANTED)))
            elif fate < 0.35:
                yield Annotate(at=later, name=pod.name)


def _sharing(dice: Random, quiet_at: float) -> Iterator[Deed]:
    """Yield claims that users make, and the pods of each, all at once or one after the other."""
    for number in range(dice.choice((0, 1, 2))):
        claim, at = f"s{number}", moment(dice, 0.2, quiet_at, before=5)
        yield CreateClaim(at=at, name=claim, like=dice.choice(("one", "four", "eight")), audited=dice.random() < 0.3)
        for other in range(dice.choice((1, 1, 3))):
            plan = _plan(dice, f"{claim}-{other}", (f"/{claim}", *dice.choice(((), (), ("one",)))))
            yield CreatePod(at=after(dice, at, quiet_at), pod=attrs.evolve(plan, gated=False))
        if dice.random() < 0.2:
            yield DeleteClaim(at=after(dice, at, quiet_at), name=claim)


def _group(dice: Random, quiet_at: float) -> Iterator[Deed]:
    """Yield the members of a group that starts as a whole."""
    count, at = dice.choice((2, 2, 3)), moment(dice, 0.5, quiet_at, before=12)
    plan = attrs.evolve(
        _plan(dice, "", dice.choice((("xl",), ("eight",), ("four",)))), gated=False, group="g", least=count
    )
    for number in range(count):
        made = round(at + number * dice.choice((0.0, 0.4)), 3)
        yield CreatePod(at=made, pod=attrs.evolve(plan, name=f"g{number}", grace=1))


def _devices(dice: Random, nodes: tuple[tuple[str, str], ...], quiet_at: float) -> Iterator[Deed]:
    """Yield what drivers publish, and what becomes of the nodes."""
    for node, _ in nodes:
        yield Publish(at=dice.choice((0.0, 0.0, 0.0, moment(dice, 1, 9))), node=node)
    for number in range(dice.choice((0, 1, 1, 2, 4))):
        (node, _), generation = dice.choice(nodes), 2 * number + 2
        first = moment(dice, 1, quiet_at, before=4)
        second = round(min(first + dice.choice((0.01, 0.5, 3.0, 10.0)), quiet_at - 0.5), 3)
        again = Publish(at=second, node=node, generation=generation + 1)
        match dice.choice(("missing", "missing", "tainted", "in parts", "withdrawn", "replaced", "gone")):
            case "missing":
                yield from (Publish(at=first, node=node, generation=generation, missing=dice.choice((1, 8, 15))), again)
            case "tainted":
                yield from (Publish(at=first, node=node, generation=generation, tainted=dice.choice((1, 4))), again)
            case "in parts":
                yield from (Publish(at=first, node=node, generation=generation, is_complete=False), again)
            case "withdrawn":
                yield from (Publish(at=first, node=node, missing=ALL), again)
            case "replaced":
                yield from (DeleteNode(at=first, node=node), CreateNode(at=second, node=node, instance_type=KIND))
                yield attrs.evolve(again, at=round(min(second + dice.choice((0.0, 2.0)), quiet_at), 3))
            case "gone":
                yield DeleteNode(at=first, node=node)


def _faults(dice: Random, case: Scenario) -> Iterator[Fault]:
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        seconds = round(min(dice.choice((0.3, 1.5, 4.0, 12.0)), longest(case)), 2)
        yield always(case, dice.choice((*BEFORE, *AFTER)), "claims", seconds, dice.choice((0.1, 0.3, 0.6)))
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        kind, target = (
            dice.choice((LAG, LAG, "watch late", "watch late", "watch silent", "watch closed", "watch refused")),
            dice.choice(_WATCHED),
        )
        chance = {"watch silent": 0.03, "watch closed": 0.1, "watch refused": 0.1}.get(kind, dice.choice((0.3, 1.0)))
        yield always(case, kind, target, dice.choice((0.05, 0.3, 3.0, 12.0)), chance)


def _kills(dice: Random, case: Scenario, pods: list[Deed]) -> Iterator[Fault]:
    """Yield deaths and standstills of replicas when claims are being written."""
    created = [deed.at for deed in pods if isinstance(deed, CreatePod)]
    for number in range(case.replicas):
        for _ in range(dice.choice((0, 0, 1, 2))):
            at = round(
                min(dice.choice(created) + dice.choice((0.01, 0.03, 0.3, 1.0)) * dice.random(), case.quiet_at - 1), 3
            )
            kind = dice.choice(("killed", "killed", "stopped" if case.fenced else "killed"))
            seconds = round(min(dice.choice((2.0, 11.0, 18.0)), case.quiet_at - at), 2) if kind == "stopped" else 0.0
            yield once(kind, at, number, seconds)
