"""
The demo's story as data: a small fleet, acts that create and delete pods, and the expected outcome of each pod.

Also the demo's own rule for a legal allocation, written from AWS's documentation and not from the scheduler, so that
the demo notices when the scheduler is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from sandbox import fleet
from sandbox.apiserver.store import Object
from sandbox.fleet import CORE, DEVICE, INSTANCE_TYPE_LABEL, InstanceType, Shape

SCHEDULER_NAME: Final = "my-scheduler"

GROUP, COUNT = (f"pod-group.scheduling.sigs.k8s.io/{word}" for word in ("name", "min-available"))
SERVER_ID, NODE_ID = (f"neuron.amazonaws.com/ultraserver-{word}-id-4" for word in ("server", "node"))

KEPT: Final = "seven"  # the pod that waits when the story is over, and holds nothing

# (name, instance type)
NODES: Final = (
    ("cpu-a", "m5.xlarge"),
    ("trn1-a", "trn1.32xlarge"),
    ("trn2-a", "trn2.48xlarge"),
    ("inf2-a", "inf2.48xlarge"),
    ("inf2-b", "inf2.24xlarge"),
    ("inf1-a", "inf1.6xlarge"),
)

# UltraServers, by name: how many of their four nodes there are.
ULTRASERVERS: Final = {"us-a": 4, "us-b": 2}


class DemoError(Exception):
    """An expectation of the story was not met; the text says which."""


@attrs.frozen
class Placed:
    """Bound, with a legal set; exactly `ids` if given, on the node `on` if given."""

    ids: tuple[int, ...] = ()
    on: str = ""


@attrs.frozen
class Waits:
    """Pending, with a PodScheduled condition whose message says `because`."""

    because: str


Want: TypeAlias = Placed | Waits


@attrs.frozen(kw_only=True)
class PodPlan:
    """A pod to create: so many devices or cores, on nodes of one type or on any; in a group of so many pods."""

    name: str
    devices: int = 0
    cores: int = 0
    on: str = ""
    group: int = 0

    @property
    def asks(self) -> str:
        """`3 devices`, `1 core`, for people."""
        count, word = (self.devices, "device") if self.devices else (self.cores, "core")
        return f"{count} {word}{'s' if count != 1 else ''}"

    def manifest(self) -> Object:
        """Return the pod as a user would write it."""
        resource, count = (DEVICE, self.devices) if self.devices else (CORE, self.cores)
        limits = {resource: str(count), "cpu": "1", "memory": "1Gi"}
        container = {"name": "main", "image": "registry.example/model:1", "resources": {"limits": limits}}
        spec: dict[str, Any] = {"schedulerName": SCHEDULER_NAME, "containers": [container]}
        if self.on:
            spec["nodeSelector"] = {INSTANCE_TYPE_LABEL: self.on}
        labels = {GROUP: self.name.rpartition("-")[0], COUNT: str(self.group)} if self.group else {}
        metadata = {"name": self.name, "namespace": "default", "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@attrs.frozen(kw_only=True)
class Act:
    """One step: whether the late nodes join, the pods to delete and to create, and the expected outcomes."""

    title: str
    text: str
    joins: bool = False
    deletes: tuple[str, ...] = ()
    creates: tuple[PodPlan, ...] = ()
    wants: Mapping[str, Want]


# instance type, name, devices
BLOCKS: Final = (
    *(("inf2.48xlarge", f"ring-{count}", count) for count in (2, 3, 5)),
    *(("inf2.24xlarge", f"line-{count}", count) for count in (3, 2)),
    *(("trn1.32xlarge", f"torus-{count}", count) for count in (1, 4, 8)),
    ("trn2.48xlarge", "row-4", 4),
    ("trn2.48xlarge", "half-8", 8),
)
ACTS: Final[Sequence[Act]] = (
    Act(
        title="Consecutive ids, aligned blocks",
        text="On Inferentia any number of devices; on Trainium 1, 4, 8 or 16: seven are refused with AWS's sentence.",
        creates=(
            *(PodPlan(name=name, devices=count, on=on) for on, name, count in BLOCKS),
            PodPlan(name=KEPT, devices=7, on="trn1.32xlarge"),
        ),
        wants={
            **{name: Placed() for _, name, _ in BLOCKS},
            KEPT: Waits("does not support requests for device: 7. Please request a different number of devices"),
        },
    ),
    Act(
        title="Cores beside devices",
        text="They are the same hardware. Nine cores use a part of the third device, so one is left, and not two.",
        creates=(
            PodPlan(name="cores-9", cores=9, on="inf1.6xlarge"),
            PodPlan(name="pair", devices=2, on="inf1.6xlarge"),
            PodPlan(name="single", devices=1, on="inf1.6xlarge"),
        ),
        wants={"cores-9": Placed(tuple(range(9))), "pair": Waits("Insufficient aws"), "single": Placed((3,))},
    ),
    Act(
        title="Deletion and reuse",
        text="ring-3 leaves the smallest block that fits ring-3b. all-16 asks for a whole trn2, and waits.",
        deletes=("ring-3",),
        creates=(
            PodPlan(name="ring-3b", devices=3, on="inf2.48xlarge"),
            PodPlan(name="all-16", devices=16, on="trn2.48xlarge"),
        ),
        wants={"ring-3b": Placed((2, 3, 4)), "all-16": Waits("0/6 nodes are available")},
    ),
    Act(
        title="Waiting pods are retried",
        text="row-4, half-8 and cores-9 are deleted: all-16 and pair are placed at once.",
        deletes=("row-4", "half-8", "cores-9"),
        wants={"all-16": Placed(tuple(range(16))), "pair": Placed((0, 1))},
    ),
    Act(
        title="Keeping useful blocks",
        text="Pods that fit anywhere fill broken rows, and leave the two free devices of the ring for a pod of 2.",
        creates=tuple(PodPlan(name=f"any-{number}", devices=1) for number in range(1, 5)),
        wants={f"any-{number}": Placed() for number in range(1, 5)},
    ),
    Act(
        title="Nodes join",
        text="An UltraServer, half of one that is broken, and a Trn3 node, which a pod gets that asks for one.",
        joins=True,
        creates=(PodPlan(name="cube-4", devices=4, on="trn3.48xlarge"),),
        wants={"cube-4": Placed()},  # the scheduler has seen all nodes now: this one is the last
    ),
    Act(
        title="UltraServers, and jobs that start together",
        text="A single pod cuts the broken UltraServer, so that a job of four gets the other. The job's rival, whose"
        " pods come in turns with it, holds nothing.",
        creates=(
            PodPlan(name="one-16", devices=16, on="trn2u.48xlarge"),
            *(
                PodPlan(name=f"{job}-{rank}", devices=16, on="trn2u.48xlarge", group=4)
                for rank in range(4)
                for job in ("train", "rival")
            ),
        ),
        wants={
            "one-16": Placed(on="us-b-0"),
            **{f"train-{rank}": Placed(on=f"us-a-{rank}") for rank in range(4)},
            **{f"rival-{rank}": Waits("Group default/rival needs room for 4 pods at once") for rank in range(4)},
        },
    ),
)


def nodes() -> list[Object]:
    """Return the fleet."""
    return [fleet.node(name, instance_type) for name, instance_type in NODES]


def late_nodes() -> list[Object]:
    """Return the nodes that join in the course of the story; with them every example finds its instance type."""
    places = {f"{server}-{place}": (server, place) for server, size in ULTRASERVERS.items() for place in range(size)}
    labels = {name: {SERVER_ID: server, NODE_ID: str(place)} for name, (server, place) in places.items()}
    joining = [fleet.node(name, "trn2u.48xlarge", labels=words) for name, words in labels.items()]
    return [*joining, fleet.node("trn3-a", "trn3.48xlarge")]


def illegal(machine: InstanceType, ids: Sequence[int], *, cores: bool) -> str:
    """Return why AWS's documentation does not allow a container this set; empty if it does."""
    total = machine.devices * (machine.cores_per_device if cores else 1)
    if not ids or list(ids) != list(range(ids[0], ids[0] + len(ids))):
        return "the ids are not consecutive and ascending"
    if ids[0] < 0 or ids[-1] >= total:
        return f"the machine has {total}"
    if machine.shape is not Shape.TORUS:
        return ""
    unit = machine.cores_per_device if cores else 1
    if len(ids) <= unit:
        return "" if ids[0] // unit == ids[-1] // unit else "the cores are on two devices"
    if len(ids) % unit or len(ids) // unit not in {4, 8, 16} or ids[0] % len(ids):
        return "a torus has aligned blocks of 1, 4, 8 and 16 devices only"
    return ""
