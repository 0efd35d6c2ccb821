"""An autoscaler that removes a machine which it was asked for is asked for no more of them for a while."""

from collections.abc import Callable

import attrs
import pytest

from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.controllers.adopted_machines import adopted_machine
from neuron_scheduler.controllers.consolidation_brake import REMEDY
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, Taint
from tests.controllers.test_machine_requests import TRN1, World, placeholder
from tests.support.builders import node, pod

DISRUPTED = (Taint("karpenter.sh/disrupted", Effect.NO_SCHEDULE),)


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


def test_a_machine_that_pods_of_another_request_took(world: World) -> None:
    """Pods take the machine that is ready first: whose request it ended does not matter."""
    request, other = world.ask("a"), world.ask("b")
    world.join(node("new", TRN1, devices=0))
    world.join(node("newer", TRN1))
    world.cluster.put_pod(pod("a", devices=4, on="newer", ids=range(4)))
    world.requests.noticed("uid-a", "newer")
    assert world.ended == ["withdrawn"]
    world.cluster.put_pod(pod("b", devices=4, on="new", ids=range(4)))
    world.requests.noticed("uid-b", "new")
    world.cluster.put_node(node("new", TRN1, taints=DISRUPTED))
    world.requests.node_changed("new")
    assert world.requests.brake.on(request.need) is not None
    assert other.node_name == "newer"


def test_a_machine_that_was_there_when_this_replica_began_to_lead() -> None:
    """It has joined for a placeholder of the last leader, and its pods are on it already."""
    world = World(now=1000.0)
    world.requests.seen(placeholder())
    world.cluster.put_node(node("new", TRN1, created=200.0))
    world.cluster.put_pod(pod("b", devices=4, on="new", ids=range(4)))
    world.requests.lead()
    world.cluster.put_node(node("new", TRN1, created=200.0, taints=DISRUPTED))
    world.requests.node_changed("new")
    assert world.requests.brake.on(adopted_need()) is not None


@pytest.mark.parametrize(
    ("shown", "created", "pause", "want"),
    [
        pytest.param(("placeholder", "node", "gone"), 200.0, 0.0, True, id="in their order"),
        pytest.param(("placeholder", "gone", "node"), 200.0, 1.0, True, id="the node comes late"),
        pytest.param(("placeholder", "gone", "node"), 200.0, 31.0, False, id="another node, later"),
        pytest.param(("placeholder", "node", "gone"), 100.0, 0.0, False, id="a node that was there before"),
    ],
)
def test_a_standby_follows(
    shown: tuple[str, ...], created: float, pause: float, *, want: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It sees what the leader asks for and what comes, and says nothing; when it leads, it goes on braking."""
    world = World(now=1000.0)
    for event in shown:
        if event == "placeholder":
            world.requests.seen(placeholder())
        elif event == "gone":
            world.requests.gone("uid-capacity-x-0")
        else:
            world.now += pause
            world.join(node("new", TRN1, created=created))
    world.cluster.put_pod(pod("a", devices=4, on="new", ids=range(4)))
    world.requests.noticed("uid-a", "new")
    world.cluster.put_node(node("new", TRN1, created=created, taints=DISRUPTED))
    world.requests.node_changed("new")
    assert not [record for record in caplog.records if "removes a machine" in record.message]
    world.requests.lead()
    assert (world.requests.brake.on(adopted_need()) is not None) is want


def taints(*more: str) -> tuple[Taint, ...]:
    """Return the taints of a node that an autoscaler removes, and more of them."""
    return *DISRUPTED, *(Taint(key, Effect.NO_SCHEDULE) for key in more)


def lead_for_two(world: World) -> MachineNeed:
    """Lead, and ask for a machine for two pods, of which one comes: the request stays open."""
    world.requests.lead()
    need = world.ask("a", "b").need
    world.join(node("new", TRN1, created=200.0))
    return need


def follow_two(world: World) -> MachineNeed:
    """Stand by; one of the leader's two placeholders stays open."""
    for name in ("capacity-x-0", "capacity-y-0"):
        world.requests.seen(placeholder(name))
    world.join(node("new", TRN1, created=200.0))
    world.requests.gone("uid-capacity-x-0")
    return adopted_need()


@pytest.mark.parametrize("begin", [lead_for_two, follow_two])
@pytest.mark.parametrize(
    ("served", "level"),
    [pytest.param(599.0, 1, id="removed with its pods"), pytest.param(600.0, 0, id="it has served for a while")],
)
def test_a_node_that_changes_while_it_is_removed(
    begin: Callable[[World], MachineNeed], served: float, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One removal is one, even if a request is open that the node would serve, and the taint is gone for a while."""
    world = World(now=1000.0)
    need = begin(world)
    world.cluster.put_pod(pod("a", devices=4, on="new", ids=range(4)))
    world.requests.noticed("uid-a", "new")
    world.now += served
    for now in (taints(), taints("node.kubernetes.io/unschedulable"), (), taints(), taints("team")):
        world.cluster.put_node(node("new", TRN1, created=200.0, taints=now))
        world.requests.node_changed("new")
        brake = world.requests.brake.on(need)
        assert (0 if brake is None else brake.level) == level
        world.now += 1.0
    lines = [record for record in caplog.records if "removes a machine" in record.message]
    assert len(lines) == (level if begin is lead_for_two else 0)


def test_another_machine_with_the_name_of_one_that_was_removed(world: World) -> None:
    """The watch was away while the node was deleted and the next one joined: that one may be removed again, too."""
    for level in (1, 2):
        need = world.ask("a").need
        world.join(node("new", TRN1))
        world.cluster.put_pod(pod("a", devices=4, on="new", ids=range(4)))
        world.requests.noticed("uid-a", "new")
        world.cluster.put_node(node("new", TRN1, taints=DISRUPTED))
        world.requests.node_changed("new")
        brake = world.requests.brake.on(need)
        assert brake is not None
        assert brake.level == level
        world.cluster.remove_pod("uid-a")


def adopted_need() -> MachineNeed:
    """Return the need that the placeholder stands for."""
    machine = adopted_machine(placeholder())
    assert machine is not None
    return attrs.evolve(machine.need, pods=(pod("w", scheduler_name="my-scheduler"),))


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
