"""No wake-up is lost: whatever happens, a pod that fits now does not wait until its timeout."""

from collections.abc import Callable
from random import Random
from typing import Any

import anyio
import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, SpreadConstraint
from neuron_scheduler.model.volumes import CSINode, PersistentVolume, Storage, StorageClass, VolumeAttachment
from tests.support import random_objects
from tests.support.builders import node, pod
from tests.support.random_events import change, change_storage, flicker, pass_turns
from tests.support.simulated_server import World, running
from tests.support.storage import CLASSES, MADE, at, claim, volume
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


def pods_that_count(dice: Random, world: World) -> None:
    """Change only pods that count for others: those on two nodes come, change, begin to end and go while some wait."""
    for name, zone in (("a", "x"), ("b", "y")):
        if name not in world.nodes:
            world.see_node(zoned(name, zone))
    for name in ("p", "q"):
        if name in world.there and world.there[name].node_name and dice.random() < 0.5:
            world.lose_pod(name)
        if name not in world.there:
            web = random_objects.WEB
            spread = SpreadConstraint(ZONE_LABEL, max_skew=1, hard=True, selector=web, honor_affinity=False)
            wants = (ZONE_LABEL, dice.choice("xy"))
            waiting = ours(name, cpu=0, wants=wants, labels={"app": "web"}, spread=(spread,), uid=world.new_uid())
            world.see_pod(waiting)
    name = dice.choice("ABCD")
    known = world.there.get(name)
    if known is None:
        world.see_pod(pod(name, uid=world.new_uid(), on=dice.choice("ab"), labels=dice.choice(random_objects.LABELS)))
    elif dice.random() < 0.3:
        world.lose_pod(name)
    else:
        changed: dict[str, Any] = dice.choice([{"terminating": True}, {"labels": dice.choice(random_objects.LABELS)}])
        world.see_pod(attrs.evolve(known, **changed))


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


@pytest.mark.parametrize("seed", [*range(examples(30)), 121820, 212829])
def test_no_wake_up_by_storage_is_lost(seed: int) -> None:
    """The same for a pod that waits for a volume, a class, room or a driver that is added, changed or deleted."""
    assert anyio.run(live, seed, 60, storage_changes) == []


@pytest.mark.parametrize("seed", range(examples(40)))
def test_no_wake_up_by_pods_that_count_is_lost(seed: int) -> None:
    """The same for pods with a spread constraint: a pod that begins to end counts no more."""
    assert anyio.run(live, seed, 60, pods_that_count) == []


def zoned(name: str, zone: str) -> Node:
    return node(name, cpu=4000, labels={HOSTNAME_LABEL: name, ZONE_LABEL: zone})


def ours(name: str, *, cpu: int, wants: tuple[str, str], **further: Any) -> Pod:
    """Return a pending pod that requires a label and never preempts."""
    return pod(name, scheduler_name="my-scheduler", cpu=cpu, required_terms=at(*wants), never_preempts=True, **further)


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


async def test_a_nomination_that_cannot_help_does_not_keep_the_queue_busy() -> None:
    """A pod whose claim is missing drops the nomination in its status at each attempt, which is no reason for one."""
    world = World(Random(0))
    async with running(world):
        world.see_node(zoned("a", ""))
        waiting = pod("waiting", scheduler_name="my-scheduler", volume_claims=("missing",))
        world.see_pod(attrs.evolve(waiting, nominated_node_name="a"))
        await world.settle()
        (queued,) = world.queue.pods()
        assert (world.refusing(queued), queued.attempts) == (["VolumeRestrictions"], 1)


async def test_preemption_is_tried_again_when_what_kept_it_from_helping_changes() -> None:
    """A node is full of pods of lower priority, and lacks the label that only a later filter looks at."""
    world = World(Random(0))
    async with running(world):
        world.see_node(node("a", cpu=1000))
        world.see_pod(pod("placed", on="a", cpu=1000, admitted=True))
        spread = SpreadConstraint(ZONE_LABEL, max_skew=1, hard=True, selector=LabelSelector())
        world.see_pod(pod("waiting", scheduler_name="my-scheduler", cpu=1000, spread=(spread,), priority=5))
        await world.settle()
        assert not world.there["placed"].terminating
        world.see_node(node("a", cpu=1000, labels={ZONE_LABEL: "x"}))
        await world.settle()
        assert world.there["placed"].terminating


EBS = "ebs.csi.aws.com"
THEIRS = claim("theirs", bound_to="pv-theirs", class_name="gp3")


def limit(count: int) -> CSINode:
    return CSINode("uid-csi", "a", {EBS: count}, drivers=frozenset({EBS}))


def ebs(of: str, handle: str) -> PersistentVolume:
    return volume(f"pv-{of}", of=of, class_name="gp3", driver=EBS, handle=handle)


def attached(of: str) -> VolumeAttachment:
    """Return the attachment of a claim's volume to the node."""
    return VolumeAttachment(f"uid-at-{of}", f"at-{of}", "a", EBS, f"pv-{of}")


@pytest.mark.parametrize(
    ("before", "key", "changed"),
    [
        pytest.param((limit(1), THEIRS), "pv-theirs", ebs("theirs", "vol-1"), id="volume of a placed pod is added"),
        pytest.param(
            (limit(1), ebs("theirs", "vol-1"), attached("theirs")),
            "theirs",
            THEIRS,
            id="claim of a placed pod is added",
        ),
        pytest.param(
            (limit(2), THEIRS, ebs("theirs", "vol-2"), ebs("other", "vol-3"), attached("other")),
            "pv-other",
            ebs("other", "vol-2"),
            id="attached volume has another handle",
        ),
        pytest.param(
            (limit(1), claim("theirs", class_name="gp3")), "gp3", None, id="class of a placed pod's claim is deleted"
        ),
    ],
)
async def test_what_placed_pods_attach_wakes_pods_with_other_claims(
    before: tuple[Any, ...], key: str, changed: Storage | None
) -> None:
    """A pod that found no room for its volume is tried again if the node's other volumes leave room, or include it."""
    world = World(Random(0))
    async with running(world):
        world.see_node(zoned("a", ""))
        world.see_pod(pod("placed", on="a", volume_claims=("theirs",), admitted=True))
        mine = (claim("mine", bound_to="pv-mine", class_name="gp3"), ebs("mine", "vol-1"))
        for seen in (MADE, *mine, *before):
            world.see_storage(seen.name, seen)
        world.see_pod(pod("waiting", scheduler_name="my-scheduler", volume_claims=("mine",)))
        await world.settle()
        (waiting,) = world.queue.pods()
        assert world.refusing(waiting) == ["NodeVolumeLimits"]
        attempts = waiting.attempts
        world.see_storage("stranger", claim("stranger", class_name="gp3"))  # counts on no node
        await world.settle()
        assert waiting.attempts == attempts
        world.see_storage(key, changed)
        await world.settle()
        assert world.there["waiting"].node_name == "a"
