"""
What a placement takes away from others: the blocks of each size that the block it cuts could have served.

A run of three devices on a ring serves a request for three, a row with three free devices on a torus only requests for
one, so the length of what is cut says little where machines of different kinds are compared. Refuses to say how much
each size is worth: that is the caller's (`Weights`).
"""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.model.memo import memoised
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.neuron.catalog import Machine, machine_of_kind
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.packing import ones
from neuron_scheduler.neuron.topology import place

ANY_KIND: Final = 0
"""In place of the kind of a machine: all of them."""

Weights = frozenset[tuple[int, NeuronRequest, int]]
"""How much each size counts, on a kind of machine or on any."""

DEVICE: Final = 1 << 32
"""One device in the numbers that `losses` returns: integers, so that a sum does not depend on its order."""


@memoised(maxsize=4096)
def size_of(request: NeuronRequest) -> NeuronRequest:
    """Return the request for the largest of its containers alone: what needs a block in one piece."""
    largest = max((*request.counts, *request.init_counts))
    resource = NEURON_DEVICE if request.unit is Unit.DEVICE else NEURON_CORE
    return NeuronRequest(unit=request.unit, counts=(largest,), total=largest, resource=resource)


def cost(kind: int, level: int, request: NeuronRequest, weights: Weights) -> int:
    """Return what it costs others that a request cuts a free block: the sum of `losses`, each times its weight."""
    sizes = frozenset(size for _, size, _ in weights)
    lost = losses(kind, level, request, sizes)
    return sum(weight * lost.get(size, 0) for whose, size, weight in weights if whose in (ANY_KIND, kind))


@memoised(maxsize=1 << 14)
def losses(
    kind: int, level: int, request: NeuronRequest, sizes: frozenset[NeuronRequest]
) -> Mapping[NeuronRequest, int]:
    """
    Return how much less of each size is served after a request has cut a free block.

    One unit finds a place in any block, and the request's own size is lost wherever it goes: both tell nothing.

    Args:
        kind: of the machine (`Machine.kind`).
        level: the size of the block in devices (`Placement.level`); with less than two, nobody loses anything.
        request: what is placed.
        sizes: requests of one container each.

    Returns:
        Only the sizes of which a block is lost, with what those blocks have in devices, times `DEVICE`.
    """
    if level < 2:
        return {}
    machine = machine_of_kind(kind)
    block = CoreMask(ones(level * machine.cores_per_device))
    placement = place(machine, block, request)
    rest = (
        NO_CORES if placement is None else block & ~placement.cores
    )  # several blocks are cut: take it that nothing is left
    own = size_of(request)
    others = [size for size in sizes if size.total > 1 and size != own]
    lost = [(size, _blocks(machine, block, size) - _blocks(machine, rest, size)) for size in others]
    return {size: count * _cores(machine, size) * DEVICE // machine.cores_per_device for size, count in lost if count}


def _cores(machine: Machine, size: NeuronRequest) -> int:
    return size.total * (machine.cores_per_device if size.unit is Unit.DEVICE else 1)


@memoised(maxsize=1 << 14)
def _blocks(machine: Machine, free: CoreMask, size: NeuronRequest) -> int:
    """Return how many pods of a size find a place one after the other."""
    count = 0
    while (placement := place(machine, free, size)) is not None:
        free &= ~placement.cores
        count += 1
    return count
