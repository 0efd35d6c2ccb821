"""Which machine a node is, by its label and its capacity."""

import pytest

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, InstanceType, Machine, Shape, doubts, machine_of

BOTH = frozenset(Unit)


def node(instance_type: str = "", **capacity: int) -> Node:
    """Return a node; capacities are `devices`, `cores`, `alias`."""
    names = {"devices": NEURON_DEVICE, "cores": NEURON_CORE, "alias": NEURON_DEVICE_ALIAS}
    labels = {INSTANCE_TYPE_LABEL: instance_type} if instance_type else {}
    return Node(uid="u", name="n", labels=labels, capacity={names[key]: count for key, count in capacity.items()})


MACHINES: dict[str, tuple[Node, Shape, int, int]] = {
    "inf1.6xlarge is a line": (node("inf1.6xlarge", devices=4, cores=16), Shape.LINE, 4, 4),
    "inf1.24xlarge is a line, its closing link is unproven": (
        node("inf1.24xlarge", devices=16, cores=64),
        Shape.LINE,
        16,
        4,
    ),
    "inf2.24xlarge is a line": (node("inf2.24xlarge", devices=6, cores=12), Shape.LINE, 6, 2),
    "inf2.48xlarge is a ring": (node("inf2.48xlarge", devices=12, cores=24), Shape.RING, 12, 2),
    "trn1.32xlarge is a torus": (node("trn1.32xlarge", devices=16, cores=32), Shape.TORUS, 16, 2),
    "HyperPod's prefix is stripped": (node("ml.trn1.32xlarge", devices=16, cores=32), Shape.TORUS, 16, 2),
    "trn2 at LNC 2 has 4 cores per device": (node("trn2.48xlarge", devices=16, cores=64), Shape.TORUS, 16, 4),
    "trn2 at LNC 1 has 8 cores per device": (node("trn2.48xlarge", devices=16, cores=128), Shape.TORUS, 16, 8),
    "one device is single, whatever the type": (node("anything", devices=1, cores=8), Shape.SINGLE, 1, 8),
    "unknown trn with 16 devices is a torus": (node("trn9.48xlarge", devices=16, cores=64), Shape.TORUS, 16, 4),
    "unknown trn3 with 4 devices has blocks": (node("trn3pds.x", devices=4, cores=32), Shape.BLOCKS, 4, 8),
    "unknown trn with 4 devices is flat": (node("trn9.12xlarge", devices=4, cores=16), Shape.FLAT, 4, 4),
    "unknown inf is a line": (node("inf9.12xlarge", devices=5, cores=20), Shape.LINE, 5, 4),
    "a known type with another count keeps to its family": (
        node("inf2.48xlarge", devices=11, cores=22),
        Shape.LINE,
        11,
        2,
    ),
    "a torus with a device missing is flat": (node("trn1.32xlarge", devices=15, cores=30), Shape.FLAT, 15, 2),
    "no label at all is flat": (node(devices=16, cores=32), Shape.FLAT, 16, 2),
    "the alias counts devices too": (node("trn1.32xlarge", alias=16, cores=32), Shape.TORUS, 16, 2),
}


@pytest.mark.parametrize("case", MACHINES)
def test_machine(case: str) -> None:
    """A node's shape comes from its type, its counts from its capacity."""
    given, shape, devices, cores_per_device = MACHINES[case]
    machine = machine_of(given)

    assert machine == Machine(given.instance_type, shape, devices, cores_per_device, BOTH)
    assert machine.core_count == devices * cores_per_device
    assert machine.all_cores.bit_count() == machine.core_count


ONE_UNIT: dict[str, tuple[Node, Machine]] = {
    "without cores only devices are served": (
        node("trn1.32xlarge", devices=16),
        Machine("trn1.32xlarge", Shape.TORUS, 16, 1, frozenset({Unit.DEVICE})),
    ),
    "uneven cores serve devices only": (
        node("inf2.24xlarge", devices=6, cores=13),
        Machine("inf2.24xlarge", Shape.LINE, 6, 1, frozenset({Unit.DEVICE})),
    ),
    "fewer cores than devices serve devices only": (
        node("inf2.24xlarge", devices=6, cores=3),
        Machine("inf2.24xlarge", Shape.LINE, 6, 1, frozenset({Unit.DEVICE})),
    ),
    "inf without devices serves runs of cores": (
        node("inf2.24xlarge", cores=12),
        Machine("inf2.24xlarge", Shape.LINE, 12, 1, frozenset({Unit.CORE})),
    ),
    "others without devices serve one core or all": (
        node("trn1.32xlarge", cores=32),
        Machine("trn1.32xlarge", Shape.FLAT, 32, 1, frozenset({Unit.CORE})),
    ),
}


@pytest.mark.parametrize("case", ONE_UNIT)
def test_one_unit(case: str) -> None:
    """If cores cannot be mapped to devices, one unit is served and `doubts` says so."""
    given, want = ONE_UNIT[case]

    assert machine_of(given) == want
    assert "only" in (doubts(given) or "")


def test_no_neuron() -> None:
    """A node without Neuron is no machine and raises no doubt."""
    assert machine_of(node("m5.large")) is None
    assert machine_of(node("trn1.32xlarge", devices=0, cores=0)) is None
    assert doubts(node("m5.large")) is None


def test_allocatable_stands_in() -> None:
    """A node object without capacity is read by its allocatable."""
    given = Node(uid="u", name="n", allocatable={NEURON_DEVICE: 1, NEURON_CORE: 2})

    assert machine_of(given) == Machine("", Shape.SINGLE, 1, 2)


def test_absurd() -> None:
    """A machine with an implausible size is refused, and `doubts` says so."""
    given = node("trn1.32xlarge", devices=16, cores=10**9)

    assert machine_of(given) is None
    assert "not used" in (doubts(given) or "")


@pytest.mark.parametrize("row", INSTANCE_TYPES.values(), ids=lambda row: row.name)
def test_table(row: object) -> None:
    """Each row of the table gives its own shape without any doubt, at each of its core counts."""
    assert isinstance(row, type(INSTANCE_TYPES["inf1.xlarge"]))
    assert row.source
    for cores in row.cores_per_device:
        given = node(row.name, devices=row.devices, cores=row.devices * cores)

        assert machine_of(given) == Machine(row.name, row.shape, row.devices, cores)
        assert doubts(given) is None


@pytest.mark.parametrize("row", INSTANCE_TYPES.values(), ids=lambda row: row.name)
def test_shapes(row: InstanceType) -> None:
    """A torus has the 16 devices from which its blocks are counted, and a single device is one."""
    assert (row.shape is Shape.TORUS) <= (row.devices == 16)
    assert (row.shape is Shape.SINGLE) == (row.devices == 1)


def test_doubts() -> None:
    """All contradictions, to the table or between counts, are in one sentence."""
    assert doubts(node("trn1.32xlarge", devices=15, cores=30)) == (
        "node n: 15 Neuron devices, but trn1.32xlarge has 16"
    )
    assert doubts(node("trn2.48xlarge", devices=16, cores=16)) == (
        "node n: 1 cores per device, but trn2.48xlarge has 4 or 8"
    )
    assert doubts(node("x9.large", devices=3, cores=6)) == (
        "node n: instance type x9.large is not known; one or all of its devices are served"
    )
    assert doubts(node("inf1.6xlarge", devices=4, alias=3, cores=16)) == (
        "node n: aws.amazon.com/neurondevice is 3, aws.amazon.com/neuron is 4: the latter counts"
    )


def test_memoised() -> None:
    """Equal nodes share one machine, so that caches keyed by it are hit by identity."""
    assert machine_of(node("trn1.32xlarge", devices=16, cores=32)) is machine_of(
        node("ml.trn1.32xlarge", devices=16, cores=32)
    )
