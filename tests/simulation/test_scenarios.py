"""The seeds choose all that can happen, and nothing after which no scheduler could keep its promises."""

from collections import Counter
from functools import cache

from tests.simulation import claim_deeds, deeds, poison
from tests.simulation.http_faults import AFTER, BEFORE, HARD, LASTING, WATCH
from tests.simulation.poison import Poison
from tests.simulation.replica import KINDS as PROCESS_FAULTS
from tests.simulation.scenario import CHUNKS, CONNECTS, Scenario
from tests.simulation.scenarios import scenario_of
from tests.simulation.watch_cache import LAG, POLICY_LAG


@cache
def scenarios() -> list[Scenario]:
    return [scenario_of(seed) for seed in range(1000)]


def test_every_kind_of_fault_is_chosen() -> None:
    """Each kind is in a good number of seeds."""
    kinds = Counter(fault.kind for scenario in scenarios() for fault in scenario.faults)
    wanted = {*BEFORE, *AFTER, *WATCH, *CONNECTS, *CHUNKS, *PROCESS_FAULTS, *HARD}
    wanted |= {LAG, POLICY_LAG, "page expired"}
    assert {kind for kind in wanted if kinds[kind] < 3} == set()


def test_every_deed_is_chosen() -> None:
    """Each deed, and each unreadable object, is in some seed."""
    modules = (claim_deeds, deeds, poison)
    all_deeds = {value for module in modules for value in vars(module).values() if hasattr(value, "done_in")}
    assert all_deeds == {type(deed) for scenario in scenarios() for deed in scenario.deeds}
    kinds = {deed.kind for scenario in scenarios() for deed in scenario.deeds if isinstance(deed, Poison)}
    assert kinds == {*poison.PODS_OF, *poison.NODES_OF, *poison.OTHERS}


def test_all_is_over_at_the_quiet() -> None:
    """No fault and no deed comes after it, but what concerns the pods of one namespace only."""
    for scenario in scenarios():
        assert all(fault.until <= scenario.quiet_at for fault in scenario.faults if fault.kind not in LASTING), scenario
        assert all(deed.at <= scenario.quiet_at for deed in scenario.deeds), scenario
