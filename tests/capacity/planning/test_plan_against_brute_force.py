"""Machines asked for are machines needed: the plan beside every possible packing, on small random clusters."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

import attrs
import pytest

from neuron_scheduler.capacity.planning.need import MachineNeed
from neuron_scheduler.capacity.planning.plan import MachinePlan, UnplacedPod
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.resources import CPU, MEMORY
from tests.capacity.planning.brute_force import Room, Want, counted, fewest
from tests.capacity.planning.worlds import INF2, TRN1, broken, cluster_of, plan_for, waiting
from tests.support.builders import GI
from tests.support.thoroughness import examples

SEEDS: Final = range(examples(40))
NODE_CPU: Final = 100_000
NODE_MEMORY: Final = 100
IN_PIECES: Final = {TRN1: (16, (0, 5, 10, 15)), INF2: (12, (1, 4, 7, 10))}
"""The devices of each type, and those in use: no block of 4 is left."""


@attrs.frozen
class World:
    """
    Nodes in pieces, and pods of which none of them has a block; what a place is, the key says.

    Attributes:
        types: of the nodes, in their order.
    """

    wants: Sequence[Want]
    nodes: Sequence[Room]
    types: Sequence[str]
    key: str

    def plan(self, coming: Mapping[str, MachineNeed] | None = None) -> MachinePlan:
        """Return the package's plan, for pods that count on no machine that the autoscaler adds for others."""
        there = [
            broken(
                f"n{number}",
                instance_type,
                IN_PIECES[instance_type][1],
                labels={self.key: room.place},
                cpu=NODE_CPU,
                memory=NODE_MEMORY * GI,
            )
            for number, (room, instance_type) in enumerate(zip(self.nodes, self.types, strict=True))
        ]
        pods = [
            waiting(
                want.name,
                want.devices,
                cpu=want.cpu,
                memory=want.memory * GI,
                created=float(number),
                node_selector={self.key: want.place} if want.place else {},
            )
            for number, want in enumerate(self.wants)
        ]
        return plan_for(cluster_of(*there), [UnplacedPod(each, overdue=True) for each in pods], coming=coming)

    @property
    def empty(self) -> list[Room]:
        """The machines that could be bought."""
        rooms = zip(self.nodes, self.types, strict=True)
        return [Room(room.place, IN_PIECES[kind][0], NODE_CPU, NODE_MEMORY) for room, kind in rooms]


def some_world(dice: Random, *, host: bool) -> World:
    """Return a world whose places are zones, or else types; with `host`, cpu and memory matter."""
    by_type = dice.random() < 0.4
    types = [dice.choice((TRN1, INF2)) if by_type else TRN1 for _ in range(dice.randint(1, 4))]
    places = [each if by_type else dice.choice(("z0", "z1")) for each in types]
    free = [IN_PIECES[each][0] - 4 for each in types]
    nodes = [Room(place, devices, NODE_CPU, NODE_MEMORY) for place, devices in zip(places, free, strict=True)]
    wants = [
        Want(
            f"w{number}",
            dice.choice((4, 8)),
            dice.choice((0, 1_000, 30_000, 60_000, 100_000, 101_000) if host else (0, 1_000)),
            dice.choice((0, 1, 40, 70, 100, 101)) if host else 0,
            dice.choice(("", "", *places)),
        )
        for number in range(dice.randint(1, 7))
    ]
    return World(wants, nodes, types, INSTANCE_TYPE_LABEL if by_type else ZONE_LABEL)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_fewest_machines_for_pods_of_some_zones_or_types(seed: int) -> None:
    """Pods that may be anywhere share the machines of those that may not."""
    world = some_world(Random(seed), host=False)
    hidden = counted(world.wants, world.nodes)
    assert len(world.plan().needs) == fewest(hidden, world.empty)


@pytest.mark.parametrize("seed", SEEDS)
def test_pods_that_need_much_of_the_host(seed: int) -> None:
    """Two amounts cannot be packed best in one order: at most one machine is too many."""
    world = some_world(Random(seed), host=True)
    least = fewest(counted(world.wants, world.nodes), world.empty)
    assert least <= len(world.plan().needs) <= least + 1


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_is_asked_for_exactly_the_pods_that_an_autoscaler_counts(seed: int, *, host: bool) -> None:
    """And each request asks for all that its pods need together."""
    world = some_world(Random(seed), host=host)
    plan, wants = world.plan(), {want.name: want for want in world.wants}
    asked = sorted(pod.name for need in plan.needs for pod in need.pods)
    assert asked == sorted(want.name for want in counted(world.wants, world.nodes))
    for need in plan.needs:
        its_own = [wants[pod.name] for pod in need.pods]
        assert need.devices >= sum(want.devices for want in its_own)
        assert need.host.get(CPU, 0) >= sum(want.cpu for want in its_own)
        assert need.host.get(MEMORY, 0) == sum(want.memory for want in its_own) * GI


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_asked_for_stays(seed: int, *, host: bool) -> None:
    """Once the needs are asked for, nothing more is needed, and nothing is withdrawn: requests do not take turns."""
    world = some_world(Random(seed), host=host)
    coming = {f"r{number}": need for number, need in enumerate(world.plan().needs)}
    plan = world.plan(coming)
    assert (plan.needs, all(plan.serving.values())) == ((), True)
