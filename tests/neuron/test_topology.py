"""
Placement against brute force.

The oracle writes the legal sets out as AWS's documentation draws them and looks at each of them; it shares nothing with
the code. Not tested here: counts that kubelet allows, health, which node is chosen.
"""

import functools
import itertools
import random
import tracemalloc
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from neuron_scheduler.model.neuron_request import NeuronRequest, Unit, with_pairs
from neuron_scheduler.neuron.catalog import Machine, Shape
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import (
    UNEVEN,
    Placement,
    free_blocks,
    illegal_count,
    largest_free_block,
    place,
    served_counts,
    whole_free_devices,
)
from tests.support.neuron_oracle import Kind, Piece, Spec, division
from tests.support.thoroughness import examples, states

INF1_6 = Machine("inf1.6xlarge", Shape.LINE, 4, 4)
INF1_24 = Machine("inf1.24xlarge", Shape.LINE, 16, 4)
INF2_24 = Machine("inf2.24xlarge", Shape.LINE, 6, 2)
INF2_48 = Machine("inf2.48xlarge", Shape.RING, 12, 2)
TRN1 = Machine("trn1.32xlarge", Shape.TORUS, 16, 2)
TRN1_2 = Machine("trn1.2xlarge", Shape.SINGLE, 1, 2)
TRN2 = Machine("trn2.48xlarge", Shape.TORUS, 16, 4)
TRN2_LNC1 = Machine("trn2.48xlarge", Shape.TORUS, 16, 8)
PAIRED = attrs.evolve(TRN2, pairs=True)
TRN3_4 = Machine("trn3.12xlarge", Shape.BLOCKS, 4, 4)
FLAT_3 = Machine("x1.large", Shape.FLAT, 3, 2)
SINGLE_8 = Machine("trn2.3xlarge", Shape.SINGLE, 1, 8)

TORUS_SETS = {
    1: [[i] for i in range(16)],
    2: [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]],  # where a profile allows pairs
    4: [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
    8: [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]],
    16: [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]],
}


def devices(*counts: int, init: tuple[int, ...] = (), sidecars: int = 0) -> NeuronRequest:
    """Return a request for devices; the first `sidecars` of the counts run beside the init containers."""
    return _request(Unit.DEVICE, counts, init, sidecars)


def cores(*counts: int, init: tuple[int, ...] = (), sidecars: int = 0) -> NeuronRequest:
    return _request(Unit.CORE, counts, init, sidecars)


def _request(unit: Unit, counts: tuple[int, ...], init: tuple[int, ...], sidecars: int) -> NeuronRequest:
    total = max(sum(counts), sum(counts[:sidecars]) + max(init, default=0))
    return NeuronRequest(unit, counts, total, init, beside=(sidecars,) * len(init))


def bits(ids: Iterable[int]) -> int:
    return sum(1 << i for i in ids)


def core_bits(ids: Iterable[int]) -> CoreMask:
    return CoreMask(bits(ids))


def device_bits(machine: Machine, ids: Iterable[int]) -> CoreMask:
    return CoreMask(sum(((1 << machine.cores_per_device) - 1) << i * machine.cores_per_device for i in ids))


def got(machine: Machine, free: CoreMask, request: NeuronRequest) -> Placement:
    """Return the placement, which must exist."""
    placement = place(machine, free, request)
    assert placement is not None
    return placement


# The oracle


@functools.cache
def legal_sets(machine: Machine, unit: Unit, count: int) -> list[tuple[int, ...]]:
    """Return every legal set of `count` ids, by the documents."""
    width = machine.cores_per_device if unit is Unit.CORE else 1
    size = machine.devices * width
    if machine.shape in (Shape.LINE, Shape.RING, Shape.SINGLE):
        return (
            [ids for ids in itertools.combinations(range(size), count) if ids[-1] - ids[0] == count - 1]
            if (size <= 16 and count <= 3)
            else [tuple(range(i, i + count)) for i in range(size - count + 1)]
        )
    if machine.shape is Shape.FLAT:
        return [(i,) for i in range(size)] if count == 1 else [tuple(range(size))] if count == size else []
    if count <= width:
        runs = [tuple(range(i, i + count)) for i in range(size - count + 1)]
        return [ids for ids in runs if ids[0] // width == ids[-1] // width]
    if count % width or (count == 2 * width and not machine.pairs):
        return []
    if machine.shape is Shape.BLOCKS:
        return [tuple(range(size))] if count == size else []
    return [
        tuple(core for device in block for core in range(device * width, (device + 1) * width))
        for block in TORUS_SETS.get(count // width, [])
    ]


@functools.cache
def legal_masks(machine: Machine, unit: Unit, count: int) -> list[int]:
    return [bits(ids) for ids in legal_sets(machine, unit, count)]


def free_ids(machine: Machine, free: CoreMask, unit: Unit) -> int:
    """Return the mask of free ids in a unit, looking at each core."""
    if unit is Unit.CORE:
        return int(free)
    width = machine.cores_per_device
    return bits(d for d in range(machine.devices) if all(int(free) >> d * width + c & 1 for c in range(width)))


@functools.lru_cache(maxsize=1 << 17)
def levels(machine: Machine, whole: int) -> list[int]:
    """Return the level of the block that taking each device would cut, 0 for devices that are not whole."""
    if machine.shape in (Shape.LINE, Shape.RING, Shape.SINGLE):
        picture = "".join("x" if whole >> d & 1 else "." for d in range(machine.devices))
        lengths = [len(run) for run in picture.replace(".", " . ").split() for _ in run]
        return [length if mark == "x" else 0 for mark, length in zip(picture, lengths, strict=True)]
    blocks = _BLOCKS if machine.pairs else _BLOCKS[1:]
    small, *larger = blocks if machine.shape is Shape.TORUS else [[(1 << machine.devices) - 1]]
    by_device = [0] * machine.devices
    for row in small:
        for device in range((row & -row).bit_length() - 1, row.bit_length()):
            by_device[device] = (row & whole).bit_count() if whole >> device & 1 else 0
    for block in itertools.chain(*larger):
        if block & whole == block:
            for device in range((block & -block).bit_length() - 1, block.bit_length()):
                by_device[device] = block.bit_count()
    return by_device


_BLOCKS = [[bits(block) for block in TORUS_SETS[count]] for count in (2, 4, 8, 16)]


def cut(machine: Machine, free: CoreMask, cores: CoreMask) -> int:
    """Return the level of a set by looking at each of its cores."""
    by_device = levels(machine, free_ids(machine, free, Unit.DEVICE))
    return max(by_device[c // machine.cores_per_device] for c in range(machine.core_count) if int(cores) >> c & 1)


def spread_devices(machine: Machine, whole: int) -> CoreMask:
    """Return core bits for a mask of devices."""
    return CoreMask(
        sum(_BYTES[machine.cores_per_device][whole >> 8 * i & 255] << 8 * i * machine.cores_per_device for i in (0, 1))
    )


_BYTES = {w: [sum(((1 << w) - 1) << d * w for d in range(8) if byte >> d & 1) for byte in range(256)] for w in (2, 4)}


def check_one(machine: Machine, free: CoreMask, request: NeuronRequest, whole: int) -> None:
    """Compare one container's placement with all the legal sets; `whole` is the mask of free devices."""
    ids_free = whole if request.unit is Unit.DEVICE else int(free)
    masks = legal_masks(machine, request.unit, request.total)
    possible = [mask for mask in masks if mask & ids_free == mask]
    placement = place.__wrapped__(machine, free, request)
    if not possible:
        assert placement is None, (machine, bin(int(free)), request)
        return
    assert placement is not None, (machine, bin(int(free)), request)
    ids = bits(placement.ids)
    assert ids in possible
    assert placement.containers == (placement.ids,)
    assert placement.cores == (spread_devices(machine, ids) if request.unit is Unit.DEVICE else ids)
    by_device = levels(machine, whole)
    width = machine.cores_per_device if request.unit is Unit.CORE else 1

    def level(mask: int) -> int:
        low, high = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
        return max(by_device[low // width : high // width + 1])

    assert placement.level == level(ids)
    assert placement.level == min(map(level, possible))


def asking(machine: Machine, request: NeuronRequest) -> NeuronRequest:
    """Return the request as a profile makes it that allows pairs, if the machine is seen so."""
    return with_pairs(request) if machine.pairs else request


# Exhaustive


@pytest.mark.parametrize(
    ("machine", "count"), [*((TRN1, count) for count in (1, 4, 8, 16)), *((PAIRED, count) for count in (1, 2, 4, 8))]
)
def test_torus_all_masks(machine: Machine, count: int) -> None:
    """On each of the 65,536 states of a torus a documented set out of the smallest free block is found, if any."""
    request = asking(machine, devices(count))
    for whole in states(range(1 << 16)):
        check_one(machine, spread_devices(machine, whole), request, whole)


@pytest.mark.parametrize("request_", [devices(2), cores(8), cores(16), devices(1), devices(4)], ids=range(5))
@pytest.mark.parametrize("machine", [TRN1, TRN2, TRN2_LNC1, INF2_48, TRN3_4], ids=range(5))
def test_each_request_is_placed_by_the_rule_of_its_own_profile(machine: Machine, request_: NeuronRequest) -> None:
    """Pairs are legal only for a request that may have them, on Trn2 and Trn3: of devices, or of all their cores."""
    asked = request_.total if request_.unit is Unit.DEVICE else request_.total // machine.cores_per_device
    pair = machine.shape is Shape.TORUS and machine is not TRN1 and asked == 2
    paired = with_pairs(request_)
    assert (place(machine, machine.all_cores, paired) is not None) == (
        pair or place(machine, machine.all_cores, request_) is not None
    )
    if pair:
        assert illegal_count(machine, request_) is not None
        assert got(machine, machine.all_cores & ~device_bits(machine, (0, 3)), paired).cores == device_bits(
            machine, (4, 5)
        )


@pytest.mark.parametrize("machine", [INF1_6, INF2_24, INF2_48], ids=lambda machine: machine.instance_type)
def test_lines_all_masks(machine: Machine) -> None:
    """On each state of a line or ring, each count gets a run out of the shortest free run, or none exists."""
    for count in range(1, machine.devices + 1):
        request = devices(count)
        for whole in states(range(1 << machine.devices)):
            check_one(machine, spread_devices(machine, whole), request, whole)


@pytest.mark.parametrize("count", range(1, 17))
def test_long_line(count: int) -> None:
    """On the 16 devices of inf1.24xlarge the same holds, on every 29th state."""
    for whole in states(range(count, 1 << 16, 61)):
        check_one(INF1_24, spread_devices(INF1_24, whole), devices(count), whole)


@pytest.mark.parametrize(("count", "step"), [(1, 31), (2, 1), (3, 31), (4, 31), (5, 31), (9, 1), (15, 31), (16, 31)])
def test_cores_all_masks(count: int, step: int) -> None:
    """On the core states of inf1.6xlarge (all 65,536 for 2 and 9), cores are a run that breaks no block needlessly."""
    for free in map(CoreMask, states(range(0, 1 << 16, step))):
        check_one(INF1_6, free, cores(count), free_ids(INF1_6, free, Unit.DEVICE))


# Several containers, against a search through everything


def spec_of(request: NeuronRequest) -> Spec:
    """Return containers that make this request: sidecars, then the init containers beside them, then the others."""
    sidecars = max(request.beside, default=0)
    kinds = [*[Kind.SIDECAR] * sidecars, *[Kind.INIT] * len(request.inits), *[Kind.APP] * len(request.counts)]
    counts = (*request.counts[:sidecars], *request.init_counts, *request.counts[sidecars:])
    return tuple(Piece(kind, count) for kind, count in zip(kinds, counts, strict=False))


SMALL_MACHINES = {
    (INF1_6, Unit.DEVICE): [1, 2, 3],
    (INF1_6, Unit.CORE): [1, 2, 3, 4, 5, 7],
    (INF2_48, Unit.DEVICE): [1, 2, 3, 5],
    (TRN1, Unit.DEVICE): [1, 4, 8],
    (TRN1, Unit.CORE): [1, 2, 8, 16],
    (PAIRED, Unit.DEVICE): [1, 2, 4, 8],
    (PAIRED, Unit.CORE): [1, 2, 4, 8, 16],
    (TRN3_4, Unit.DEVICE): [1, 4],
    (TRN3_4, Unit.CORE): [1, 2, 3, 4, 16],
    (FLAT_3, Unit.DEVICE): [1, 3],
    (FLAT_3, Unit.CORE): [1, 6],
    (SINGLE_8, Unit.CORE): [1, 2, 3, 8],
}


@st.composite
def situations(draw: st.DrawFn) -> tuple[Machine, CoreMask, NeuronRequest]:
    """Draw a machine, its free cores (whole devices more often than not), and a pod of a few containers."""
    machine, unit = draw(st.sampled_from(list(SMALL_MACHINES)))
    counts_of = st.sampled_from(SMALL_MACHINES[machine, unit])
    free = 0
    everything = (1 << machine.cores_per_device) - 1
    for device in range(machine.devices):
        state = draw(st.sampled_from([everything, everything, 0, None]))
        part = draw(st.integers(0, everything)) if state is None else state
        free |= part << device * machine.cores_per_device
    init = tuple(draw(st.lists(counts_of, max_size=2)))
    counts = tuple(draw(st.lists(counts_of, min_size=0 if init else 1, max_size=4)))
    request = asking(machine, _request(unit, counts, init, draw(st.integers(0, len(counts)))))
    return machine, CoreMask(free), request


@settings(max_examples=examples(100), deadline=None)
@given(situations())
def test_several_containers(situation: tuple[Machine, CoreMask, NeuronRequest]) -> None:
    """A placement exists exactly where brute force finds one, and it is free, legal and disjoint."""
    machine, free, request = situation
    placement = place(machine, free, request)

    whole = free_ids(machine, free, request.unit)

    assert (placement is not None) == (division(machine, whole, request.unit, spec_of(request)) is not None)
    if placement is None:
        return
    ids = bits(placement.ids)
    assert list(placement.ids) == sorted(set(placement.ids))
    assert len(placement.ids) == request.total
    assert ids & whole == ids
    assert len(placement.containers) == len(request.counts)
    taken = 0
    for container, count in zip(placement.containers, request.counts, strict=True):
        assert container in legal_sets(machine, request.unit, count)
        assert not taken & bits(container)
        taken |= bits(container)
    assert taken & ids == taken
    for container, (count, beside) in zip(placement.inits, request.inits, strict=True):
        assert container in legal_sets(machine, request.unit, count)
        assert {*container}.isdisjoint(itertools.chain(*placement.containers[:beside]))
        assert bits(container) & ids == bits(container)
    assert placement.cores == (device_bits(machine, placement.ids) if request.unit is Unit.DEVICE else ids)
    assert placement.level == cut(machine, free, placement.cores)


@settings(max_examples=examples(80), deadline=None)
@given(situations())
def test_ascending(situation: tuple[Machine, CoreMask, NeuronRequest]) -> None:
    """The containers' ids ascend in spec order wherever any such placement exists (without larger init containers)."""
    machine, free, request = situation
    request = NeuronRequest(request.unit, request.counts or (1,), sum(request.counts) or 1)
    whole = free_ids(machine, free, request.unit)

    def possible(index: int, cursor: int) -> bool:
        if index == len(request.counts):
            return True
        sets = legal_sets(machine, request.unit, request.counts[index])
        return any(s[0] >= cursor and bits(s) & whole == bits(s) and possible(index + 1, s[-1] + 1) for s in sets)

    if possible(0, 0):
        listed = [i for container in got(machine, free, request).containers for i in container]
        assert listed == sorted(listed)


@settings(max_examples=examples(100), deadline=None)
@given(situations())
def test_largest_free_block(situation: tuple[Machine, CoreMask, NeuronRequest]) -> None:
    """The largest free block is the largest legal set that is free, in either unit."""
    machine, free, request = situation
    whole = free_ids(machine, free, request.unit)
    size = machine.size(request.unit)
    want = [n for n in range(1, size + 1) if any(m & whole == m for m in legal_masks(machine, request.unit, n))]

    assert largest_free_block(machine, free, request.unit) == max(want, default=0)
    assert whole_free_devices(machine, free) == free_ids(machine, free, Unit.DEVICE).bit_count()


# The documents' own cases


@pytest.mark.parametrize("machine", [INF2_24, INF1_6, TRN1_2, TRN3_4, FLAT_3], ids=lambda m: m.instance_type)
def test_free_blocks_of_small_machines(machine: Machine) -> None:
    """The blocks are all whole free devices that the kubelet gives out, in legal counts; the largest is the largest."""
    for bits in states(range(1 << min(machine.core_count, 12))):
        _check_free_blocks(machine, CoreMask(bits))


@given(st.integers(0, (1 << 16) - 1), st.integers(0, 16))
@settings(max_examples=examples(500))
def test_free_blocks_of_a_torus(whole: int, most: int) -> None:
    """Also on a torus, where blocks are aligned, and if the kubelet has fewer devices."""
    free = CoreMask(sum(0b11 << 2 * device for device in range(16) if whole >> device & 1))
    _check_free_blocks(TRN1, free)
    limited = free_blocks(TRN1, free, most)
    assert sum(limited) == min(most, whole.bit_count())
    assert {*limited} <= {1, 4, 8, 16}
    assert limited[:1] <= free_blocks(TRN1, free, 16)[:1]


def _check_free_blocks(machine: Machine, free: CoreMask) -> None:
    blocks = free_blocks(machine, free, machine.devices)
    assert sum(blocks) == whole_free_devices(machine, free)
    assert {*blocks} <= {*served_counts(machine, Unit.DEVICE)}
    assert [*blocks] == sorted(blocks, reverse=True)
    assert max(blocks, default=0) == largest_free_block(machine, free, Unit.DEVICE)


def test_nine_cores() -> None:
    """9 cores on an empty inf1.6xlarge are 0-8; then 2 devices do not fit, 1 device is the last one."""
    nine = got(INF1_6, INF1_6.all_cores, cores(9))
    free = INF1_6.all_cores & ~nine.cores

    assert nine.ids == (0, 1, 2, 3, 4, 5, 6, 7, 8)
    assert whole_free_devices(INF1_6, free) == 1
    assert place(INF1_6, free, devices(2)) is None
    assert got(INF1_6, free, devices(1)).ids == (3,)
    assert got(INF1_6, free, cores(3)).ids == (9, 10, 11)
    assert got(INF1_6, free, cores(3)).level == 0


def test_three_devices() -> None:
    """3 devices on inf2 are contiguous, never 0, 2, 4, and never wrap around."""
    assert got(INF2_48, INF2_48.all_cores, devices(3)).ids == (0, 1, 2)
    assert place(INF2_48, device_bits(INF2_48, [0, 2, 4]), devices(3)) is None
    assert place(INF2_48, device_bits(INF2_48, [10, 11, 0]), devices(3)) is None
    assert got(INF2_48, device_bits(INF2_48, [11, 0]), devices(1)).ids == (0,)


def test_pairs_on_the_torus() -> None:
    """{1,2} and squares are never given on trn1."""
    sentence = (
        "Instance type trn1.32xlarge does not support requests for device: 2. "
        "Please request a different number of devices."
    )

    assert illegal_count(TRN1, devices(2)) == sentence
    assert place(TRN1, TRN1.all_cores, devices(2)) is None
    assert place(TRN1, device_bits(TRN1, [9, 10, 13, 14]), devices(4)) is None
    assert place(TRN1, device_bits(TRN1, range(4, 12)), devices(8)) is None


def test_seven_devices() -> None:
    """7 devices on trn1.32xlarge get AWS's sentence, letter for letter; on inf2.48xlarge they are fine."""
    assert illegal_count(TRN1, devices(7)) == (
        "Instance type trn1.32xlarge does not support requests for device: 7. "
        "Please request a different number of devices."
    )
    assert illegal_count(INF2_48, devices(7)) is None


LEGAL_COUNTS: dict[str, tuple[Machine, Unit, set[int]]] = {
    "torus devices": (TRN1, Unit.DEVICE, {1, 4, 8, 16}),
    "trn1 cores": (TRN1, Unit.CORE, {1, 2, 8, 16, 32}),
    "trn2 cores at LNC 2": (TRN2, Unit.CORE, {1, 2, 3, 4, 16, 32, 64}),
    "trn2 cores at LNC 1": (TRN2_LNC1, Unit.CORE, {*range(1, 9), 32, 64, 128}),
    "inf1 cores": (INF1_6, Unit.CORE, set(range(1, 17))),
    "inf1 devices": (INF1_24, Unit.DEVICE, set(range(1, 17))),
    "one device, its cores": (SINGLE_8, Unit.CORE, set(range(1, 9))),
    "blocks": (TRN3_4, Unit.DEVICE, {1, 4}),
    "unknown devices": (FLAT_3, Unit.DEVICE, {1, 3}),
    "unknown cores": (FLAT_3, Unit.CORE, {1, 6}),
}


@pytest.mark.parametrize("case", LEGAL_COUNTS)
def test_legal_counts(case: str) -> None:
    """Exactly the documented counts are legal, and each of them is placed on an empty machine."""
    machine, unit, want = LEGAL_COUNTS[case]
    requests = {n: NeuronRequest(unit, (n,), n) for n in range(1, machine.size(unit) + 1)}

    assert {n for n, request in requests.items() if illegal_count(machine, request) is None} == want
    assert {n for n, request in requests.items() if place(machine, machine.all_cores, request)} == want


def test_counts_are_per_container() -> None:
    """The pod's total need not be legal; each container's and each init container's count must be."""
    assert illegal_count(TRN1, devices(4, 1)) is None
    assert "device: 3." in (illegal_count(TRN1, devices(4, 3)) or "")
    assert "device: 2." in (illegal_count(TRN1, devices(4, init=(2,))) or "")
    assert "core: 3." in (illegal_count(TRN1, cores(3)) or "")


def test_too_many_is_no_illegal_count() -> None:
    """More than the machine has is a lack of capacity: no sentence, and no placement."""
    assert illegal_count(TRN1, devices(17)) is None
    assert place(TRN1, TRN1.all_cores, devices(17)) is None


def test_unit_not_served() -> None:
    """A unit that cannot be mapped is refused with its own reason."""
    machine = Machine("inf2.24xlarge", Shape.LINE, 6, 1, frozenset({Unit.DEVICE}))

    assert illegal_count(machine, cores(1)) == UNEVEN
    assert place(machine, machine.all_cores, cores(1)) is None
    assert largest_free_block(machine, machine.all_cores, Unit.CORE) == 0
    assert got(machine, machine.all_cores, devices(2)).ids == (0, 1)


PREFERENCES: dict[str, tuple[Machine, CoreMask, NeuronRequest, tuple[int, ...], int]] = {
    "one device goes to the most broken row": (
        TRN1,
        device_bits(TRN1, [1, 2, 6, 8, 9, 10, 11]),
        devices(1),
        (6,),
        1,
    ),
    "a row out of a broken half, not of a whole one": (
        TRN1,
        device_bits(TRN1, [*range(8), 12, 13, 14, 15]),
        devices(4),
        (12, 13, 14, 15),
        4,
    ),
    "an exact fit first": (INF2_48, device_bits(INF2_48, [0, 1, 2, 3, 6, 7, 9]), devices(2), (6, 7), 2),
    "else the shortest run, cut at an end": (
        INF2_48,
        device_bits(INF2_48, [0, 1, 2, 3, 4, 7, 8, 9]),
        devices(2),
        (7, 8),
        3,
    ),
    "a core inside a partly used device": (TRN1, core_bits([0, 1, 2, 3, 5]), cores(1), (5,), 0),
    "the fullest device that has room": (TRN2, core_bits([0, 1, 2, 5, 6, 9]), cores(2), (5, 6), 0),
    "two cores at an even offset": (TRN2, core_bits([1, 2, 3]), cores(2), (2, 3), 0),
    "cores on a torus stay inside a device": (TRN2, core_bits([2, 3, 4, 5, 6, 8, 9, 10, 11]), cores(3), (4, 5, 6), 0),
    "a run of cores that breaks one device, not two": (INF1_6, core_bits(range(3, 12)), cores(5), (3, 4, 5, 6, 7), 2),
    "a one-device machine is the smallest block": (TRN1_2, TRN1_2.all_cores, devices(1), (0,), 1),
}


@pytest.mark.parametrize("case", PREFERENCES)
def test_preferences(case: str) -> None:
    """The best of the possible sets is chosen."""
    machine, free, request, ids, level = PREFERENCES[case]
    placement = got(machine, free, request)

    assert (placement.ids, placement.level) == (ids, level)


CONTAINERS: dict[str, tuple[Machine, CoreMask, NeuronRequest, tuple[tuple[int, ...], ...]]] = {
    "side by side in one run": (INF2_48, INF2_48.all_cores, devices(2, 1), ((0, 1), (2,))),
    "in two runs where no single one is long enough, ascending": (
        INF2_48,
        device_bits(INF2_48, [1, 4, 5]),
        devices(1, 2),
        ((1,), (4, 5)),
    ),
    "not ascending if it must be": (INF2_48, device_bits(INF2_48, [1, 4, 5]), devices(2, 1), ((4, 5), (1,))),
    "two rows are one half": (
        TRN1,
        device_bits(TRN1, [*range(4), *range(8, 16)]),
        devices(4, 4),
        ((8, 9, 10, 11), (12, 13, 14, 15)),
    ),
    "one and four inside one half, ascending": (TRN1, TRN1.all_cores, devices(1, 4), ((0,), (4, 5, 6, 7))),
    "an init container larger than the rest": (
        INF2_48,
        INF2_48.all_cores,
        devices(1, 1, init=(3,)),
        ((0,), (1,)),
    ),
    "on a torus the set of an init container is a block": (
        TRN1,
        device_bits(TRN1, [0, 1, 2, 4, 5, 6, 7]),
        devices(1, init=(4,)),
        ((4,),),
    ),
    "a sidecar beside a larger init container": (
        TRN1,
        device_bits(TRN1, [2, 4, 5, 6, 7]),
        devices(1, 1, init=(4,), sidecars=1),
        ((2,), (4,)),
    ),
    "nothing but an init container": (TRN1, TRN1.all_cores, devices(init=(8,)), ()),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_containers(case: str) -> None:
    """Each container gets its own set out of the pod's."""
    machine, free, request, want = CONTAINERS[case]

    assert got(machine, free, request).containers == want


def test_many_containers_end() -> None:
    """Dozens of containers on a fragmented machine are answered by a bounded search."""
    fours = core_bits(c for c in range(64) if c % 5 != 4)

    assert place(INF1_24, fours, cores(*(3, 2) * 12)) is None
    assert place(INF1_24, fours, cores(*(3, 1) * 13)) is not None
    assert place(INF1_24, core_bits(range(0, 64, 2)), cores(*(1,) * 32)) is not None


# What went wrong elsewhere (Project-HAMi's Neuron support), each a case here


def test_hami_four_cores_on_one_device() -> None:
    """An inf1 device has four cores, all of which can be asked for (HAMi #2873, #3081)."""
    assert got(INF1_6, INF1_6.all_cores, cores(4)).ids == (0, 1, 2, 3)


def test_hami_odd_core_counts() -> None:
    """An odd count gets as many cores as asked for (HAMi #2673)."""
    assert got(INF1_6, INF1_6.all_cores, cores(3)).ids == (0, 1, 2)
    assert got(TRN2, TRN2.all_cores, cores(3)).ids == (0, 1, 2)


def test_hami_whole_device_takes_all_cores() -> None:
    """A whole inf1 device takes all four of its cores (HAMi PR #2809)."""
    assert got(INF1_6, INF1_6.all_cores, devices(1)).cores == 0b1111


def test_hami_mixed_fleet() -> None:
    """Machines of different geometry do not disturb one another (HAMi #2762)."""
    first = [got(m, m.all_cores, devices(4)).cores for m in (INF1_6, TRN1, TRN2, INF1_6)]

    assert first == [0xFFFF, 0xFF, 0xFFFF, 0xFFFF]


def test_bits_beyond_the_machine_are_not_free() -> None:
    """Bits that the machine does not have are never given."""
    assert place(INF1_6, CoreMask(int(INF1_6.all_cores) << 16), cores(1)) is None
    assert place(INF1_6, CoreMask(int(INF1_6.all_cores) << 16), devices(1)) is None


def test_what_is_remembered_takes_a_few_megabytes() -> None:
    """Pods that come and go for weeks leave any number of different free cores behind."""
    dice = random.Random(1)
    request = NeuronRequest(Unit.DEVICE, (4,), 4)
    tracemalloc.start()
    try:
        for _ in range(10_000):
            place(TRN2, CoreMask(dice.getrandbits(64) | dice.getrandbits(64)), request)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 4 << 20
