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

LATE_NODES: Final = (("trn3-a", "trn3.48xlarge"),)


class DemoError(Exception):
    """An expectation of the story was not met; the text says which."""


@attrs.frozen
class Placed:
    """Bound, with a legal set; exactly `ids` if given, or the ids that pod `like` had."""

    ids: tuple[int, ...] = ()
    like: str = ""


@attrs.frozen
class Waits:
    """Pending, with a PodScheduled condition whose message says `because`."""

    because: str


Want: TypeAlias = Placed | Waits


@attrs.frozen(kw_only=True)
class PodPlan:
    """A pod to create: so many devices or cores, on nodes of one type or on any."""

    name: str
    devices: int = 0
    cores: int = 0
    on: str = ""

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
        metadata = {"name": self.name, "namespace": "default"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@attrs.frozen(kw_only=True)
class Act:
    """One step: the pods to delete and to create, and the expected outcomes."""

    title: str
    text: str
    deletes: tuple[str, ...] = ()
    creates: tuple[PodPlan, ...] = ()
    wants: Mapping[str, Want]


ACTS: Final[Sequence[Act]] = (
    Act(
        title="Rings and lines: consecutive devices",
        text="On Inferentia any number of devices is allowed, if their ids are consecutive.",
        creates=(
            PodPlan(name="ring-2", devices=2, on="inf2.48xlarge"),
            PodPlan(name="ring-3", devices=3, on="inf2.48xlarge"),
            PodPlan(name="ring-5", devices=5, on="inf2.48xlarge"),
            PodPlan(name="line-3", devices=3, on="inf2.24xlarge"),
            PodPlan(name="line-2", devices=2, on="inf2.24xlarge"),
        ),
        wants={name: Placed() for name in ("ring-2", "ring-3", "ring-5", "line-3", "line-2")},
    ),
    Act(
        title="Torus: one device, a row, half a node",
        text="On Trainium only 1, 4, 8 or 16 devices are allowed, and only aligned blocks.",
        creates=(
            PodPlan(name="torus-1", devices=1, on="trn1.32xlarge"),
            PodPlan(name="torus-4", devices=4, on="trn1.32xlarge"),
            PodPlan(name="torus-8", devices=8, on="trn1.32xlarge"),
            PodPlan(name="row-4", devices=4, on="trn2.48xlarge"),
            PodPlan(name="half-8", devices=8, on="trn2.48xlarge"),
        ),
        wants={name: Placed() for name in ("torus-1", "torus-4", "torus-8", "row-4", "half-8")},
    ),
    Act(
        title="Seven devices",
        text="A count that the type does not support is refused with AWS's sentence, in event and condition.",
        creates=(PodPlan(name=KEPT, devices=7, on="trn1.32xlarge"),),
        wants={
            KEPT: Waits(
                "Instance type trn1.32xlarge does not support requests for device: 7. "
                "Please request a different number of devices."
            )
        },
    ),
    Act(
        title="Cores beside devices",
        text="Nine cores use a part of the third device. It is not free now, so two devices do not fit, but one does.",
        creates=(PodPlan(name="cores-9", cores=9, on="inf1.6xlarge"),),
        wants={"cores-9": Placed(tuple(range(9)))},
    ),
    Act(
        title="What is left of four devices",
        text="Cores and devices are the same hardware and are counted once.",
        creates=(
            PodPlan(name="pair", devices=2, on="inf1.6xlarge"),
            PodPlan(name="single", devices=1, on="inf1.6xlarge"),
        ),
        wants={"pair": Waits("Insufficient aws.amazon.com/neuron"), "single": Placed((3,))},
    ),
    Act(
        title="Deletion and reuse",
        text="ring-3 leaves the smallest free block that fits three devices: it is used again.",
        deletes=("ring-3",),
        creates=(PodPlan(name="ring-3b", devices=3, on="inf2.48xlarge"),),
        wants={"ring-3b": Placed(like="ring-3")},
    ),
    Act(
        title="Sixteen devices wait",
        text="The pod asks for a whole trn2 while two pods are on it.",
        creates=(PodPlan(name="all-16", devices=16, on="trn2.48xlarge"),),
        wants={"all-16": Waits("0/6 nodes are available")},
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
)


def nodes() -> list[Object]:
    """Return the fleet."""
    return [fleet.node(name, instance_type) for name, instance_type in NODES]


def late_nodes() -> list[Object]:
    """Return the nodes that join when the story is over, so that every example finds its instance type."""
    return [fleet.node(name, instance_type) for name, instance_type in LATE_NODES]


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
