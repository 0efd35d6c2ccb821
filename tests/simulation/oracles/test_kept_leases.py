"""The oracle of kept Leases: a leader that loses its Lease needs a reason."""

import pytest

from tests.simulation.deeds_of_machines import AnnotateLease, TakeLease
from tests.simulation.http_faults import PAUSE
from tests.simulation.oracles.kept_leases import KeptLeases
from tests.simulation.scenario import Deed, Fault, Scenario

LOST = 'E0115 08:00:19.143100 run_command.py:98] "Leaderelection lost" err="..."'


def fault(kind: str, target: str = "", seconds: float = 1.0, at: float = 5.0) -> Fault:
    """Return a fault."""
    return Fault(kind=kind, at=at, until=at, target=target, seconds=seconds)


@pytest.mark.parametrize(
    ("faults", "deeds", "count"),
    [
        pytest.param((), (), 1, id="nothing"),
        pytest.param((fault("answer late", "lease"),), (), 0, id="requests about the Lease"),
        pytest.param((fault("answer late"),), (), 0, id="all requests"),
        pytest.param((fault("answer late", "bindings"),), (), 1, id="other requests"),
        pytest.param((fault("watch silent"), fault("killed", "a")), (), 1, id="watches, and ends of processes"),
        pytest.param((fault(PAUSE),), (), 0, id="a server that asks to wait"),
        pytest.param((fault("stopped", "a"),), (), 0, id="a standstill"),
        pytest.param((fault("stopped", "a", at=25.0),), (), 1, id="a standstill afterwards"),
        pytest.param((fault("long step", "a", 14.0),), (), 1, id="a long step"),
        pytest.param((fault("long step", "a", 14.1),), (), 0, id="a step that is too long"),
        pytest.param((fault("long step", "a", 8.0), fault("long step", "a", 8.0)), (), 0, id="two steps"),
        pytest.param((fault("long step", "b", 20.0),), (), 1, id="a step of another replica"),
        pytest.param((), (TakeLease(at=9.0, holder="", seconds=1),), 0, id="somebody takes it"),
        pytest.param((), (AnnotateLease(at=9.0),), 1, id="somebody annotates it"),
    ],
)
def test_what_can_cost_the_lease(faults: tuple[Fault, ...], deeds: tuple[Deed, ...], count: int) -> None:
    """Only that explains why it is lost."""
    found: list[str] = []
    scenario = Scenario(seed=0, faults=faults, deeds=deeds)
    oracle = KeptLeases(report=lambda _, text: found.append(text), scenario=scenario)
    oracle.logged(20.0, "a", "another line")
    oracle.logged(20.0, "a", LOST)
    assert len(found) == count
