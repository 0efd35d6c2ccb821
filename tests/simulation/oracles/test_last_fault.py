"""When the promises about time begin to hold, and which faults keep news from a replica."""

import pytest

from tests.simulation.deeds import Compact, Cordon, StopServer
from tests.simulation.http_faults import WEBHOOK
from tests.simulation.oracles.last_fault import last_fault_ends, news_may_be_late
from tests.simulation.poison import Spoil
from tests.simulation.scenario import Deed, Fault, Scenario


def fault(kind: str, *, until: float = 10.0, seconds: float = 0.0, target: str = "") -> Fault:
    return Fault(kind=kind, at=5.0, until=until, seconds=seconds, target=target)


@pytest.mark.parametrize(
    ("faults", "deeds", "at"),
    [
        pytest.param((), (), 0.0, id="nothing"),
        pytest.param((fault("watch closed"),), (), 10.0, id="a window"),
        pytest.param((fault("request late", seconds=4.0),), (), 14.0, id="what is late then comes"),
        pytest.param((fault("request late", seconds=90.0),), (), 40.0, id="all comes at the quiet"),
        pytest.param((fault("wrong clock", until=5.0, seconds=3600.0),), (), 5.0, id="a clock jumps once"),
        pytest.param((fault(WEBHOOK, until=85.0),), (), 0.0, id="what lasts concerns others"),
        pytest.param((), (StopServer(at=20.0, server="api-1", seconds=3.0),), 23.0, id="a server"),
        pytest.param((fault("watch closed"),), (Compact(at=12.0),), 12.0, id="a compaction"),
        pytest.param((), (Spoil(at=12.0, name="p", ends=True),), 12.0, id="a pod that can be read again"),
        pytest.param((), (Cordon(at=20.0, node="n1"),), 0.0, id="what is done to nodes is no fault"),
    ],
)
def test_when_the_last_fault_ends(faults: tuple[Fault, ...], deeds: tuple[Deed, ...], at: float) -> None:
    """With all that is late because of it, at the quiet at the latest."""
    assert last_fault_ends(Scenario(seed=0, faults=faults, deeds=deeds, quiet_at=40.0)) == at


@pytest.mark.parametrize(
    ("faults", "late"),
    [
        ((), False),
        ((fault("killed"), fault("kubelet slow"), fault("answer lost", target="bindings")), False),
        ((fault("answer lost"),), True),
        ((fault("stopped"),), True),
        ((fault("watch late", target="pods"),), True),
    ],
)
def test_which_faults_make_news_late(faults: tuple[Fault, ...], late: bool) -> None:
    """Those of watches, lists and the network, and processes that stand still."""
    assert news_may_be_late(Scenario(seed=0, faults=faults)) is late


def test_a_server_that_stops_beside_a_fault_makes_news_late() -> None:
    """Without any other fault, the time that is always given is enough."""
    deeds = (StopServer(at=20.0, server="api-1", seconds=3.0),)
    assert news_may_be_late(Scenario(seed=0, faults=(fault("killed"),), deeds=deeds))
    assert not news_may_be_late(Scenario(seed=0, deeds=deeds))
