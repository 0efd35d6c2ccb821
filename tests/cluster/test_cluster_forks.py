"""A fork shares what neither has changed: a change of one of them is never seen by another."""

import gc
from random import Random
from typing import Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.model.node import HOSTNAME_LABEL, Image, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement, SpreadConstraint
from neuron_scheduler.model.volumes import ClaimRef, CSINode, PersistentVolume, VolumeAttachment
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from tests.support.builders import node, pod
from tests.support.thoroughness import examples

PROFILE: Final = default_profile("my-scheduler")
NODES: Final = "abc"
LABELS: Final = ("red", "green")
DRIVER: Final = "ebs.csi.aws.com"
IMAGES: Final = tuple(Image((f"app:{i}",), i) for i in range(1, 4))


@attrs.define
class World:
    """A cluster, and what should be in it."""

    cluster: Cluster = attrs.field(factory=Cluster)
    nodes: dict[str, Node] = attrs.field(factory=dict)
    pods: dict[str, Pod] = attrs.field(factory=dict)
    attachments: dict[str, VolumeAttachment] = attrs.field(factory=dict)

    def fork(self) -> "World":
        return World(self.cluster.fork(), dict(self.nodes), dict(self.pods), dict(self.attachments))

    def change(self, dice: Random) -> None:
        match dice.randrange(5):
            case 0:
                images = tuple(dice.sample(IMAGES, k=dice.randint(0, 2)))
                new = node(dice.choice(NODES), labels={HOSTNAME_LABEL: dice.choice("xy")}, images=images)
                self.nodes[new.name] = new
                self.cluster.put_node(new)
            case 1:
                gone = dice.choice("pqr")
                self.pods.pop(gone, None)
                self.cluster.remove_pod(f"uid-{gone}")
            case 2:
                placed = pod(dice.choice("pqr"), on=dice.choice(NODES), labels={"app": dice.choice(LABELS)})
                self.pods[placed.name] = placed
                self.cluster.put_pod(placed)
            case 3:
                name = dice.choice("12")
                if name in self.attachments:
                    self.cluster.remove_storage(self.attachments[name])
                self.attachments[name] = VolumeAttachment(name, name, dice.choice(NODES), DRIVER, f"v{name}")
                self.cluster.put_storage(self.attachments[name])
            case _:
                for name in NODES:
                    self.read(name)

    def read(self, name: str) -> tuple[object, ...]:
        """Return what the cluster knows of a node: pods by label, host names, images and attachments."""
        view = self.cluster.view
        slot = view.slot(name)
        if slot is None:
            return ()
        by_label = tuple(view.counts(_labelled(label)).value(slot) for label in LABELS)
        hosts = tuple(host for host in "xy" if view.label_postings(HOSTNAME_LABEL).get(host) >> slot & 1)
        images = tuple(image.size for image in IMAGES for _, nodes in view.images(image.names[0]) if nodes >> slot & 1)
        return by_label, hosts, images, self.cluster.volumes.storage_of(name).attachments

    def expected(self, name: str) -> tuple[object, ...]:
        """Return the same from the plain values."""
        there = self.nodes.get(name)
        if there is None:
            return ()
        on_it = [placed.labels["app"] for placed in self.pods.values() if placed.node_name == name]
        sizes = {image.size for image in there.images}
        attached = {(DRIVER, f"h{a.name}") for a in self.attachments.values() if a.node_name == name}
        return (
            tuple(on_it.count(label) for label in LABELS),
            (there.labels[HOSTNAME_LABEL],),
            tuple(image.size for image in IMAGES if image.size in sizes),
            frozenset(attached),
        )


def _labelled(label: str) -> PodQuery:
    selector = LabelSelector((Requirement("app", Operator.IN, (label,)),))
    return PodQuery((selector,), frozenset({"default"}), terminating=True)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_each_sees_its_own_changes_only(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks of forks are changed and read in any order."""
    monkeypatch.setattr("neuron_scheduler.cluster.tables.pods.MANY", 2)
    dice = Random(seed)
    first = World()
    for name in NODES:
        first.cluster.put_storage(CSINode(f"csi-{name}", name, drivers=frozenset({DRIVER})))
    for name in "12":
        volume = PersistentVolume(name, f"v{name}", claim=ClaimRef("default/c"), driver=DRIVER, handle=f"h{name}")
        first.cluster.put_storage(volume)
    worlds = [first]
    for _ in range(150):
        world = dice.choice(worlds)
        if dice.random() < 0.2:
            worlds = [*worlds[-3:], world.fork()]
        world.change(dice)
        for checked in worlds:
            assert [checked.read(name) for name in NODES] == [checked.expected(name) for name in NODES]


def test_a_fork_is_freed_without_the_garbage_collector() -> None:
    """A running process that answers questions makes many; in a circle of references each would stay for a while."""
    cluster = Cluster()
    cluster.put_node(node("n", "trn1.32xlarge", labels={HOSTNAME_LABEL: "n"}))
    term = PodAffinityTerm(HOSTNAME_LABEL, LabelSelector(), frozenset({"default"}))
    cluster.put_pod(pod("p", on="n", anti_affinity=(term,)))
    cluster.nominate("n", Nomination(pod("w", priority=9)))
    spread = SpreadConstraint(HOSTNAME_LABEL, 1, hard=True, selector=LabelSelector())
    asking = pod("q", devices=1, anti_affinity=(term,), spread=(spread,))
    gc.collect()
    gc.disable()
    try:
        before = tables()
        fork = cluster.fork()
        for prepare in (IndexWarmup().prepare, IndexWarmup().prepare_refusal):
            assert list(prepare(fork, asking, PROFILE))
        assert isinstance(schedule_pod(fork, asking, PROFILE), FitError)
        fork.put_pod(pod("r", on="n", anti_affinity=(term,)))
        assert tables() > before
        del fork, prepare
        assert tables() == before
    finally:
        gc.enable()


def tables() -> int:
    """Return how many tables there are in memory."""
    return sum(type(thing).__name__.endswith("Table") for thing in gc.get_objects())
