"""The seeds choose all that can happen, and nothing after which no scheduler could keep its promises."""

from collections import Counter
from functools import cache

import attrs

from tests.simulation import deeds, poison
from tests.simulation.deeds import FreezeServer, TakeLease
from tests.simulation.fault_choices import DELAYS, between_leaders
from tests.simulation.fault_windows import CHUNKS, CONNECTS
from tests.simulation.hard_cases import EVERY, TURNS, with_hard_case
from tests.simulation.http_faults import AFTER, BEFORE, HARD, LASTING, LATE, WATCH
from tests.simulation.poison import Poison
from tests.simulation.process_faults import KINDS as PROCESS_FAULTS
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.scenarios import scenario_of
from tests.simulation.watch_cache import LAG, POLICY_LAG


@cache
def scenarios() -> list[Scenario]:
    """Return those of a thousand seeds."""
    return [scenario_of(seed) for seed in range(1000)]


def test_a_seed_is_a_scenario() -> None:
    """The same seed has the same scenario, and another seed another one."""
    assert scenario_of(7) == scenario_of(7) != scenario_of(8)


def test_every_kind_of_fault_is_chosen() -> None:
    """Each kind is in a good number of seeds."""
    kinds = Counter(fault.kind for scenario in scenarios() for fault in scenario.faults)
    wanted = {*BEFORE, *AFTER, *WATCH, *CONNECTS, *CHUNKS, *PROCESS_FAULTS, *HARD}
    wanted |= {LAG, POLICY_LAG, "page expired"}
    assert {kind for kind in wanted if kinds[kind] < 3} == set()


def test_every_deed_is_chosen() -> None:
    """Each deed, and each unreadable object, is in some seed."""
    modules = (deeds, poison)
    all_deeds = {value for module in modules for value in vars(module).values() if hasattr(value, "done_in")}
    assert all_deeds == {type(deed) for scenario in scenarios() for deed in scenario.deeds}
    kinds = {deed.kind for scenario in scenarios() for deed in scenario.deeds if isinstance(deed, Poison)}
    assert kinds == {*poison.PODS_OF, *poison.NODES_OF, *poison.OTHERS}


def test_hard_cases_leave_other_seeds_as_they_are() -> None:
    """Of sixteen seeds three have one, in turn."""
    plain = scenario_of(0)
    for left, cases in TURNS.items():
        seeds = range(left, EVERY * len(cases), EVERY)
        assert [seed for seed in seeds if with_hard_case(of := attrs.evolve(plain, seed=seed)) == of] == []
    seeds = range(EVERY * max(map(len, TURNS.values())))
    changed = {seed % EVERY for seed in seeds if with_hard_case(of := attrs.evolve(plain, seed=seed)) != of}
    assert changed == TURNS.keys() == {1, 8, 11}


def test_all_is_over_at_the_quiet() -> None:
    """No fault and no deed comes after it, but what concerns the pods of one namespace only."""
    for scenario in scenarios():
        assert all(fault.until <= scenario.quiet_at for fault in scenario.faults if fault.kind not in LASTING), scenario
        assert all(deed.at <= scenario.quiet_at for deed in scenario.deeds), scenario


def _of_bindings(scenario: Scenario) -> list[Fault]:
    """Return the faults that may concern Bindings."""
    return [fault for fault in scenario.faults if fault.target != "statuses"]


def test_without_the_fence_no_binding_is_late() -> None:
    """Then only the clock of an old leader protects, for the time between two leaders; and nobody takes the Lease."""
    for scenario in scenarios():
        if scenario.fenced:
            continue
        duration, deadline, _ = scenario.lease
        late = [fault for fault in _of_bindings(scenario) if fault.kind in {"late", LATE}]
        longest = {kind: max((f.seconds for f in late if f.kind == kind), default=0.0) for kind in ("late", LATE)}
        assert sum(longest.values()) < duration - deadline, scenario
        assert not any(isinstance(deed, TakeLease) for deed in scenario.deeds), scenario


def test_no_server_is_frozen_while_bindings_are_late() -> None:
    """Its Lease is old, and what it has not read is late as well."""
    for scenario in scenarios():
        if any(isinstance(deed, FreezeServer) for deed in scenario.deeds):
            late = [fault.seconds for fault in _of_bindings(scenario) if fault.kind in {"late", LATE}]
            assert max(late, default=0.0) < between_leaders(scenario) / 2, scenario


def test_the_fence_is_late_only_while_bindings_are_not() -> None:
    """Both at the same time let the Bindings of two leaders pass (decision 3)."""
    for scenario in scenarios():
        if not any(fault.kind == POLICY_LAG for fault in scenario.faults):
            continue
        duration, deadline, _ = scenario.lease
        late = [fault for fault in _of_bindings(scenario) if fault.kind in DELAYS]
        assert all(fault.seconds < (duration - deadline) / 2 for fault in late), scenario
        assert not any(isinstance(deed, FreezeServer | TakeLease) for deed in scenario.deeds), scenario
