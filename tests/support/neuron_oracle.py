"""
Which devices or cores containers may have, and when, written from AWS's and Kubernetes' documents.

Shares nothing with the code but the words for a machine: a pod is its containers in the order of its spec, legal sets
are enumerated, and a division is found by trying all of them.
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
    """The kind of a container in the pod's spec."""

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
    """Return which containers have ids at the same time: during each init container, and when all others run."""
    together: list[list[int]] = []
    staying: list[int] = []
    for i, piece in enumerate(spec):
        if piece.kind is Kind.INIT:
            together.append([*staying, i])
        else:
            staying.append(i)
    return [*together, staying]


def accounted(spec: Spec) -> int:
    """Return the amount that Kubernetes counts on the node."""
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
            allowed = range(0, size, count) if of in (4, 8, 16) or (of == 2 and machine.pairs) else range(0)
    return tuple(run << start for start in allowed)


def ids_in(machine: Machine, free_cores: int, unit: Unit) -> int:
    """Return the mask of free ids, core by core."""
    if unit is Unit.CORE:
        return free_cores
    width = machine.cores_per_device
    return sum(1 << d for d in range(machine.devices) if all(free_cores >> d * width + c & 1 for c in range(width)))


def conflicts(spec: Spec) -> list[frozenset[int]]:
    """Return, for each container, the containers whose ids it must not share."""
    return [frozenset(j for phase in phases(spec) if i in phase for j in phase if j != i) for i in range(len(spec))]


def division(machine: Machine, free: int, unit: Unit, spec: Spec) -> dict[int, int] | None:
    """
    Return some mask of free ids for each container so that all rules hold, or None if there is none: tries everything.

    `free` is a mask of ids. Equal containers are tried one after the other and get their
    sets in ascending order, since exchanging those changes nothing.
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
            solution = search((*taken, mask), union | mask)
            if solution is not None:
                return solution
        return None

    solution = search((), 0) if free.bit_count() >= room else None
    return None if solution is None else dict(zip(order, solution, strict=True))


def faults(
    machine: Machine, unit: Unit, spec: Spec, *, free: int, given: Sequence[Sequence[int]], ids: Sequence[int]
) -> Iterator[str]:
    """Yield the rules that the containers' ids and the pod's whole set break."""
    whole, masks = mask_of(ids), [mask_of(container_ids) for container_ids in given]
    if list(ids) != sorted(set(ids)) or len(ids) != accounted(spec):
        yield f"the pod's set is {ids}, Kubernetes counts {accounted(spec)}"
    if whole & ~free:
        yield f"{ids} are not free"
    for piece, container_ids, mask in zip(spec, given, masks, strict=True):
        if list(container_ids) != sorted(container_ids) or mask not in legal(machine, unit, piece.count):
            yield f"{container_ids} is no legal set of {piece.count}"
        if mask & ~whole:
            yield f"{container_ids} is not inside {ids}"
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
    return [container for kind, container in made if kind is Kind.APP], [
        container for kind, container in made if kind is not Kind.APP
    ]
