"""
Random storage objects: claims, volumes, classes, drivers, capacities and attachments.

A field that is immutable in Kubernetes is a part of the object's uid: with another value it is another object.
"""

from collections.abc import Callable, Sequence
from random import Random

from neuron_scheduler.model.volumes import (
    NO_PROVISIONER,
    CSIDriver,
    CSINode,
    Storage,
    StorageClass,
    VolumeAttachment,
)
from tests.support import random_objects
from tests.support.builders import GI
from tests.support.storage import claim, host, room, volume, zone

CLAIMS = ("c0", "c1", "c2")
EBS = "ebs.csi.aws.com"


def some_storage(dice: Random) -> tuple[str, str, Storage]:
    """Return the kind and the name of a storage object, and the object."""
    kind, draw = dice.choice(_STORAGE)
    name, made = draw(dice)
    return kind, name, made


def _claim(dice: Random) -> tuple[str, Storage]:
    name = dice.choice(CLAIMS)
    return name, claim(
        name,
        bound_to=dice.choice(["", f"pv-{name}"]),
        class_name=dice.choice(["local", "gp3", "gp3"]),
        access_modes=("ReadWriteOncePod" if name == "c0" else "ReadWriteOnce",),  # immutable
        terminating=dice.random() < 0.1,
    )


def _volume(dice: Random) -> tuple[str, Storage]:
    """Draw a volume, of its own claim or of none: no controller binds a claim to another claim's volume."""
    of = dice.choice(CLAIMS)
    name = f"pv-{of}"
    return name, volume(
        name,
        on=dice.choice([None, zone("x"), zone("y"), host("a", "b")]),
        of=dice.choice(["", of]),
        class_name=dice.choice(["local", "gp3"]),
        driver=EBS,
        handle=dice.choice(["vol-1", "vol-2"]),
    )


def _class(dice: Random) -> tuple[str, Storage]:
    """Draw a class; with another provisioner or binding mode, which are immutable, it is another object."""
    provisioner, waits = dice.choice([EBS, NO_PROVISIONER]), dice.random() < 0.8
    where = dice.choice([None, zone("x"), zone("y")])
    return "gp3", StorageClass(f"uid-{provisioner}-{waits}", "gp3", provisioner, waits, where)


def _csi_node(dice: Random) -> tuple[str, Storage]:
    name = dice.choice(random_objects.NAMES)
    limits = dice.choice([{}, {EBS: 1}, {EBS: 2}])
    return name, CSINode(
        f"uid-{name}", name, limits, drivers=frozenset(limits) or dice.choice([frozenset(), frozenset({EBS})])
    )


def _driver(dice: Random) -> tuple[str, Storage]:
    return EBS, CSIDriver("uid-driver", EBS, storage_capacity=dice.random() < 0.5, required=dice.random() < 0.5)


def _capacity(dice: Random) -> tuple[str, Storage]:
    where, largest = dice.choice([None, zone("x")]), dice.choice([None, 0, 10 * GI])
    uid = f"uid-{where}"  # the topology is immutable: with another one it is another object
    return "gp3", room("kube-system/gp3", largest, on=where, uid=uid)


def _attachment(dice: Random) -> tuple[str, Storage]:
    """Draw an attachment, which is immutable: with another node or volume it is another object."""
    name, of_volume = dice.choice(["at-1", "at-2"]), dice.choice(["pv-c0", "pv-c1"])
    on = dice.choice(random_objects.NAMES)
    return name, VolumeAttachment(f"uid-{on}-{of_volume}", name, on, EBS, of_volume)


_STORAGE: Sequence[tuple[str, Callable[[Random], tuple[str, Storage]]]] = (
    ("claim", _claim),
    ("claim", _claim),
    ("volume", _volume),
    ("volume", _volume),
    ("class", _class),
    ("csi_node", _csi_node),
    ("driver", _driver),
    ("capacity", _capacity),
    ("attachment", _attachment),
)
