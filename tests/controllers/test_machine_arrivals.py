"""Which node is given to which request, and when."""

import attrs
import pytest

from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, Taint, Toleration
from tests.controllers.test_machine_requests import TRN1, World
from tests.support.builders import node

TEAM = (Taint("team", Effect.NO_SCHEDULE, "b"),)


@pytest.fixture
def world() -> World:
    """Return a cluster with one node, and nothing asked for; this replica leads."""
    world = World()
    world.requests.lead()
    return world


def test_a_node_that_gets_its_labels_later(world: World) -> None:
    """It counts when it is known for what it is; one that was there before is none that was asked for."""
    request = world.ask("a")
    world.join(node("new"))
    world.requests.node_changed("old")
    assert world.wanted == {request.name: True}
    world.cluster.put_node(node("new", TRN1))
    world.requests.node_changed("new")
    assert world.wanted == {request.name: False}


def test_a_node_that_is_older_than_the_request(world: World) -> None:
    """A node that joined for somebody else while a first request was out is none that a later request has got."""
    first = world.ask("a")
    world.join(node("others", "inf2.48xlarge"))
    world.now = 300.0
    second = world.ask("b")
    second.need = attrs.evolve(second.need, instance_types=("inf2.48xlarge",), silicon={NEURON_DEVICE: 12})
    world.requests.node_changed("others")
    assert world.wanted == {first.name: True, second.name: True}
    world.join(node("new", "inf2.48xlarge"))
    assert world.wanted == {first.name: True, second.name: False}


@pytest.mark.parametrize(
    ("older", "tolerates", "want"),
    [
        pytest.param(TEAM, (), True, id="another team's"),
        pytest.param(TEAM, (Toleration("team", value="b"),), False, id="a taint that the pods tolerate"),
        pytest.param((), (), False, id="a taint that no other node has may pass"),
    ],
)
def test_a_node_of_a_group_that_is_closed_to_the_pods(
    world: World, older: tuple[Taint, ...], tolerates: tuple[Toleration, ...], *, want: bool
) -> None:
    """It takes nobody's request away, until it has lost the taint."""
    world.cluster.put_node(node("teams", TRN1, taints=older))
    request = world.ask("a")
    request.need = attrs.evolve(request.need, pattern=attrs.evolve(request.need.pattern, tolerations=tolerates))
    world.join(node("new", TRN1, taints=TEAM))
    assert world.wanted == {request.name: want}
    world.cluster.put_node(node("new", TRN1))
    world.requests.node_changed("new")
    assert world.wanted == {request.name: False}


def test_one_node_for_one_request(world: World) -> None:
    """The node of a request that has ended is given to no other one; a later node of its name may be."""
    first = world.ask("a")
    second = world.ask("b")
    world.join(node("new", TRN1))
    assert (first.node_name, second.node_name) == ("new", "")
    world.requests.gone("uid-a")
    world.requests.node_changed("new")
    assert (world.ended, second.node_name) == (["served"], "")
    assert world.requests.arrivals.is_given("new")
    world.cluster.remove_node("new")
    world.requests.node_gone("new")
    assert not world.requests.arrivals.is_given("new")
    world.join(node("new", TRN1))
    assert second.node_name == "new"


def test_when_nothing_is_asked_for(world: World) -> None:
    """A node that joins is remembered only while a request is out."""
    world.join(node("before", TRN1))
    request = world.ask("a")
    world.requests.node_changed("before")
    assert request.node_name == ""
    world.join(node("during", "inf2.48xlarge"))
    world.requests.gone("uid-a")
    later = world.ask("b")
    world.cluster.put_node(node("during", TRN1))
    world.requests.node_changed("during")
    assert later.node_name == ""
