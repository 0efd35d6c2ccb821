"""An autoscaler that removes a machine which it was asked for is asked for no more of them for a while."""

import attrs
import pytest

from neuron_scheduler.controllers.consolidation_brake import REMEDY
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, Taint
from tests.controllers.test_machine_requests import TRN1, World
from tests.support.builders import node, pod


@pytest.fixture
def world() -> World:
    """Return a cluster with one node, and nothing asked for; this replica leads."""
    world = World()
    world.requests.lead()
    return world


@pytest.mark.parametrize(
    ("after", "busy", "key", "want"),
    [
        pytest.param(599.0, True, "karpenter.sh/disrupted", True, id="removed with its pods"),
        pytest.param(599.0, True, "ToBeDeletedByClusterAutoscaler", True, id="by the other autoscaler"),
        pytest.param(600.0, True, "karpenter.sh/disrupted", False, id="it has served for a while"),
        pytest.param(1.0, False, "karpenter.sh/disrupted", False, id="it is empty"),
        pytest.param(1.0, True, "team", False, id="another taint"),
    ],
)
def test_an_autoscaler_that_takes_a_machine_away_again(
    world: World, *, after: float, busy: bool, key: str, want: bool
) -> None:
    """No further machine like it is asked for: twenty minutes the first time, then twice as long."""
    for first, seconds in ((1000.0, 1200.0), (9000.0, 2400.0)):
        world.now = first
        need = world.ask("a").need
        world.join(node("new", TRN1))
        if busy:
            world.cluster.put_pod(pod("a", devices=4, on="new", ids=range(4)))
        world.requests.noticed("uid-a", "new")
        assert world.ended.pop() == "served"
        world.now += after
        world.cluster.put_node(node("new", TRN1, taints=(Taint(key, Effect.NO_SCHEDULE),)))
        world.requests.node_changed("new")
        removed_at = world.now
        world.now = removed_at + seconds - 1.0
        brake = world.requests.brake.on(need)
        assert (brake is not None) is want
        assert brake is None or brake.reason.startswith("the autoscaler removes node new again")
        world.now = removed_at + seconds
        assert world.requests.brake.on(need) is None
        world.cluster.remove_pod("uid-a")
        world.cluster.remove_node("new")
        world.requests.node_gone("new")


def test_what_a_brake_is_for(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Machines of another size, and those of another profile, may be asked for; one line says what to set."""
    need = world.ask("a").need
    world.join(node("new", TRN1))
    world.cluster.put_pod(pod("a", devices=4, on="new", ids=range(4)))
    world.requests.noticed("uid-a", "new")
    world.cluster.put_node(node("new", TRN1, taints=(Taint("karpenter.sh/disrupted", Effect.NO_SCHEDULE),)))
    for _ in range(2):
        world.requests.node_changed("new")
    assert world.requests.brake.on(need) is not None
    assert world.requests.brake.on(attrs.evolve(need, silicon={NEURON_DEVICE: 12})) is None
    others = tuple(attrs.evolve(each, scheduler_name="another") for each in need.pods)
    assert world.requests.brake.on(attrs.evolve(need, pods=others)) is None
    lines = [record for record in caplog.records if "removes a machine that it was asked for" in record.message]
    assert len(lines) == 1
    assert REMEDY in str(lines[0].__dict__)


def test_a_node_that_is_gone_before_it_is_tainted(world: World) -> None:
    """A later node of the same name is another machine."""
    need = world.ask("a").need
    world.join(node("new", TRN1))
    world.requests.noticed("uid-a", "new")
    world.cluster.remove_node("new")
    world.requests.node_gone("new")
    world.cluster.put_node(node("new", TRN1, taints=(Taint("karpenter.sh/disrupted", Effect.NO_SCHEDULE),)))
    world.cluster.put_pod(pod("b", devices=4, on="new", ids=range(4)))
    world.requests.node_changed("new")
    assert world.requests.brake.on(need) is None
