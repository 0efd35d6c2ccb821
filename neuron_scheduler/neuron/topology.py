"""
Which sets of devices or cores a request may get on a machine, and which of them leaves the most for other pods.

The rules are AWS's (documentation of the Neuron scheduler extension): a container's set is contiguous and ascending. On
a line or ring it is any run, on a 4x4 torus one device or an aligned block of 4, 8 or 16. Cores on block machines stay
inside one device or are whole blocks. A set never wraps around, not even on the true ring of inf2.48xlarge.

A profile may allow aligned pairs, too (`Machine.with_pairs`). The request says so, since profiles share nodes.
"""

from collections.abc import Iterable
from itertools import chain
from typing import cast

import attrs

from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit, mixed_names_refusal
from neuron_scheduler.model.resources import NEURON_CORE
from neuron_scheduler.neuron.catalog import Machine, Shape
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.packing import MOST_REMEMBERED, FreeIds, ones, runs
from neuron_scheduler.neuron.phases import arrange

INVALID_DEVICES = (
    "Instance type {type} does not support requests for device: {count}. Please request a different number of devices."
)
INVALID_CORES = (
    "Instance type {type} does not support requests for core: {count}. Please request a different number of cores."
)
INVALID_TOGETHER = (
    "Instance type {type} cannot give each container of this pod a contiguous set of its own, even when it is empty."
)
OTHER_ROAD = {
    True: "node(s) gave their Neuron devices by claims only",
    False: "node(s) gave their Neuron devices by counts only",
}
"""Why a node is of no use to a pod that asks by counts (True), or by claims (False)."""
UNEVEN = "node(s) had aws.amazon.com/neuroncore that cannot be mapped to devices"

MOST_LISTED = 2_000
"""The most sets that are listed for one request; several containers can have more, which would take too long."""
_MOST_COMBINED = 20_000


@attrs.frozen(cache_hash=True)
class Placement:
    """
    A pod's set on a machine.

    Attributes:
        ids: the pod's set, ascending; devices or cores by the request's unit.
        containers: a set for each of the request's `counts`, in their order. Contiguous, ascending, disjoint.
        cores: those of the set.
        level: size in devices of the largest free block that is cut; smaller is better, and comparable between
            machines. 0: only devices that are partly used already. On blocks: the free devices of a broken row (1-3 on
            a torus), else the largest aligned free block (4, 8, 16). On lines and rings: the length of the free run.
            With pairs the rows are pairs. A machine with one device has level 1, the smallest there is.
        sets: for each request of the pod's claims its devices, as bits of `cores`.
        inits: a set for each of the request's `init_counts`. Contiguous, ascending, inside the pod's, and disjoint from
            those of the sidecars that run beside it.
    """

    ids: tuple[int, ...]
    containers: tuple[tuple[int, ...], ...]
    cores: CoreMask
    level: int
    inits: tuple[tuple[int, ...], ...] = ()
    sets: tuple[int, ...] = ()


@memoise(maxsize=MOST_REMEMBERED)
def illegal_count(machine: Machine, request: NeuronRequest) -> str | None:
    """
    Return why the machine never serves the request, however empty it is; None if it may.

    Each container's count must be legal, the pod's total need not be; and there must be sets for all containers that
    run side by side. The text for devices is AWS's, to the letter. The caller has checked that the machine has so many.
    """
    if machine.published is not None or request.wanted is not None:
        is_served = machine.published is not None and request.wanted is not None
        return machine.published.why_never(request.wanted) if is_served else OTHER_ROAD[request.wanted is None]
    if not request.units <= machine.units:
        return UNEVEN
    if request.cores_each not in (0, machine.cores_per_device):
        return mixed_names_refusal((request.resource, NEURON_CORE))
    machine = machine.with_pairs() if request.pairs else machine
    _, cell, blocks = _geometry(machine, request.unit)
    longest = 1 if machine.shape is Shape.FLAT else cell
    for count in (*request.counts, *request.init_counts):
        if count > longest and count not in blocks and count <= machine.size(request.unit):
            text = INVALID_DEVICES if request.unit is Unit.DEVICE else INVALID_CORES
            return text.format(type=machine.instance_type or "unknown", count=count)
    if len(request.counts) + len(request.init_counts) > 1 and request.total <= machine.size(request.unit):
        free_ids = _free_ids(machine, machine.all_cores, request.unit)
        if arrange(free_ids, request.counts, request.inits) is None:
            return INVALID_TOGETHER.format(type=machine.instance_type or "unknown")
    return None


@memoise(maxsize=MOST_REMEMBERED)
def place(machine: Machine, free: CoreMask, request: NeuronRequest) -> Placement | None:
    """
    Return the best set for a request within the free cores, or None if there is none.

    The whole pod in one run or block if possible; several containers ascend in their order if possible; else the
    smallest sufficient free block, cut at an end. Init containers get legal sets inside the pod's.
    """
    if machine.published is not None and request.wanted is not None:
        return cast(Placement | None, machine.published.place(free, request.wanted))
    machine = machine.with_pairs() if request.pairs else machine
    free_ids = _free_ids(machine, free, request.unit)
    if request.total > free_ids.free.bit_count() or illegal_count(machine, request) is not None:
        return None
    arranged = arrange(free_ids, request.counts, request.inits)
    if arranged is None:
        return None
    containers, inits = _sets(arranged[0], request.counts), _sets(arranged[1], request.init_counts)
    ids = containers[0] if len(containers) == 1 and not inits else tuple(sorted({*chain(*containers, *inits)}))
    cores = core_mask(machine, ids=ids, unit=request.unit)
    level = max({free_ids.levels[i // free_ids.width] for i in ids})
    return Placement(ids=ids, containers=containers, cores=cores, level=level, inits=inits)


def _sets(starts: Iterable[int], counts: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(start, start + count)) for start, count in zip(starts, counts, strict=True))


@memoise(maxsize=1024)
def legal_sets(machine: Machine, request: NeuronRequest) -> tuple[CoreMask, ...] | None:
    """
    Return every set of cores that a request could get on an empty machine, ascending; None if over `MOST_LISTED`.

    Each combines sets for the containers of the phase that needs most (`NeuronRequest.widest`). If only the cores of a
    listed set are free, `place` returns that set.
    """
    if illegal_count(machine, request) is not None or request.total > machine.size(request.unit):
        return ()
    if request.wanted is not None:
        return None
    machine = machine.with_pairs() if request.pairs else machine
    sets = {NO_CORES}
    for count in sorted(request.widest, reverse=True):
        parts = _parts(machine, request.unit, count)
        if len(sets) * len(parts) > _MOST_COMBINED:
            return None
        sets = {taken | part for taken in sets for part in parts if not taken & part}
        if len(sets) > MOST_LISTED:
            return None
    return tuple(sorted((cores for cores in sets if place(machine, cores, request) is not None), key=int))


@memoise(maxsize=256)
def served_counts(machine: Machine, unit: Unit, *, pairs: bool = False) -> tuple[int, ...]:
    """Return the counts that one container can have on an empty machine, ascending."""
    return tuple(
        count
        for count in range(1, machine.size(unit) + 1)
        if illegal_count(machine, NeuronRequest(unit, (count,), count, pairs=pairs)) is None
    )


def _parts(machine: Machine, unit: Unit, count: int) -> list[CoreMask]:
    """Return the cores of each legal set for a single container."""
    free_ids = _free_ids(machine, machine.all_cores, unit)
    if count > free_ids.cell or free_ids.cell == 1:
        starts = free_ids.block_starts(free_ids.free, count)
    else:
        starts = [
            at for first, length in free_ids.bins(free_ids.free) for at in range(first, first + length - count + 1)
        ]
    width = machine.cores_per_device if unit is Unit.DEVICE else 1
    return [CoreMask(ones(count * width) << start * width) for start in starts]


def core_mask(machine: Machine, *, ids: tuple[int, ...], unit: Unit) -> CoreMask:
    width = machine.cores_per_device if unit is Unit.DEVICE else 1
    mask = 0
    for i in ids:
        mask |= ones(width) << i * width
    return CoreMask(mask)


def whole_free_devices(machine: Machine, free: CoreMask) -> int:
    """Return how many devices have all their cores free; 0 where devices are not served."""
    return _whole_devices(machine, free).bit_count() if Unit.DEVICE in machine.units else 0


@memoise(maxsize=MOST_REMEMBERED)
def largest_free_block(machine: Machine, free: CoreMask, unit: Unit) -> int:
    """Return the largest count that one container could get now, in the unit asked for."""
    if unit not in machine.units:
        return 0
    free_ids = _free_ids(machine, free, unit)
    for count in reversed(free_ids.blocks):
        if free_ids.block_starts(free_ids.free, count):
            return count
    longest = max((length for _, length in free_ids.bins(free_ids.free)), default=0)
    return min(1, longest) if machine.shape is Shape.FLAT else longest


def sets_side_by_side(machine: Machine, free: CoreMask, devices: int) -> int:
    """Return how many sets of so many devices fit side by side, if one container may have so many."""
    free_ids = _free_ids(machine, free, Unit.DEVICE)
    if devices > free_ids.cell or free_ids.cell == 1:
        return len(free_ids.block_starts(free_ids.free, devices))
    return sum(length // devices for _, length in free_ids.bins(free_ids.free))


@memoise(maxsize=MOST_REMEMBERED)
def free_blocks(machine: Machine, free: CoreMask, most: int) -> tuple[int, ...]:
    """
    Return the sizes in devices of the free blocks, the largest first; each is a legal count, and they do not overlap.
    They have at most `most` devices in all, as many as the kubelet would hand out.
    """
    if Unit.DEVICE not in machine.units:
        return ()
    free_ids = _free_ids(machine, free, Unit.DEVICE)
    left, sizes = free_ids.free, list[int]()
    for count in reversed(free_ids.blocks):
        for start in free_ids.block_starts(left, count):
            left ^= ones(count) << start
            sizes.append(count)
    sizes += sorted((length for _, length in free_ids.bins(left)), reverse=True)
    return tuple(sizes) if sum(sizes) <= most else _cut_to(sizes, most, served_counts(machine, Unit.DEVICE))


def _cut_to(sizes: Iterable[int], most: int, legal: tuple[int, ...]) -> tuple[int, ...]:
    """Return legal parts of the blocks that have `most` devices in all."""
    parts: list[int] = []
    for size in sizes:
        left = size
        while part := max((count for count in legal if count <= min(left, most)), default=0):
            parts.append(part)
            left, most = left - part, most - part
    return tuple(parts)


def levels_of(machine: Machine, free: CoreMask) -> tuple[int, ...]:
    """Return for each device the size of the free block that it is in, as `Placement.level`; 0 if it is not free."""
    return _levels(machine, _whole_devices(machine, free))[1]


@memoise(maxsize=4096)
def _geometry(machine: Machine, unit: Unit) -> tuple[int, int, tuple[int, ...]]:
    """Return ids per device, ids per cell, and the sizes of aligned blocks (see `packing`)."""
    width = machine.cores_per_device if unit is Unit.CORE else 1
    match machine.shape:
        case Shape.TORUS:
            counts = (2, 4, 8, 16) if machine.pairs else (4, 8, 16)
            return width, width, tuple(count * width for count in counts if count <= machine.devices)
        case Shape.BLOCKS | Shape.FLAT:
            return width, width, (machine.devices * width,)
        case Shape.SINGLE | Shape.LINE | Shape.RING:
            return width, machine.devices * width, ()


def _free_ids(machine: Machine, free: CoreMask, unit: Unit) -> FreeIds:
    width, cell, blocks = _geometry(machine, unit)
    whole, levels = _levels(machine, _whole_devices(machine, free))
    return FreeIds(
        free=whole if unit is Unit.DEVICE else int(free & machine.all_cores),
        size=machine.size(unit),
        width=width,
        cell=cell,
        blocks=blocks,
        levels=levels,
    )


def _whole_devices(machine: Machine, free: CoreMask) -> CoreMask:
    """Return the first core of each device whose cores are all free."""
    whole = free & _first_cores(machine)
    for offset in range(1, machine.cores_per_device):
        whole &= free >> offset
    return whole


@memoise(maxsize=4096)
def _first_cores(machine: Machine) -> CoreMask:
    return CoreMask(sum(1 << core for core in range(0, machine.core_count, machine.cores_per_device)))


@memoise(maxsize=MOST_REMEMBERED)
def _levels(machine: Machine, starts: CoreMask) -> tuple[int, tuple[int, ...]]:
    """Return the mask of whole devices, and for each device the size of the free block it is in (0: not whole)."""
    per_device = machine.cores_per_device
    bits = int(starts)
    whole = sum((bits >> device * per_device & 1) << device for device in range(machine.devices))
    levels = [0] * machine.devices
    blocks = _geometry(machine, Unit.DEVICE)[2]
    if not blocks:
        for start, length in runs(whole):
            levels[start : start + length] = [length] * length
        return whole, tuple(levels)
    row = blocks[0]
    for base in range(0, machine.devices, row):
        level = (whole >> base & ones(row)).bit_count()
        for size in blocks[1:] if level == row else ():
            if whole >> base // size * size & ones(size) != ones(size):
                break
            level = size
        for device in range(base, base + row):
            levels[device] = level if whole >> device & 1 else 0
    return whole, tuple(levels)
