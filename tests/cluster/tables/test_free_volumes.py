"""Free volumes are found and counted by what a claim asks for, after any changes."""

from collections.abc import Mapping
from random import Random

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import Slot
from neuron_scheduler.cluster.tables import free_volumes
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL
from neuron_scheduler.model.selectors import LabelSelector, NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import ROOM, ClaimRef, PersistentVolume, PersistentVolumeClaim
from tests.support.builders import GI, node
from tests.support.storage import claim, host, room, volume, zone
from tests.support.thoroughness import examples

BOTH = (NodeSelectorTerm((*host("a")[0].expressions, *zone("x", "y")[0].expressions)),)
LABELLED = (NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.EXISTS),)),)
PLACES = [None, (), host("a"), host("a", "b"), zone("x"), BOTH, (*host("a"), *zone("x")), LABELLED]
RWO, RWX = "ReadWriteOnce", "ReadWriteMany"
SSD = LabelSelector((Requirement("disk", Operator.IN, ("ssd",)),))


def some_volume(dice: Random, name: str) -> PersistentVolume:
    return volume(
        name,
        on=dice.choice(PLACES),
        of=dice.choice(["", "", "", "data"]),
        class_name=dice.choice(["local", "local", "gp3"]),
        capacity=dice.randint(1, 3) * GI,
        access_modes=dice.choice([(RWO,), (RWO, RWX)]),
        volume_mode=dice.choice(["Filesystem", "Filesystem", "Block"]),
        terminating=dice.random() < 0.1,
        labels=dice.choice([{}, {"disk": "ssd"}]),
    )


def some_claim(dice: Random) -> PersistentVolumeClaim:
    """Return a claim that waits for its first consumer."""
    modes, selector = dice.choice([(RWO,), (RWX,), (RWX, RWO)]), dice.choice([None, None, SSD])
    return claim("other", request=dice.randint(1, 3) * GI - dice.randint(0, 1), access_modes=modes, selector=selector)


def change(dice: Random, cluster: Cluster) -> None:
    """Change a volume or a node."""
    volumes, name = cluster.volumes, f"pv{dice.randrange(8)}"
    known = volumes.volume(name)
    match dice.randrange(6):
        case 0 if known is not None:
            volumes.remove(known)
        case 1 if known is not None:
            volumes.assume(attrs.evolve(known, claim=ClaimRef("default/data", "uid-data")))
        case 2 if known is not None:
            volumes.restore(known)
        case 3:
            cluster.remove_node(dice.choice("ab"))
        case 4:
            labels = {HOSTNAME_LABEL: dice.choice("ab"), ZONE_LABEL: dice.choice("xyz")}
            cluster.put_node(node(dice.choice("ab"), labels=dice.choice([labels, labels, {}])))
        case _:
            volumes.put(some_volume(dice, name))


@pytest.mark.parametrize("seed", range(examples(100)))
def test_the_counts_and_the_volumes_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After any changes of volumes and nodes a claim finds the volumes that a search of all volumes finds."""
    monkeypatch.setattr(free_volumes, "_MOST_LOGGED", 16)
    monkeypatch.setattr(free_volumes, "_AT_ONCE", 2)
    dice, cluster = Random(seed), Cluster()
    wanting = [some_claim(dice), some_claim(dice)]
    for _ in range(20):
        for _ in range(dice.choice([1, 1, 3, 20])):
            change(dice, cluster)
        for asked in wanting:
            check(cluster, asked)
        if dice.random() < 0.1:
            check(cluster.fork(), wanting[0])


def check(cluster: Cluster, asked: PersistentVolumeClaim) -> None:
    volumes, rounded = cluster.volumes, cluster.volumes.free.round_up(asked.wish)
    counts, of_rounded = map(cluster.view.free_volumes, (asked.wish, rounded))
    known = [each for name in volumes.stored_volumes if (each := volumes.volume(name)) is not None]
    free = sorted((v.capacity, v.name, v) for v in known if v.claim is None and v.may_serve(asked))
    for row in cluster.view.rows():
        labels, slot = row.node.labels, cluster.view.slot(row.node.name)
        there = [v for _, _, v in free if is_on(v, labels)]
        assert list(volumes.free.volumes_for(asked.wish, row.node)) == there
        assert list(volumes.free.volumes_for(rounded, row.node)) == there
        assert slot is not None
        assert counts.value(slot) == of_rounded.value(slot) == len(there)
    assert not counts.positive & ~cluster.view.live


@pytest.mark.parametrize("seed", range(examples(100)))
def test_the_largest_room_is_that_of_a_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the class's rooms ask for one label or for several, and after any changes of rooms and nodes."""
    monkeypatch.setattr(free_volumes, "_AT_ONCE", 2)
    dice, cluster = Random(seed), Cluster()
    wish = claim(class_name="gp3", access_modes=(), request=0, volume_mode=ROOM).wish
    choices: list[list[tuple[NodeSelectorTerm, ...] | None]]
    choices = [[host("a"), host("b")], [zone("x"), zone("y"), zone("z")], [None], PLACES]
    places = dice.choice(choices)
    for _ in range(20):
        for _ in range(dice.choice([1, 1, 3, 20])):
            name, largest = f"r{dice.randrange(6)}", dice.choice([None, *range(8)])
            if dice.random() < 0.2:
                change(dice, cluster)
            elif dice.random() < 0.2 and (known := cluster.volumes.volume(f"\n{name}")) is not None:
                cluster.volumes.remove(known)
            else:
                cluster.volumes.put(room(name, largest, on=dice.choice(places)))
        stored = cluster.volumes.stored_volumes
        known_rooms = [each for each in map(stored.__getitem__, stored) if each.may_serve(wish)]
        column = cluster.view.free_volumes(wish)
        for row in cluster.view.rows():
            slot = cluster.view.slot(row.node.name)
            assert slot is not None
            assert column.value(slot) == max((r.capacity for r in known_rooms if is_on(r, row.node.labels)), default=0)
        assert not column.positive & ~cluster.view.live


def is_on(each: PersistentVolume, labels: Mapping[str, str]) -> bool:
    """Return whether a volume's affinity matches a node's labels."""
    return each.required_terms is None or any(term.matches(labels, "") for term in each.required_terms)


def test_volumes_change_while_they_are_counted() -> None:
    """What comes and goes during the pauses is counted, too; so are nodes that come."""
    cluster, wish = Cluster(), claim().wish
    for number in range(200):
        cluster.put_node(node(f"n{number}", labels={HOSTNAME_LABEL: f"n{number}"}))
        cluster.volumes.put(volume(f"pv{number}", on=host(f"n{number}")))
    steps = cluster.view.prepare(lambda view: view.free_volumes(wish))
    for number, _ in enumerate(steps):
        if number < 20:
            cluster.volumes.remove(volume(f"pv{number}", on=host(f"n{number}")))
            cluster.volumes.put(volume(f"new{number}", on=host("n199", "later")))
        if number == 3:
            cluster.put_node(node("later", labels={HOSTNAME_LABEL: "later"}))
    assert number > 3
    check(cluster, claim())
    assert cluster.view.free_volumes(wish).value(Slot(200)) == min(number + 1, 20)
