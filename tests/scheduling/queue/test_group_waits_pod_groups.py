"""A PodGroup that comes, changes or goes holds the waiting pods of its group, or lets them in."""

from typing import Any, Final

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.model.pod_group import Dialect, PodGroup, PodGroupObject
from neuron_scheduler.scheduling.queue.places import Place
from tests.scheduling.queue.test_group_waits import TRAIN, Fed
from tests.support.handlers import BACKOFF
from tests.support.loops import watches_of

NO_COUNT: Final = PodGroup(TRAIN)


def watching(world: Fed) -> WatchHandler[PodGroupObject]:
    """Return the handler of a kind that is watched."""
    world.groups.watched.add(Dialect.COSCHEDULING)
    return watches_of(Cluster(groups=world.groups), world.queue, clock=lambda: 0.0).of(POD_GROUPS[0])


def needing(count: int) -> PodGroupObject:
    return PodGroupObject("u", PodGroup(TRAIN, count, count))


def held(world: Fed) -> bool:
    """Return whether all that wait are held; they have the same place."""
    (place,) = {queued.place for queued in world.queue.pods()}
    return place is Place.GATED


@pytest.mark.parametrize("object_first", [True, False])
def test_members_wait_for_their_pod_group(object_first: bool) -> None:
    """They are let in once it is there and there are enough of them, whatever came first."""
    world = Fed()
    handler = watching(world)
    if object_first:
        handler.on_added(needing(2))
    world.see("a", group=NO_COUNT)
    assert held(world)
    world.see("b", group=NO_COUNT)
    assert held(world) is not object_first
    if not object_first:
        handler.on_added(needing(2))
    assert not held(world)
    assert len(world.trial(0.0)) == 2


def test_a_count_that_changes() -> None:
    """A larger one holds them, a smaller one lets a refused group be tried again, and without it they wait."""
    world = Fed()
    handler = watching(world)
    handler.on_added(needing(2))
    for name in "abc":
        world.see(name, group=NO_COUNT)
    handler.on_updated(needing(2), needing(4))
    assert held(world)
    handler.on_updated(needing(4), needing(3))
    world.refuse(0.0)
    assert world.queue.pop(BACKOFF) is None
    handler.on_updated(needing(3), needing(2))
    world.refuse(BACKOFF)
    handler.on_deleted(needing(2))
    assert held(world)


def test_a_count_on_the_pods_needs_no_pod_group() -> None:
    """Of two counts the larger one is meant."""
    world = Fed()
    handler = watching(world)
    two: dict[str, Any] = {"group": PodGroup(TRAIN, 2, 2)}
    world.see("a", **two)
    world.see("b", **two)
    assert not held(world)
    handler.on_added(needing(3))
    assert held(world)
    handler.on_updated(needing(3), needing(1))
    assert not held(world)
