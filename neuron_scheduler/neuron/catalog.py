"""
The machine inside an instance type: its shape from a table, its counts from the node itself.

A node does not say how its devices are linked, so there is a table. The node's capacity says how many devices there
are, and how many cores each has (LNC, the logical NeuronCore configuration, changes that). A node whose counts do not
show which cores belong to which device is served in one unit only.
"""

import enum
import re
from collections.abc import Iterator
from typing import Any, Final, cast

import attrs

from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS
from neuron_scheduler.neuron.core_mask import CoreMask

MOST_CORES = 1024
"""A larger count is treated as a mistake: the largest known machine has 128 cores."""
_WIDTH: Final = MOST_CORES.bit_length()
_FIELD: Final = (1 << _WIDTH) - 1
KIND_BITS: Final = 2 * _WIDTH + 6
_CORES_OF_TRN1: Final = 2  # per device; Trn2 and Trn3 have 4 or 8
_FAMILY: Final = re.compile(r"[a-z]+\d+")
_DOCS = "AWS Neuron documentation, architecture guide of the instance family"
_SCHEDULER_DOCS = "AWS Neuron documentation, figures of the scheduler extension's allocation rules"
_DRIVER = "aws-neuron-driver, topology tables"
_EFA_MAP = "AWS's EFA device-map library (type names), the scheduler extension's figures for trn1 (blocks)"
_DRIVER_TRN3 = "aws-neuron-driver: ids as on trn3.48xlarge, two neighbours to a board; how boards are linked is unknown"


class Shape(enum.Enum):
    """How the devices of a machine are linked, as far as this decides which sets are legal."""

    SINGLE = "single"
    """One device."""
    LINE = "line"
    """Any run of consecutive ids."""
    RING = "ring"
    """As LINE: the link that closes the ring is never used, since the runtime needs ids in increasing order."""
    TORUS = "torus"
    """16 devices, 4x4: aligned blocks of 1, 4, 8 and 16, and of 2 where a profile allows them on Trn2 and Trn3."""
    BLOCKS = "blocks"
    """One device or the whole machine: Trn3 with 4 devices."""
    FLAT = "flat"
    """The links are unknown: one unit or the whole machine."""


_SERVED: Final = {
    Shape.SINGLE: "its one device is served",
    Shape.LINE: "its devices are served as a line, in runs of neighbours",
    Shape.RING: "its devices are served as a line, in runs of neighbours",
    Shape.TORUS: "its devices are served as a 4x4 torus, in aligned blocks of 1, 4, 8 or 16",
    Shape.BLOCKS: "one or all of its devices are served",
    Shape.FLAT: "one or all of its devices are served",
}


@attrs.frozen(cache_hash=True)
class Machine:
    """
    The devices and cores of one node.

    Attributes:
        instance_type: without `ml.`; empty if the node has no such label.
        devices: how many devices; how many cores on a machine that serves cores only.
        cores_per_device: 1 where only one of the two units is served, so that a bit is an id of that unit.
        units: what requests may be counted in.
        published: the devices that claims choose from; None on a machine that pods use by counts.
        pairs: aligned pairs of devices are blocks, too: 2i and 2i+1, which are linked (Trn2) or share a board (Trn3).
        kind: a number above 0 of `KIND_BITS` bits, the same for machines that differ only in instance type or pairs.
    """

    instance_type: str
    shape: Shape
    devices: int
    cores_per_device: int
    units: frozenset[Unit] = frozenset(Unit)
    pairs: bool = False
    published: Any = None
    all_cores: CoreMask = attrs.field(init=False, eq=False, repr=False)
    kind: int = attrs.field(init=False, eq=False, repr=False)

    @all_cores.default
    def _all_cores(self) -> CoreMask:
        return CoreMask((1 << self.core_count) - 1)

    @kind.default
    def _kind(self) -> int:
        built = list(Shape).index(self.shape) << 2 | sum(1 << i for i, unit in enumerate(Unit) if unit in self.units)
        return (built << _WIDTH | self.devices) << _WIDTH | self.cores_per_device

    @property
    def has_neuron(self) -> bool:
        """Whether it has Neuron devices; other drivers publish devices of nodes, too."""
        return self.published is None or bool(self.published.has_neuron)

    @property
    def core_count(self) -> int:
        return self.devices * self.cores_per_device

    def size(self, unit: Unit) -> int:
        return self.devices if unit is Unit.DEVICE else self.core_count

    def with_pairs(self) -> "Machine":
        """Return it with pairs, too; itself if it is no torus, or one of Trn1, whose runtime refuses 2 devices."""
        has_pairs = self.shape is Shape.TORUS and self.cores_per_device > _CORES_OF_TRN1
        return attrs.evolve(self, pairs=True) if has_pairs else self


def machine_of_kind(kind: int) -> Machine:
    built, devices, cores_per_device = kind >> 2 * _WIDTH, kind >> _WIDTH & _FIELD, kind & _FIELD
    units = frozenset(unit for i, unit in enumerate(Unit) if built >> i & 1)
    return Machine("", list(Shape)[built >> 2], devices, cores_per_device, units)


@attrs.frozen
class InstanceType:
    """
    What is known of an instance type.

    Attributes:
        devices: for the plausibility check only.
        cores_per_device: the plausible counts, for LNC 2 and LNC 1 if both exist.
        source: where the shape comes from.
    """

    name: str
    devices: int
    cores_per_device: tuple[int, ...]
    shape: Shape
    source: str


def _alike(devices: int, shape: Shape, source: str, *names: str) -> Iterator[InstanceType]:
    """Yield types of Trn2 or Trn3 that differ only in their names; most of them are not in EC2's public list."""
    return (InstanceType(name, devices, (4, 8), shape, source) for name in names)


# inf2e.32xlarge, which AWS's chart 1.0 names, has no row: neither its devices nor their links are known.
INSTANCE_TYPES = {
    row.name: row
    for row in (
        InstanceType("inf1.xlarge", 1, (4,), Shape.SINGLE, _DOCS),
        InstanceType("inf1.2xlarge", 1, (4,), Shape.SINGLE, _DOCS),
        InstanceType("inf1.6xlarge", 4, (4,), Shape.LINE, _DOCS),
        InstanceType("inf1.24xlarge", 16, (4,), Shape.LINE, f"{_DOCS}: called a ring, but drawn as a line 0..15"),
        InstanceType("inf2.xlarge", 1, (2,), Shape.SINGLE, _DOCS),
        InstanceType("inf2.8xlarge", 1, (2,), Shape.SINGLE, _DOCS),
        InstanceType("inf2.24xlarge", 6, (2,), Shape.LINE, f"{_DRIVER}: no link 5-0; the same in neuron-ls"),
        InstanceType("inf2.48xlarge", 12, (2,), Shape.RING, f"{_DRIVER}; {_DOCS}"),
        InstanceType("trn1.2xlarge", 1, (2,), Shape.SINGLE, _DOCS),
        InstanceType("trn1.32xlarge", 16, (2,), Shape.TORUS, f"{_DRIVER}; {_SCHEDULER_DOCS}"),
        InstanceType("trn1n.32xlarge", 16, (2,), Shape.TORUS, f"{_DRIVER}; {_SCHEDULER_DOCS}"),
        InstanceType("trn2.3xlarge", 1, (4, 8), Shape.SINGLE, "EC2 instance type description, as Karpenter lists it"),
        InstanceType("trn2.48xlarge", 16, (4, 8), Shape.TORUS, f"{_DRIVER}; AWS Neuron documentation, DRA figure"),
        InstanceType("trn2u.48xlarge", 16, (4, 8), Shape.TORUS, f"{_DRIVER}; AWS Neuron documentation, DRA figure"),
        *_alike(16, Shape.TORUS, _DRIVER, "trn2n.48xlarge", "trn2e.48xlarge", "trn2eu.48xlarge", "trn2p.48xlarge"),
        *_alike(16, Shape.TORUS, _EFA_MAP, "trn3.48xlarge", "trn3p.48xlarge", "trn3pd98.48xlarge", "trn3s.48xlarge"),
        *_alike(16, Shape.TORUS, _EFA_MAP, "trn3-dev0.48xlarge", "trn3-dev1.48xlarge"),
        *_alike(16, Shape.TORUS, _DRIVER_TRN3, "trn3s-es.48xlarge", "trn3sn.48xlarge", "trn3sn-es.48xlarge"),
        *_alike(4, Shape.BLOCKS, f"{_DRIVER}: 4 ids, links unknown", "trn3e.24xlarge", "trn3e-dev0.24xlarge"),
        *_alike(1, Shape.SINGLE, "used in AWS's contests, with 4 logical cores", "trn3.3xlarge"),
        *_alike(
            1, Shape.SINGLE, _DRIVER, "trn3s-es.3xlarge", "trn3sn.3xlarge", "trn3sn-es.3xlarge", "trn3pd98.3xlarge"
        ),
    )
}

ULTRASERVER_TYPE: Final = "trn2u.48xlarge"
"""The type whose driver knows the UltraServers that nodes have labels for (`model.node.ULTRASERVER_SIZES`)."""


def machine_of(node: Node) -> Machine | None:
    """Return the node's machine; None if it has no Neuron, or more than `MOST_CORES` (`doubts` then says so)."""
    if node.published is not None:
        return cast(Machine, node.published.machine)
    return _machine(node.instance_type, _devices(node), _amount(node, NEURON_CORE))


def doubts(node: Node) -> str | None:
    """Return what is implausible about the node's Neuron capacity, for its owner; None if nothing is."""
    devices, cores = _devices(node), _amount(node, NEURON_CORE)
    if not devices and not cores:
        return None
    parts = [*_count_doubts(devices, cores), *_type_doubts(node.instance_type, devices, cores)]
    alias = _amount(node, NEURON_DEVICE_ALIAS)
    if alias and alias != devices:
        parts.append(f"{NEURON_DEVICE_ALIAS} is {alias}, {NEURON_DEVICE} is {devices}: the latter counts")
    return f"node {node.name}: {'; '.join(parts)}" if parts else None


def _count_doubts(devices: int, cores: int) -> list[str]:
    if max(devices, cores) > MOST_CORES:
        return [f"{devices} Neuron devices and {cores} cores are more than {MOST_CORES}; the node's Neuron is not used"]
    if not cores:
        return [f"capacity has no {NEURON_CORE}; only devices are served"]
    if not devices:
        return [f"capacity has no {NEURON_DEVICE}; only cores are served"]
    if cores % devices:
        return [f"{cores} cores do not divide evenly by {devices} devices; only devices are served"]
    return []


def family_of(instance_type: str) -> str:
    """Return what programs are compiled for: `trn1` for trn1.32xlarge and trn1n.32xlarge."""
    found = _FAMILY.match(instance_type.removeprefix("ml."))
    return found[0] if found else ""


def _type_doubts(instance_type: str, devices: int, cores: int) -> list[str]:
    row = INSTANCE_TYPES.get(instance_type)
    if row is None:
        if devices == 1:
            return []
        named = f"instance type {instance_type} is not known" if instance_type else f"no label {INSTANCE_TYPE_LABEL}"
        machine = _machine(instance_type, devices, cores)
        return [f"{named}; {_SERVED[machine.shape]}"] if machine else []
    parts = []
    if devices and devices != row.devices:
        parts.append(f"{devices} Neuron devices, but {row.name} has {row.devices}")
    if devices and cores and not cores % devices and cores // devices not in row.cores_per_device:
        known = " or ".join(str(count) for count in row.cores_per_device)
        parts.append(f"{cores // devices} cores per device, but {row.name} has {known}")
    return parts


def _amount(node: Node, name: str) -> int:
    return max(0, node.capacity.get(name) or node.allocatable.get(name, 0))


def _devices(node: Node) -> int:
    return _amount(node, NEURON_DEVICE) or _amount(node, NEURON_DEVICE_ALIAS)


@memoise(maxsize=4096)
def _machine(instance_type: str, devices: int, cores: int) -> Machine | None:
    if (not devices and not cores) or max(devices, cores) > MOST_CORES:
        return None
    if not devices:
        return Machine(instance_type, _core_shape(instance_type, cores), cores, 1, frozenset({Unit.CORE}))
    shape = shape_of(instance_type, devices)
    if not cores or cores % devices:
        return Machine(instance_type, shape, devices, 1, frozenset({Unit.DEVICE}))
    return Machine(instance_type, shape, devices, cores // devices)


def _core_shape(instance_type: str, cores: int) -> Shape:
    """Return the shape of cores whose devices are unknown: any run of cores on Inf, else one core or all."""
    if cores == 1:
        return Shape.SINGLE
    return Shape.LINE if instance_type.startswith("inf") else Shape.FLAT


def shape_of(instance_type: str, devices: int) -> Shape:
    """Return the table's shape if the count is the table's, else what the family and the count allow."""
    row = INSTANCE_TYPES.get(instance_type)
    if devices == 1:
        return Shape.SINGLE
    if row is not None and row.devices == devices:
        return row.shape
    if instance_type.startswith("inf"):
        return Shape.LINE
    if instance_type.startswith("trn") and devices == 16:
        return Shape.TORUS
    if instance_type.startswith("trn3") and devices == 4:
        return Shape.BLOCKS
    return Shape.FLAT
