"""No wake-up is lost: whatever happens, a pod that fits now does not wait until its timeout."""

from collections.abc import Callable
from random import Random

import anyio
import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import StorageClass
from tests.support.builders import node, pod
from tests.support.random_events import change, change_storage, flicker, pass_turns
from tests.support.simulated_server import World, running
from tests.support.storage import CLASSES, at
from tests.support.thoroughness import examples


def storage_changes(dice: Random, world: World) -> None:
    """Change only storage around pods that ask only for volumes, some of which are placed."""
    if not world.nodes:
        for name in ("a", "b"):
            world.see_node(node(name, labels={ZONE_LABEL: "x", HOSTNAME_LABEL: name}))
    for name, claims in (("p", ("c0",)), ("q", ("c1",)), ("r", ("c1", "c2"))):
        if name in world.there and world.there[name].node_name and dice.random() < 0.5:
            world.lose_pod(name)
        if name not in world.there:
            world.see_pod(pod(name, uid=world.new_uid(), scheduler_name="my-scheduler", volume_claims=claims))
    change_storage(dice, world)


async def live(seed: int, steps: int, happens: Callable[[Random, World], None] = change) -> list[str]:
    """Make random changes, some in a burst or during a decision; return the pods that wait although they fit."""
    dice = Random(seed)
    world = World(dice)
    for storage_class in CLASSES:
        assert isinstance(storage_class, StorageClass)
        world.see_storage(f"class/{storage_class.name}", storage_class)
    async with running(world):
        for step in range(steps):
            happens(dice, world)
            if dice.random() < 0.3:
                await pass_turns(dice.randint(0, 3))
                continue
            if dice.random() < 0.3:
                await flicker(dice, world)
            await world.settle()
            if sleepers := world.sleepers():
                return [f"seed {seed}, step {step}: {sleeper}" for sleeper in sleepers]
    return []


@pytest.mark.parametrize("seed", range(examples(130)))
def test_no_wake_up_is_lost(seed: int) -> None:
    """After any burst of events and all backoffs no pod waits that fits."""
    assert anyio.run(live, seed, 60) == []


@pytest.mark.parametrize("seed", range(examples(30)))
def test_no_wake_up_by_storage_is_lost(seed: int) -> None:
    """The same for a pod that waits for a volume, a class, room or a driver that is added, changed or deleted."""
    assert anyio.run(live, seed, 60, storage_changes) == []


def zoned(name: str, zone: str) -> Node:
    """Return a node of four cores in a zone."""
    return node(name, cpu=4000, labels={HOSTNAME_LABEL: name, ZONE_LABEL: zone})


def ours(name: str, *, cpu: int, wants: tuple[str, str], priority: int = 0) -> Pod:
    """Return a pending pod that requires a label and never preempts."""
    return pod(
        name, scheduler_name="my-scheduler", cpu=cpu, required_terms=at(*wants), priority=priority, never_preempts=True
    )


async def test_a_nomination_wakes_others_once_its_pod_found_another_node() -> None:
    """Nominated space is free when its pod is placed elsewhere, and wakes the pods that wait for it."""
    world = World(Random(0))
    async with running(world):
        world.see_node(zoned("a", ""))
        world.see_node(zoned("b", "x"))
        world.see_pod(pod("small", on="b", cpu=1000))
        nominated = ours("nominated", cpu=4000, wants=(ZONE_LABEL, "x"), priority=5)
        world.cluster.nominate("b", Nomination(nominated))
        world.see_pod(nominated)
        world.see_pod(ours("lower", cpu=3000, wants=(HOSTNAME_LABEL, "b")))
        await world.settle()
        assert not any(waiting.node_name for waiting in (world.there["nominated"], world.there["lower"]))
        world.see_node(attrs.evolve(zoned("a", "x")))
        while not world.there["lower"].node_name:
            await world.settle()
            assert world.sleepers() == []
        assert (world.there["nominated"].node_name, world.there["lower"].node_name) == ("a", "b")
