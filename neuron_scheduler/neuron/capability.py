"""
What a placement costs other pods: the blocks of each size that the block it cuts could have served.

Three free devices in a row serve a request for three on a ring, but only requests for one on a torus. So block sizes
cannot be compared between machines of different kinds.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.neuron.catalog import Machine, machine_of_kind
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.packing import MOST_REMEMBERED, ones
from neuron_scheduler.neuron.topology import illegal_count, place, sets_side_by_side

ANY_KIND: Final = 0
"""Instead of the kind of a machine: all kinds."""

Weights = frozenset[tuple[int, NeuronRequest, int]]
"""How much each size counts, on one kind of machine or on `ANY_KIND`: (kind, size, weight)."""

DEVICE: Final = 1 << 32
"""One device in the numbers that `losses` returns; integers, so that sums do not depend on the order."""


@memoise(maxsize=4096)
def size_of(request: NeuronRequest) -> NeuronRequest:
    """Return a request for the largest of the containers alone, which needs one block."""
    largest = max((*request.counts, *request.init_counts))
    resource = NEURON_DEVICE if request.unit is Unit.DEVICE else NEURON_CORE
    return NeuronRequest(unit=request.unit, counts=(largest,), total=largest, resource=resource, pairs=request.pairs)


def cost(kind: int, level: int, request: NeuronRequest, weights: Weights) -> int:
    """Return what it costs other pods that a request cuts a free block: the sum of `losses`, each times its weight."""
    sizes = frozenset(size for _, size, _ in weights)
    lost = losses(kind, level, request, sizes)
    return sum(weight * lost.get(size, 0) for of_kind, size, weight in weights if of_kind in (ANY_KIND, kind))


@memoise(maxsize=MOST_REMEMBERED)
def losses(
    kind: int, level: int, request: NeuronRequest, sizes: frozenset[NeuronRequest]
) -> Mapping[NeuronRequest, int]:
    """
    Return the devices of the blocks of each size that are lost when a request cuts a free block, times `DEVICE`.

    One unit fits in any block, and the request's own size is lost in every block: neither helps to choose one.

    Args:
        kind: of the machine (`Machine.kind`).
        level: the size of the block in devices (`Placement.level`); below two, nothing is lost.
        request: what is placed.
        sizes: requests of one container each.
    """
    if level < 2 or not request.total:  # claims that any device serves count as no Neuron device
        return {}
    machine = machine_of_kind(kind)
    block = CoreMask(ones(level * machine.cores_per_device))
    placement = place(machine, block, request if request.wanted is None else attrs.evolve(request, wanted=None))
    # Without a placement several blocks are cut: assume that nothing of them is left.
    rest = NO_CORES if placement is None else block & ~placement.cores
    own = size_of(request)
    larger = [size for size in sizes if size.total > 1 and size != own]
    lost = [(size, how_many(machine, block, size) - how_many(machine, rest, size)) for size in larger]
    return {size: count * _cores(machine, size) * DEVICE // machine.cores_per_device for size, count in lost if count}


def _cores(machine: Machine, size: NeuronRequest) -> int:
    return size.total * (machine.cores_per_device if size.unit is Unit.DEVICE else 1)


@memoise(maxsize=MOST_REMEMBERED)
def how_many(machine: Machine, free: CoreMask, size: NeuronRequest) -> int:
    """Return how many pods of a size, which has one container, fit, placed one after the other."""
    if illegal_count(machine, size) is not None:
        return 0
    if size.unit is Unit.DEVICE:  # each is cut from the end of a run, or is a block: no order leaves room for more
        return sets_side_by_side(machine.with_pairs() if size.pairs else machine, free, size.total)
    count = 0
    while (placement := place(machine, free, size)) is not None:
        free &= ~placement.cores
        count += 1
    return count
