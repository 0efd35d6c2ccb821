"""
What containers may hold which devices or cores, and when, written out from AWS's and Kubernetes' documents.

Shares nothing with the code but the words for a machine: a pod is its containers in the order of its spec, legal sets
are drawn out, and whether there is a division is found by trying all of them.
"""

import enum
import functools
import itertools
from collections.abc import Iterator, Sequence

import attrs

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, Container
from neuron_scheduler.neuron.catalog import Machine, Shape


class Kind(enum.Enum):
    """What a container is in the pod's spec."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@attrs.frozen
class Piece:
    """A container that asks for `count` devices or cores; init containers and sidecars come before app containers."""

    kind: Kind
    count: int


Spec = tuple[Piece, ...]


def phases(spec: Spec) -> list[list[int]]:
    """Return who holds ids at the same time: at each init container's turn, and when all others run."""
    found: list[list[int]] = []
    staying: list[int] = []
    for i, piece in enumerate(spec):
        if piece.kind is Kind.INIT:
            found.append([*staying, i])
        else:
            staying.append(i)
    return [*found, staying]


def accounted(spec: Spec) -> int:
    """Return what Kubernetes charges the node with."""
    return max(sum(spec[i].count for i in phase) for phase in phases(spec))


@functools.cache
def legal(machine: Machine, unit: Unit, count: int) -> tuple[int, ...]:
    """Return the legal sets of so many ids, as masks of ids."""
    width = machine.cores_per_device if unit is Unit.CORE else 1
    size = machine.devices * width
    run = (1 << count) - 1
    starts = allowed = range(size - count + 1)
    match machine.shape:
        case Shape.LINE | Shape.RING | Shape.SINGLE:
            pass
        case Shape.FLAT:
            allowed = starts if count in (1, size) else range(0)
        case _ if count <= width:
            return tuple(run << start for start in starts if start % width + count <= width)
        case Shape.BLOCKS:
            allowed = starts if count == size else range(0)
        case Shape.TORUS:
            of = count // width if count % width == 0 else 0
            allowed = range(0, size, count) if of in (4, 8, 16) else range(0)
    return tuple(run << start for start in allowed)


def ids_in(machine: Machine, free_cores: int, unit: Unit) -> int:
    """Return the mask of free ids, looking at each core."""
    if unit is Unit.CORE:
        return free_cores
    width = machine.cores_per_device
    return sum(1 << d for d in range(machine.devices) if all(free_cores >> d * width + c & 1 for c in range(width)))


def conflicts(spec: Spec) -> list[frozenset[int]]:
    """Return whose ids each container's must differ from."""
    return [frozenset(j for phase in phases(spec) if i in phase for j in phase if j != i) for i in range(len(spec))]


def division(machine: Machine, free: int, unit: Unit, spec: Spec) -> dict[int, int] | None:
    """
    Return some mask of free ids for each container so that all rules hold, or None if there is none: tries everything.

    `free` is a mask of ids. Containers that are alike stand beside each other in the order of trial, and are given
    their sets in ascending order, since exchanging those changes nothing.
    """
    room, apart = accounted(spec), conflicts(spec)
    order = sorted(range(len(spec)), key=lambda i: (-spec[i].count, sorted(apart[i] - {i}, key=str), i))
    alike = [
        depth > 0 and spec[i] == spec[before] and apart[i] - {before} == apart[before] - {i}
        for depth, (before, i) in enumerate(zip([-1, *order], order, strict=False))
    ]
    options = [[mask for mask in legal(machine, unit, spec[i].count) if mask & free == mask] for i in order]

    def search(taken: tuple[int, ...], union: int) -> tuple[int, ...] | None:
        depth = len(taken)
        if depth == len(order):
            return taken
        banned = 0
        for j, mask in zip(order, taken, strict=False):
            banned |= mask if j in apart[order[depth]] else 0
        for mask in options[depth]:
            if mask & banned or (union | mask).bit_count() > room or (alike[depth] and mask < taken[-1]):
                continue
            found = search((*taken, mask), union | mask)
            if found is not None:
                return found
        return None

    found = search((), 0) if free.bit_count() >= room else None
    return None if found is None else dict(zip(order, found, strict=True))


def faults(
    machine: Machine, unit: Unit, spec: Spec, *, free: int, given: Sequence[Sequence[int]], ids: Sequence[int]
) -> Iterator[str]:
    """Yield which rules the ids given to each container break, and the pod's whole set."""
    whole, masks = mask_of(ids), [mask_of(each) for each in given]
    if list(ids) != sorted(set(ids)) or len(ids) != accounted(spec):
        yield f"the pod's set is {ids}, Kubernetes counts {accounted(spec)}"
    if whole & ~free:
        yield f"{ids} are not free"
    for piece, each, mask in zip(spec, given, masks, strict=True):
        if list(each) != sorted(each) or mask not in legal(machine, unit, piece.count):
            yield f"{each} is no legal set of {piece.count}"
        if mask & ~whole:
            yield f"{each} is not inside {ids}"
    for phase in phases(spec):
        if any(masks[i] & masks[j] for i, j in itertools.combinations(phase, 2)):
            yield f"containers {phase} run at the same time and share ids: {given}"


def mask_of(ids: Sequence[int]) -> int:
    """Return the mask of ids, which may be named twice."""
    mask = 0
    for i in ids:
        mask |= 1 << i
    return mask


def containers(spec: Spec, unit: Unit) -> tuple[list[Container], list[Container]]:
    """Return the pod's containers and init containers; their names are their places in the spec."""
    name = NEURON_DEVICE if unit is Unit.DEVICE else NEURON_CORE
    made = [
        (piece.kind, Container(str(i), {name: piece.count}, sidecar=piece.kind is Kind.SIDECAR))
        for i, piece in enumerate(spec)
    ]
    return [each for kind, each in made if kind is Kind.APP], [each for kind, each in made if kind is not Kind.APP]
