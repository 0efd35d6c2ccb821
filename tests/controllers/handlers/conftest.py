"""A cluster with waiting pods for the tests of pods and nodes."""

import pytest

from tests.support.builders import node, pod
from tests.support.handlers import World


@pytest.fixture
def world() -> World:
    """Return a world where one pod waits for a label, another for devices, a third for cpu."""
    world = World()
    world.nodes.added(node("a", "trn1.32xlarge", cpu=4000))
    for index in range(4):
        world.pods.added(pod(f"d{index}", devices=4, on="a", ids=range(index * 4, index * 4 + 4)))
    world.pods.added(pod("c", cpu=3000, on="a"))
    world.pods.added(pod("label", scheduler_name="one", node_selector={"team": "blue"}, cpu=1))
    world.pods.added(pod("devices", scheduler_name="two", devices=8))
    world.pods.added(pod("cpu", scheduler_name="one", cpu=2000))
    world.pods.added(pod("theirs", scheduler_name="three", cpu=2000))
    assert world.settle() == ["label", "devices", "cpu"]
    return world
