"""
Sidecars and init containers, against brute force: each holds a legal set in each phase of the start, or none fits.

What is checked is what is written on the pod, container by container. Not tested here: which of several divisions is
best.
"""

import itertools
import json
import random
from collections.abc import Iterator

import pytest

from neuron_scheduler.model.annotations import AWS_NEURON_IDS, OUR_ALLOCATION
from neuron_scheduler.model.neuron_request import Unit, neuron_container_names, neuron_request
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import effective_requests
from neuron_scheduler.neuron.annotations import allocation_of, annotations_for
from neuron_scheduler.neuron.catalog import Machine, Shape
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import illegal_count, legal_sets, place
from tests.support.neuron_oracle import Kind, Piece, Spec, accounted, containers, division, faults, ids_in, legal
from tests.support.thoroughness import examples, states

INF1_6 = Machine("inf1.6xlarge", Shape.LINE, 4, 4)
INF1_24 = Machine("inf1.24xlarge", Shape.LINE, 16, 4)
INF2_24 = Machine("inf2.24xlarge", Shape.LINE, 6, 2)
INF2_48 = Machine("inf2.48xlarge", Shape.RING, 12, 2)
TRN1 = Machine("trn1.32xlarge", Shape.TORUS, 16, 2)
TRN2 = Machine("trn2.48xlarge", Shape.TORUS, 16, 4)
TRN2_LNC1 = Machine("trn2.48xlarge", Shape.TORUS, 16, 8)
TRN3_4 = Machine("trn3.12xlarge", Shape.BLOCKS, 4, 4)
FLAT_3 = Machine("x1.large", Shape.FLAT, 3, 2)
SINGLE_8 = Machine("trn2.3xlarge", Shape.SINGLE, 1, 8)
MACHINES = (INF1_6, INF1_24, INF2_24, INF2_48, TRN1, TRN2, TRN2_LNC1, TRN3_4, FLAT_3, SINGLE_8)

SIDE, INIT, APP = Kind.SIDECAR, Kind.INIT, Kind.APP


def spec_of(*pieces: tuple[Kind, int]) -> Spec:
    """Return a pod's containers that ask for Neuron, in the order of the spec."""
    return tuple(Piece(kind, count) for kind, count in pieces)


def check(machine: Machine, free: int, unit: Unit, spec: Spec) -> bool:
    """Place a pod on free cores and compare with the oracle; return whether it fits."""
    apps, inits = containers(spec, unit)
    request = neuron_request(apps, inits)
    assert request is not None
    assert request.total == accounted(spec) == effective_requests(apps, init_containers=inits)[request.resource]
    case, free_ids = f"{machine}, free cores {free:#x}, {spec}", ids_in(machine, free, unit)
    placement = place.__wrapped__(machine, CoreMask(free), request)
    if placement is None:
        known = division(machine, free_ids, unit, spec)
        assert known is None, f"{case}: refused, but there is {known}"
        return False
    names = neuron_container_names(apps, inits)
    pod = Pod(uid="u", namespace="n", name="p", node_name="n", neuron=request, neuron_containers=names)
    written = annotations_for(pod=pod, machine=machine, placement=placement, node_name="n")
    own = json.loads(written[OUR_ALLOCATION])
    by_name = own["devices" if unit is Unit.DEVICE else "cores"]
    given = [by_name[str(i)] for i in range(len(spec))]
    assert not [*faults(machine, unit, spec, free=free_ids, given=given, ids=own["ids"])], case
    assert sorted(map(int, written[AWS_NEURON_IDS].split(","))) == own["ids"], case
    bound = Pod(
        uid="u", namespace="n", name="p", node_name="n", neuron=request, neuron_containers=names, allocation=written
    )
    assert allocation_of(bound, machine)[0] == placement.cores, case
    return True


# One row free


def test_a_sidecar_and_an_init_container_do_not_share_a_row() -> None:
    """With one free row and four scattered devices, a sidecar of 4 leaves none for an init container of 4 beside it."""
    scattered = (0, 1, 2, 3, 7, 11, 13, 14)
    free = devices_free(TRN1, sum(1 << i for i in scattered))
    for spec in (
        spec_of((SIDE, 4), (INIT, 4)),
        spec_of((SIDE, 4), (INIT, 4), (APP, 1)),
        spec_of((SIDE, 4), (INIT, 4), (APP, 4)),
    ):
        assert not check(TRN1, free, Unit.DEVICE, spec)
    assert check(TRN1, free, Unit.DEVICE, spec_of((INIT, 4), (SIDE, 4)))
    assert check(TRN1, free, Unit.DEVICE, spec_of((INIT, 4), (SIDE, 4), (APP, 1)))
    assert check(TRN1, free | 0xFF << 8, Unit.DEVICE, spec_of((SIDE, 4), (INIT, 4), (APP, 4)))


# Exhaustive

SHAPES = tuple(
    shape
    for length in (2, 3, 4)
    for shape in itertools.product((SIDE, INIT, APP), repeat=length)
    if INIT in shape and list(shape) == sorted(shape, key=lambda kind: kind is APP)
)
"""Every order of up to four init containers, sidecars and app containers with at least one init container."""


def specs(counts: tuple[int, ...], shapes: tuple[tuple[Kind, ...], ...], most: int) -> Iterator[Spec]:
    """Yield every pod of these shapes and counts that needs no more than the machine has."""
    for shape in shapes:
        for chosen in itertools.product(counts, repeat=len(shape)):
            spec = spec_of(*zip(shape, chosen, strict=True))
            if accounted(spec) <= most:
                yield spec


def devices_free(machine: Machine, whole: int) -> int:
    """Return the core mask of whole devices."""
    width = machine.cores_per_device
    return sum(((1 << width) - 1) << width * i for i in range(machine.devices) if whole >> i & 1)


PICTURES = tuple(
    sum(((1 << free) - 1) << 4 * row for row, free in enumerate((*low, *high)))
    for low, high in itertools.combinations_with_replacement(
        tuple(itertools.combinations_with_replacement(range(5), 2)), 2
    )
)
"""
The states of a torus that differ in what a rule looks at: how many devices of each row are free, and which rows are
neighbours. Exchanging devices in a row, rows in a half, or the halves changes nothing.
"""


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if len(shape) < 4], ids=str)
def test_every_picture_of_a_torus(shape: tuple[Kind, ...]) -> None:
    """Up to three containers are right on every picture of a torus, and on some of the states it stands for."""
    dice = random.Random(str(shape))
    for spec in specs((1, 4, 8), (shape,), 16):
        for whole in (
            *states(PICTURES),
            *(dice.getrandbits(16) | dice.getrandbits(16) for _ in range(5)),
        ):
            check(TRN1, devices_free(TRN1, whole), Unit.DEVICE, spec)


def test_every_state_of_a_torus() -> None:
    """A sidecar of 4 and an init container of 4 beside it are right on each of the 65,536 states."""
    for whole in states(range(1 << 16)):
        check(TRN1, devices_free(TRN1, whole), Unit.DEVICE, spec_of((SIDE, 4), (INIT, 4)))


@pytest.mark.parametrize("machine", [INF1_6, INF2_24], ids=lambda machine: machine.instance_type)
def test_every_state_of_a_short_line(machine: Machine) -> None:
    """Up to three containers of up to 3 devices are right on each state of 4 and of 6 devices."""
    shapes = tuple(shape for shape in SHAPES if len(shape) < 4)
    for spec in states(tuple(specs((1, 2, 3), shapes, machine.devices))):
        for whole in range(1 << machine.devices):
            check(machine, devices_free(machine, whole), Unit.DEVICE, spec)


# At random


def random_case(dice: random.Random) -> tuple[Machine, int, Unit, Spec]:
    """Return a machine, its free cores (mostly whole devices), and a pod with legal counts."""
    machine, unit = dice.choice(MACHINES), dice.choice(list(Unit))
    everything = (1 << machine.cores_per_device) - 1
    free, share = 0, dice.choice((0.5, 0.8, 0.95))
    for device in range(machine.devices):
        part = everything if dice.random() < share else dice.choice((0, 0, dice.getrandbits(machine.cores_per_device)))
        free |= part << device * machine.cores_per_device
    if machine.shape is Shape.TORUS and dice.random() < 0.5:
        row = everything * sum(1 << machine.cores_per_device * i for i in range(4))
        for at in dice.sample(range(4), dice.randint(1, 3)):
            free |= row << 4 * machine.cores_per_device * at
    legal_counts = [n for n in range(1, machine.size(unit) + 1) if legal(machine, unit, n)]
    weights = [1 / n for n in legal_counts]
    shape = [*dice.choices((SIDE, INIT), k=dice.randint(0, 4)), *[APP] * dice.randint(0, 3)] or [APP]
    return machine, free, unit, spec_of(*((kind, dice.choices(legal_counts, weights)[0]) for kind in shape))


@pytest.mark.parametrize("seed", range(examples(4)))
def test_random_pods(seed: int) -> None:
    """On any machine in any state, what is given is legal in every phase, and nothing is refused that would fit."""
    dice = random.Random(seed)
    placed = sum(check(*random_case(dice)) for _ in range(100))
    assert 10 < placed < 100


# Never, and all there is


def test_containers_that_never_fit_together_are_an_illegal_count() -> None:
    """Five threes need five devices, and only the cores of four are accounted: the refusal says so."""
    apps, inits = containers(spec_of((INIT, 16), *[(APP, 3)] * 5), Unit.CORE)
    request = neuron_request(apps, inits)
    assert request is not None
    assert request.total == 16
    assert illegal_count(TRN2, request) == (
        "Instance type trn2.48xlarge cannot give each container of this pod a contiguous set of its own, even when it"
        " is empty."
    )
    assert illegal_count(TRN2_LNC1, request) is not None  # 16 cores are two of its devices
    apps, inits = containers(spec_of((INIT, 16), *[(APP, 3)] * 4), Unit.CORE)
    request = neuron_request(apps, inits)
    assert request is not None
    assert illegal_count(TRN2, request) is None


@pytest.mark.parametrize("seed", range(examples(10)))
def test_the_listed_sets_are_all_there_are(seed: int) -> None:
    """Preemption chooses among all sets that a pod could get, init containers included; on devices of a torus."""
    dice = random.Random(seed)
    shape = [*dice.choices((SIDE, INIT), k=dice.randint(1, 3)), *[APP] * dice.randint(0, 2)]
    spec = spec_of(*((kind, dice.choice((1, 1, 4, 8))) for kind in shape))
    apps, inits = containers(spec, Unit.DEVICE)
    request = neuron_request(apps, inits)
    assert request is not None
    listed = legal_sets(TRN1, request)
    if request.total > 16:
        assert listed == ()
        return
    if listed is None:
        return
    every = {
        sum(1 << i for i in ids)
        for ids in itertools.combinations(range(16), request.total)
        if division(TRN1, sum(1 << i for i in ids), Unit.DEVICE, spec) is not None
    }
    assert {ids_in(TRN1, int(cores), Unit.DEVICE) for cores in listed} == every
