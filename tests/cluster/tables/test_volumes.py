"""Free volumes are listed by what a claim asks for, after any changes."""

from random import Random

import attrs
import pytest

from neuron_scheduler.cluster.tables.volumes import FreeVolumes, Volumes
from neuron_scheduler.model.selectors import NodeSelectorTerm
from neuron_scheduler.model.volumes import ClaimRef, PersistentVolume, PersistentVolumeClaim
from tests.support.builders import GI
from tests.support.storage import claim, host, volume, zone
from tests.support.thoroughness import examples

BOTH = (NodeSelectorTerm((*host("a")[0].expressions, *zone("x")[0].expressions)),)
PLACES = [None, (), host("a"), host("a", "b"), zone("x"), BOTH, (*host("a"), *zone("x"))]
RWO, RWX = "ReadWriteOnce", "ReadWriteMany"


def some_volume(dice: Random, name: str) -> PersistentVolume:
    return volume(
        name,
        on=dice.choice(PLACES),
        of=dice.choice(["", "", "", "data"]),
        class_name=dice.choice(["local", "gp3"]),
        capacity=dice.randint(1, 3) * GI,
        access_modes=dice.choice([(RWO,), (RWO, RWX)]),
        volume_mode=dice.choice(["Filesystem", "Filesystem", "Block"]),
        terminating=dice.random() < 0.2,
    )


def some_claim(dice: Random) -> PersistentVolumeClaim:
    """Return a claim that waits for its first consumer."""
    modes = dice.choice([(RWO,), (RWX,), (RWX, RWO)])
    return claim("other", request=dice.randint(1, 3) * GI, access_modes=modes)


def listed(free: FreeVolumes, wanting: PersistentVolumeClaim) -> list[tuple[int, str]]:
    """Return the volumes that serve a claim; for each affinity, the smallest comes first."""
    by_affinity = [list(volumes.large_enough_for(wanting)) for volumes in free.volumes_for(wanting)]
    assert all(entries == sorted(entries) for entries in by_affinity)
    return sorted(entry for entries in by_affinity for entry in entries)


@pytest.mark.parametrize("seed", range(examples(60)))
def test_the_groups_and_the_volumes_agree(seed: int) -> None:
    """After any changes, decisions and revocations a claim finds the volumes that a search of all volumes finds."""
    dice, volumes = Random(seed), Volumes()
    for _ in range(40):
        name = f"pv{dice.randrange(8)}"
        known = volumes.volume(name)
        match dice.randrange(4):
            case 0 if known is not None:
                volumes.remove(known)
            case 1 if known is not None:
                volumes.assume(attrs.evolve(known, claim=ClaimRef("default/data", "uid-data")))
            case 2 if known is not None:
                volumes.restore(known)
            case _:
                volumes.put(some_volume(dice, name))
        volumes = dice.choice([volumes, volumes, volumes.fork()])
    wanting = some_claim(dice)
    all_of_them = (volumes.volume(name) for name in volumes.stored_volumes)
    free = [v for v in all_of_them if v is not None and v.claim is None and v.may_serve(wanting)]
    assert listed(volumes.free, wanting) == sorted((v.capacity, v.name) for v in free)


def test_an_affinity_to_one_label_is_recognised() -> None:
    """An affinity to a single label is recognised; any other has no label."""
    free = FreeVolumes()
    for number, place in enumerate(PLACES):
        free.put(volume(f"pv{number}", on=place))
    by_terms = {volumes.terms: volumes.label for volumes in free.volumes_for(claim())}
    assert by_terms == dict.fromkeys(PLACES) | {
        place: place[0].expressions[0] for place in (host("a"), host("a", "b"), zone("x"))
    }
