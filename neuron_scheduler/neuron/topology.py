"""
Which sets of devices or cores a request may get on a machine, and which of them does the least harm.

The rules are AWS's (documentation of the Neuron scheduler extension): a container's set is contiguous and ascending, on
a line or ring any run, on a 4x4 torus one device or an aligned block of 4, 8 or 16. Cores on block machines stay inside
one device or are whole blocks. A set never wraps around, not even on the true ring of inf2.48xlarge. Pure and
memoised: equal (machine, free cores, request) is answered once. What kubelet's count allows and whether the node is
healthy is not asked here.
"""

import functools
import itertools
from collections.abc import Iterator

import attrs

from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.neuron.catalog import Machine, Shape
from neuron_scheduler.neuron.packing import Ground, best_start, fit, ones, runs

INVALID_DEVICES = (
    "Instance type {type} does not support requests for device: {count}. Please request a different number of devices."
)
INVALID_CORES = (
    "Instance type {type} does not support requests for core: {count}. Please request a different number of cores."
)
UNEVEN = "node(s) had aws.amazon.com/neuroncore that cannot be mapped to devices"

MOST_REMEMBERED = 1 << 15
MOST_LISTED = 2_000
"""Sets that are listed for one request; several containers can have more, and nobody may wait for them all."""
MOST_SUBSETS_OF = 10
"""Up to so many containers, every way of sharing ids with a larger init container is tried."""


@attrs.frozen(cache_hash=True)
class Placement:
    """
    A pod's set on a machine.

    Attributes:
        ids: the pod's set, ascending; devices or cores by the request's unit.
        containers: a set for each of the request's `counts`, in their order. Contiguous, ascending, disjoint.
        cores: mask of the core bits taken.
        level: size in devices of the largest free block that is cut; smaller is better, and comparable between
            machines. 0: only devices that are partly used already. On blocks: the free devices of a broken row (1-3 on
            a torus), else the largest aligned free block (4, 8, 16). On lines and rings: the length of the free run.
            A machine with one device has level 1, the smallest there is.
    """

    ids: tuple[int, ...]
    containers: tuple[tuple[int, ...], ...]
    cores: int
    level: int


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def illegal_count(machine: Machine, request: NeuronRequest) -> str | None:
    """
    Return why the machine never serves the request, however empty it is; None if it may.

    Each container's count must be legal, the pod's total need not be. The text for devices is AWS's, to the letter. A
    count above what the machine has is not illegal but a lack of capacity, which the caller says, and asks first.
    """
    if request.unit not in machine.units:
        return UNEVEN
    _, cell, blocks = _geometry(machine, request.unit)
    longest = 1 if machine.shape is Shape.FLAT else cell
    for count in (*request.counts, *request.init_counts):
        if count > longest and count not in blocks and count <= machine.size(request.unit):
            text = INVALID_DEVICES if request.unit is Unit.DEVICE else INVALID_CORES
            return text.format(type=machine.instance_type or "unknown", count=count)
    return None


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def place(machine: Machine, free: int, request: NeuronRequest) -> Placement | None:
    """
    Return the best set for a request within the free cores (a mask), or None if there is none.

    The whole pod in one run or block where possible; several containers ascend in their order where possible; else the
    smallest sufficient free block, cut at an end. Init containers find a legal set inside the pod's.
    """
    ground = _ground(machine, free, request.unit)
    if request.total > ground.free.bit_count() or illegal_count(machine, request) is not None:
        return None
    found = _one_set(ground, request)
    if found is None and request.counts != (request.total,):
        found = _divided(ground, request)
    if found is None:
        return None
    ids, containers = found
    cores = core_mask(machine, ids=ids, unit=request.unit)
    level = max({ground.levels[i // ground.width] for i in ids})
    return Placement(ids=ids, containers=containers, cores=cores, level=level)


@functools.lru_cache(maxsize=1024)
def legal_sets(machine: Machine, request: NeuronRequest) -> tuple[int, ...] | None:
    """
    Return every set (a mask of cores) that a request could get on an empty machine, ascending.

    None where they are not listed: more than `MOST_LISTED`, or a starting phase that needs more than the containers of
    several sets together. `place` with a listed set as all that is free gives just that set.
    """
    if illegal_count(machine, request) is not None or request.total > machine.size(request.unit):
        return ()
    several = len(request.counts) > 1
    if several and request.total != sum(request.counts):
        return None
    found = {0}
    for count in sorted(request.counts, reverse=True) if several else (request.total,):
        parts = _parts(machine, request.unit, count)
        if len(found) * len(parts) > MOST_LISTED * MOST_SUBSETS_OF:
            return None
        found = {taken | part for taken in found for part in parts if not taken & part}
        if len(found) > MOST_LISTED:
            return None
    return tuple(sorted(cores for cores in found if place(machine, cores, request) is not None))


def _parts(machine: Machine, unit: Unit, count: int) -> list[int]:
    """Return the core masks of a single container's legal sets."""
    ground = _ground(machine, machine.all_cores, unit)
    if count > ground.cell or ground.cell == 1:
        starts = ground.block_starts(ground.free, count)
    else:
        starts = [at for first, length in ground.bins(ground.free) for at in range(first, first + length - count + 1)]
    width = machine.cores_per_device if unit is Unit.DEVICE else 1
    return [ones(count * width) << start * width for start in starts]


def core_mask(machine: Machine, *, ids: tuple[int, ...], unit: Unit) -> int:
    """Return the core bits that ids of a unit stand for."""
    width = machine.cores_per_device if unit is Unit.DEVICE else 1
    mask = 0
    for i in ids:
        mask |= ones(width) << i * width
    return mask


def whole_free_devices(machine: Machine, free: int) -> int:
    """Return how many devices have all their cores free; 0 where devices are not served."""
    return _whole(machine, free).bit_count() if Unit.DEVICE in machine.units else 0


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def largest_free_block(machine: Machine, free: int, unit: Unit) -> int:
    """Return the largest count that one container could get now, in the unit asked for."""
    if unit not in machine.units:
        return 0
    ground = _ground(machine, free, unit)
    for count in reversed(ground.blocks):
        if ground.block_starts(ground.free, count):
            return count
    longest = max((length for _, length in ground.bins(ground.free)), default=0)
    return min(1, longest) if machine.shape is Shape.FLAT else longest


_Sets = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]


def _one_set(ground: Ground, request: NeuronRequest) -> _Sets | None:
    """Return a single container's set, or the whole pod as one run, the containers side by side from its lowest id."""
    if request.total > ground.cell and request.counts != (request.total,):
        return None
    start = best_start(ground, ground.free, request.total)
    if start is None:
        return None
    ends = list(itertools.accumulate(request.counts, initial=start))
    containers = tuple(tuple(range(first, end)) for first, end in itertools.pairwise(ends))
    return tuple(range(start, start + request.total)), containers


def _divided(ground: Ground, request: NeuronRequest) -> _Sets | None:
    """Return the pod as several sets, which may make up one block."""
    for carrier, inside in _divisions(ground, request):
        sets = _containers(ground, request.counts, carrier=carrier, inside=inside)
        if sets is not None:
            taken, containers = sets
            return _filled(ground, taken, request.total), containers
    return None


def _divisions(ground: Ground, request: NeuronRequest) -> Iterator[tuple[int, tuple[int, ...]]]:
    """
    Yield (carrier, indices): a set of `carrier` ids for the largest init container, and who may share it afterwards.

    Kubernetes lets app containers reuse what an init container had. As few as the total allows share, the later ones
    first, because sidecars come first in `counts` and run beside the init container. No carrier (0) where some
    container's own set holds the init container's.
    """
    counts = request.counts
    need, most = max(request.init_counts, default=0), max(counts, default=0)
    spare = request.total - sum(counts)
    if need and (spare or need > most):
        seen: set[tuple[int, ...]] = set()
        for inside in sorted(_subsets(len(counts)), key=lambda chosen: sum(counts[i] for i in chosen)):
            sizes = tuple(sorted(counts[i] for i in inside))
            shared = sum(sizes)
            carrier = max(need, shared) if need <= ground.cell else need
            if sizes not in seen and need - spare <= shared <= carrier and (carrier == need or carrier <= ground.cell):
                seen.add(sizes)
                yield carrier, inside
    if need <= most:
        yield 0, ()


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of container indices, later containers first; only runs up to the last one if there are many."""
    last_first = range(count - 1, -1, -1)
    if count > MOST_SUBSETS_OF:
        yield from (tuple(range(first, count)) for first in range(count, -1, -1))
        return
    for size in range(count + 1):
        for chosen in itertools.combinations(last_first, size):
            yield tuple(reversed(chosen))


def _containers(
    ground: Ground, counts: tuple[int, ...], *, carrier: int, inside: tuple[int, ...]
) -> tuple[int, tuple[tuple[int, ...], ...]] | None:
    """Return the mask of ids taken and a set for each container; those inside share the carrier's ids."""
    outside = [i for i in range(len(counts)) if i not in inside]
    parts = [counts[i] for i in outside]
    position = sum(i < min(inside, default=len(counts)) for i in outside)
    if carrier:
        parts.insert(position, carrier)
    placed = fit(ground, parts)
    if placed is None:
        return None
    taken = sum(ones(count) << start for start, count in zip(placed, parts, strict=True))
    starts = dict(zip(outside, placed[:position] + placed[position + 1 :] if carrier else placed, strict=True))
    if inside:
        sharing = fit(attrs.evolve(ground, free=ones(carrier) << placed[position]), [counts[i] for i in inside])
        if sharing is None:
            return None
        starts |= zip(inside, sharing, strict=True)
    return taken, tuple(tuple(range(starts[i], starts[i] + count)) for i, count in enumerate(counts))


def _filled(ground: Ground, taken: int, total: int) -> tuple[int, ...]:
    """Return the ids taken, with further free ones up to the total; the caller knows that there are enough."""
    while taken.bit_count() < total:
        start = best_start(ground, ground.free & ~taken, 1)
        if start is None:
            raise AssertionError("fewer free ids than the total that was counted before")
        taken |= 1 << start
    return tuple(i for start, length in runs(taken) for i in range(start, start + length))


@functools.lru_cache(maxsize=4096)
def _geometry(machine: Machine, unit: Unit) -> tuple[int, int, tuple[int, ...]]:
    """Return ids per device, ids per cell, and the sizes of aligned blocks (see `packing`)."""
    width = machine.cores_per_device if unit is Unit.CORE else 1
    match machine.shape:
        case Shape.TORUS:
            return width, width, tuple(count * width for count in (4, 8, 16) if count <= machine.devices)
        case Shape.BLOCKS | Shape.FLAT:
            return width, width, (machine.devices * width,)
        case _:
            return width, machine.devices * width, ()


def _ground(machine: Machine, free: int, unit: Unit) -> Ground:
    width, cell, blocks = _geometry(machine, unit)
    whole, levels = _levels(machine, _whole(machine, free))
    return Ground(
        free=whole if unit is Unit.DEVICE else free & machine.all_cores,
        size=machine.size(unit),
        width=width,
        cell=cell,
        blocks=blocks,
        levels=levels,
    )


def _whole(machine: Machine, free: int) -> int:
    """Return the first core bit of each device whose cores are all free."""
    whole = free & _first_cores(machine)
    for offset in range(1, machine.cores_per_device):
        whole &= free >> offset
    return whole


@functools.lru_cache(maxsize=4096)
def _first_cores(machine: Machine) -> int:
    return sum(1 << core for core in range(0, machine.cores, machine.cores_per_device))


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def _levels(machine: Machine, starts: int) -> tuple[int, tuple[int, ...]]:
    """Return the mask of whole devices, and for each device the size of the free block it belongs to (0: not whole)."""
    per_device = machine.cores_per_device
    whole = sum((starts >> device * per_device & 1) << device for device in range(machine.devices))
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
