"""
A pod's request for Neuron: devices or cores, container by container.

Equal requests are equal values, so a placement is worked out once; the names of containers stay outside. A pod uses one
resource name, since `AWS_NEURON_IDS` holds either devices or cores. Devices with all of their cores, as in AWS's EKS
test manifests, are a request for devices.
"""

import enum
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs

from neuron_scheduler.model.devices import WantedDevices
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS, NEURON_NAMES, Container


class Unit(enum.StrEnum):
    """The unit that ids and counts of a request are in."""

    DEVICE = "device"
    CORE = "core"


@attrs.frozen(cache_hash=True)
class NeuronRequest:
    """
    Devices or cores for the containers of one pod.

    Attributes:
        counts: one for each container that runs side by side with the others (sidecars and app containers, in spec
            order); containers without Neuron are left out.
        init_counts: one for each ordinary init container; they reuse ids of the pod's set.
        total: size of the pod's set: what the largest phase needs.
        resource: the resource name in the pod's spec (device, its alias, or core).
        beside: for each of `init_counts`, how many of `counts` run beside it: the sidecars that start before it.
        cores_each: how many cores each container also asks for per device, which must be all of them; 0 for none.
        pairs: whether its profile allows aligned pairs of devices (`Machine.with_pairs`).
        wanted: what the pod's claims ask for, on machines that drivers publish; None for a request by counts.
        asks_much: whether it may take milliseconds to find devices on one node; not for what AWS's templates ask.

    Raises:
        ValueError: the total is not that of these counts.
    """

    unit: Unit
    counts: tuple[int, ...]
    total: int
    init_counts: tuple[int, ...] = ()
    resource: str = NEURON_DEVICE
    beside: tuple[int, ...] = attrs.Factory(lambda self: (0,) * len(self.init_counts), takes_self=True)
    cores_each: int = 0
    pairs: bool = False
    wanted: WantedDevices | None = None
    asks_much: bool = False

    def __attrs_post_init__(self) -> None:
        needed = sum(self.widest)
        if self.total != needed:
            raise ValueError(f"a request for {self.total} whose containers need {needed} at once")

    @property
    def inits(self) -> tuple[tuple[int, int], ...]:
        """For each ordinary init container its count, and how many of `counts` run beside it."""
        return tuple(zip(self.init_counts, self.beside, strict=True))

    @property
    def widest(self) -> tuple[int, ...]:
        """The counts of the phase in which most ids are in use at the same time."""
        return widest_phase(self.counts, self.inits)

    @property
    def is_one_unit(self) -> bool:
        """Whether it is a single device or core: valid on every type, and served by the plugin without annotations."""
        return self.total == 1 and not self.cores_each

    @property
    def units(self) -> frozenset[Unit]:
        return frozenset((self.unit, Unit.CORE)) if self.cores_each else frozenset((self.unit,))


_intern = lru_cache(maxsize=4096)(NeuronRequest)
"""Equal requests of many pods are one object, so that a lookup by request compares identities."""


def widest_phase(counts: tuple[int, ...], inits: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """
    Return the counts of the phase that needs most: one in which an init container runs, or the last one.

    `inits` are the ordinary init containers: a count, and how many of `counts` run beside it.
    """
    return max((counts, *((*counts[:beside], count) for count, beside in inits)), key=sum) if inits else counts


class MixedNeuronRequestError(ValueError):
    """The pod asks for Neuron under more than one resource name."""


def mixed_names_refusal(names: Iterable[str]) -> str:
    return (
        f"pod asks for {' and '.join(sorted(names))}: a pod's Neuron ids are either devices or cores; "
        f"ask for {NEURON_DEVICE} or for {NEURON_CORE} in all its containers"
    )


def neuron_request(containers: Sequence[Container], init_containers: Sequence[Container] = ()) -> NeuronRequest | None:
    """
    Return the pod's request for Neuron, or None if it has none.

    Raises:
        MixedNeuronRequestError: devices, and cores that cannot be those of the devices, or two names of devices.
    """
    names = {name for c in (*init_containers, *containers) for name in NEURON_NAMES if c.requests.get(name, 0) > 0}
    if not names:
        return None
    name = min(names - {NEURON_CORE}, default=NEURON_CORE)
    cores_each = _cores_each((*init_containers, *containers), name) if 1 < len(names) < len(NEURON_NAMES) else 0
    if len(names) > 1 and not cores_each:
        raise MixedNeuronRequestError(mixed_names_refusal(names))
    sidecars = [c for c in init_containers if c.sidecar]
    counts = tuple(c.requests[name] for c in (*sidecars, *containers) if c.requests.get(name))
    inits: list[tuple[int, int]] = []
    started = 0
    for container in init_containers:
        amount = container.requests.get(name, 0)
        if container.sidecar:
            started += amount > 0
        elif amount:
            inits.append((amount, started))
    unit = Unit.DEVICE if name in (NEURON_DEVICE, NEURON_DEVICE_ALIAS) else Unit.CORE
    return _intern(
        unit=unit,
        counts=counts,
        total=sum(widest_phase(counts, inits)),
        init_counts=tuple(amount for amount, _ in inits),
        resource=name,
        beside=tuple(beside for _, beside in inits),
        cores_each=cores_each,
    )


def _cores_each(containers: Sequence[Container], name: str) -> int:
    """Return how many cores each container asks for per device; 0 if the containers differ."""
    asked = [(c.requests.get(name, 0), c.requests.get(NEURON_CORE, 0)) for c in containers]
    each = next(cores // devices for devices, cores in asked if devices)
    return each if all(cores == devices * each for devices, cores in asked) else 0


@lru_cache(maxsize=4096)
def with_pairs(request: NeuronRequest) -> NeuronRequest:
    return attrs.evolve(request, pairs=True)


def neuron_container_names(
    containers: Sequence[Container], init_containers: Sequence[Container] = ()
) -> tuple[str, ...]:
    """Return the names that belong to `NeuronRequest.counts` and then `init_counts`, in the same order."""
    sidecars = [c for c in init_containers if c.sidecar]
    inits = [c for c in init_containers if not c.sidecar]
    return tuple(c.name for c in (*sidecars, *containers, *inits) if any(c.requests.get(name) for name in NEURON_NAMES))
