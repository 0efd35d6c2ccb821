"""
Which faults a seed gets, and how hard they strike.

Leaves out combinations after which no scheduler can keep its promises; `longest` and `_lease` say which.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.simulation.deed_choices import moment
from tests.simulation.deeds import (
    Compact,
    DeleteLease,
    FreezeServer,
    IssueToken,
    RevokeTokens,
    StopServer,
    TakeLease,
    WriteToken,
)
from tests.simulation.http_faults import AFTER, BEFORE, LATE, WATCH
from tests.simulation.scenario import CHUNKS, CONNECTS, Deed, Fault, Scenario
from tests.simulation.watch_cache import LAG, POLICY_LAG

TRAFFIC: Final = ("", "bindings", "bindings", "lease", "watches", "lists", "deletes", "events", "statuses", "gets")
TABLES: Final = ("", "pods", "pods", "nodes", "leases", "namespaces")
"""What a late cache is late with."""
DELAYS: Final = frozenset({"stopped", "long step", "late", LATE})
"""Kinds after which a Binding may be carried out long after its sender has decided to send it."""
LONGEST: Final = 30.0
"""
Seconds by which a write may be late behind the fence.

The client of such a write has given up after 4 s at most. The longest wait for a doubt is that of the allocate fence
(decision 11): 120 s after an equal Binding of the node was given up, it lets the next one pass.
"""
_MEDDLING: Final = (DeleteLease, TakeLease, FreezeServer)


def with_faults(scenario: Scenario, dice: Random) -> Scenario:
    """Return a scenario with faults: mostly of few kinds."""
    kinds = dice.choice((0, 1, 1, 2, 2, 3, 3, 5, 8))
    for choose in dice.choices(_KINDS, weights=_WEIGHTS, k=kinds):
        scenario = choose(scenario, dice)
    return bearable(attrs.evolve(scenario, deeds=tuple(sorted(scenario.deeds, key=lambda deed: deed.at))))


def bearable(scenario: Scenario) -> Scenario:
    """
    Return a scenario without what lets the Bindings of two leaders pass.

    These are accepted if one is carried out late and the server's Lease is late as well (decision 3): so the fence uses
    an old Lease only while a leader's clock protects. A server that is frozen has an old Lease, too, and delays all
    that it has not read. Delays of several kinds add up.
    """
    half = between_leaders(scenario) / 2
    delays = {kind: _most(scenario, kind) for kind in DELAYS}
    if delays["late"] + delays[LATE] >= half:
        scenario = _left_out(scenario, FreezeServer)
    if not scenario.fenced and delays["late"] + delays[LATE] >= between_leaders(scenario):
        scenario = _left_out(scenario, kind="late")
    if max(delays.values()) >= half or any(isinstance(deed, _MEDDLING) for deed in scenario.deeds):
        scenario = _left_out(scenario, kind=POLICY_LAG)
    return scenario


def _most(scenario: Scenario, kind: str) -> float:
    return max((fault.seconds for fault in scenario.faults if fault.kind == kind), default=0.0)


def _left_out(scenario: Scenario, *deeds: type[Deed], kind: str = "") -> Scenario:
    return attrs.evolve(
        scenario,
        deeds=tuple(deed for deed in scenario.deeds if not isinstance(deed, deeds)),
        faults=tuple(fault for fault in scenario.faults if fault.kind != kind),
    )


def _window(scenario: Scenario, dice: Random) -> tuple[float, float]:
    """Return a time that ends before the quiet: short, long, or all of it."""
    at = round(dice.uniform(0, scenario.quiet_at - 1), 2)
    length = dice.choice((0.5, 3.0, 10.0, scenario.quiet_at))
    return at, round(min(at + length, scenario.quiet_at), 2)


def _with(scenario: Scenario, dice: Random, kind: str, chances: tuple[float, ...], **rest: object) -> Scenario:
    at, until = _window(scenario, dice)
    fault = Fault(kind=kind, at=at, until=until, chance=dice.choice(chances), **rest)  # type: ignore[arg-type]  # fields
    return attrs.evolve(scenario, faults=(*scenario.faults, fault))


def longest(scenario: Scenario) -> float:
    """Return how late a write may be carried out: without the fence, only the clock of an old leader stops it."""
    return LONGEST if scenario.fenced else between_leaders(scenario) / 2


def between_leaders(scenario: Scenario) -> float:
    """Return the seconds between the last Binding of a leader and the first of its successor."""
    duration, deadline, _ = scenario.lease
    return duration - deadline


def _request(scenario: Scenario, dice: Random) -> Scenario:
    kind = dice.choice((*BEFORE, *AFTER))
    seconds = round(min(dice.choice((0.2, 1.5, 4.0, 12.0, 30.0)), longest(scenario)), 2)
    return _with(scenario, dice, kind, (0.1, 0.5, 1.0), target=dice.choice(TRAFFIC), seconds=seconds)


def _commits(scenario: Scenario, dice: Random) -> Scenario:
    """Several things go wrong with Bindings all the time, and half of the time the watch of pods is late or dies."""
    seconds = round(min(dice.choice((1.5, 4.0, 12.0)), longest(scenario)), 2)
    kinds = dice.sample((*BEFORE, *AFTER), dice.choice((2, 3, 4)))
    faults = [
        Fault(kind=kind, at=0, until=scenario.quiet_at, target="bindings", chance=0.25, seconds=seconds)
        for kind in kinds
    ]
    if dice.random() < 0.5:
        kind, target = dice.choice(((LAG, "pods"), ("watch late", "pods"), ("watch silent", "pods")))
        chance = 0.03 if kind == "watch silent" else 0.5
        lag = dice.choice((0.3, 3.0, 10.0))
        faults.append(Fault(kind=kind, at=0, until=scenario.quiet_at, target=target, chance=chance, seconds=lag))
    return attrs.evolve(scenario, faults=(*scenario.faults, *faults))


def _watch(scenario: Scenario, dice: Random) -> Scenario:
    kind, seconds = dice.choice(tuple(WATCH)), dice.choice((0.1, 1.0, 6.0))
    return _with(scenario, dice, kind, (0.05, 0.3, 1.0), target=dice.choice(("", "pods", "nodes")), seconds=seconds)


def _network(scenario: Scenario, dice: Random) -> Scenario:
    kind = dice.choice((*CONNECTS, *CHUNKS))
    seconds = round(min(dice.choice((0.05, 0.5, 3.0)), longest(scenario)), 2)
    target = dice.choice(("", "scheduler-0", "scheduler-1", "api-1"))
    return _with(scenario, dice, kind, (0.02, 0.1, 0.5), target=target, seconds=seconds)


def _late_cache(scenario: Scenario, dice: Random) -> Scenario:
    target = dice.choice((f"api-{dice.randint(1, scenario.api_servers)}", *TABLES))
    return _with(scenario, dice, LAG, (0.3, 1.0), target=target, seconds=dice.choice((0.05, 0.3, 1.0, 5.0, 20.0)))


def _late_policy(scenario: Scenario, dice: Random) -> Scenario:
    return _with(scenario, dice, POLICY_LAG, (0.3, 1.0), seconds=dice.choice((0.05, 0.5, 3.0, 10.0)))


def _expired_pages(scenario: Scenario, dice: Random) -> Scenario:
    return _with(attrs.evolve(scenario, page_size=3), dice, "page expired", (0.2, 0.6))


def _kubelets(scenario: Scenario, dice: Random) -> Scenario:
    kind = dice.choice(("kubelet slow", "kubelet rejects"))
    return _with(scenario, dice, kind, (0.2, 0.6), seconds=dice.choice((1.0, 5.0, 20.0)))


def _process(scenario: Scenario, dice: Random) -> Scenario:
    kinds = ["killed", "killed", "terminated", "long step", "wrong clock"]
    kinds += ["stopped", "stopped"] if scenario.fenced else []
    kind, at = dice.choice(kinds), round(dice.uniform(0.5, scenario.quiet_at - 1), 2)
    seconds = (
        dice.choice((-86_400.0, -3.0, 7.0, 3600.0)) if kind == "wrong clock" else dice.choice((0.3, 2.0, 8.0, 20.0))
    )
    if kind != "wrong clock":
        seconds = round(min(seconds, scenario.quiet_at - at), 2)
    target = f"scheduler-{dice.randrange(scenario.replicas)}"
    fault = Fault(kind=kind, at=at, until=at, target=target, seconds=seconds)
    return attrs.evolve(scenario, faults=(*scenario.faults, fault))


def _doing(scenario: Scenario, *deeds: Deed) -> Scenario:
    return attrs.evolve(scenario, deeds=(*scenario.deeds, *deeds))


def _server(scenario: Scenario, dice: Random) -> Scenario:
    """An API server is stopped or frozen."""
    seconds, at = dice.choice((0.5, 3.0, 8.0)), moment(dice, 1, scenario.quiet_at, before=8.5)
    server = f"api-{dice.randint(1, scenario.api_servers)}"
    if dice.random() < 0.5:
        return _doing(scenario, StopServer(at=at, server=server, seconds=seconds))
    frozen = min(seconds, between_leaders(scenario) / 2)  # its Lease is as old as the Bindings that it has not read
    return _doing(scenario, FreezeServer(at=at, server=server, seconds=frozen))


def _compaction(scenario: Scenario, dice: Random) -> Scenario:
    return _doing(scenario, *(Compact(at=moment(dice, 1, scenario.quiet_at)) for _ in range(dice.choice((1, 5)))))


def _tokens(scenario: Scenario, dice: Random) -> Scenario:
    """
    A token is replaced in order, or the old one is refused before the file has the new one.

    It is written and the others are revoked after it was issued: deeds of one moment have no order, and a file that
    gets the old token once more would have a wrong one for ever.
    """
    at = moment(dice, 1, scenario.quiet_at, before=12)
    write, revoke = at + dice.choice((0.001, 1.0, 8.0)), at + dice.choice((0.001, 4.0, 11.0))
    return _doing(scenario, IssueToken(at=at), WriteToken(at=write), RevokeTokens(at=revoke))


def _lease(scenario: Scenario, dice: Random) -> Scenario:
    """The Lease is deleted, emptied, or taken by a stranger; only with the fence is there a protection then."""
    if not scenario.fenced:
        return scenario
    at = moment(dice, 1, scenario.quiet_at, before=9)
    deeds: list[Deed] = [
        DeleteLease(at=at),
        TakeLease(at=at, holder="", seconds=1),
        TakeLease(at=at, holder="stranger", seconds=dice.choice((2, 8))),
    ]
    return _doing(scenario, dice.choice(deeds))


_KINDS: Final[tuple[Callable[[Scenario, Random], Scenario], ...]] = (
    *(_request, _commits, _watch, _network, _late_cache, _late_policy, _expired_pages, _kubelets),
    *(_process, _server, _compaction, _tokens, _lease),
)
_WEIGHTS: Final = (8, 6, 3, 4, 3, 1, 1, 2, 4, 2, 1, 1, 2)
