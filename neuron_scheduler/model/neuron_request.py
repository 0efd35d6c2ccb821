"""
What a pod asks of the silicon: devices or cores, container by container.

Container names stay outside `NeuronRequest`, so that equal requests are equal values and a placement is worked out
once. Refuses pods that name the silicon in two ways: the one annotation `AWS_NEURON_IDS` holds either devices or
cores.
"""

import enum
from collections.abc import Sequence
from functools import lru_cache

import attrs

from neuron_scheduler.model.resources import (
    NEURON_CORE,
    NEURON_DEVICE,
    NEURON_DEVICE_ALIAS,
    NEURON_NAMES,
    Container,
)


class Unit(enum.StrEnum):
    """The unit that ids and counts of a request are in."""

    DEVICE = "device"
    CORE = "core"


@attrs.frozen(cache_hash=True)
class NeuronRequest:
    """
    Devices or cores for the containers of one pod.

    Attributes:
        unit: what is counted.
        counts: one positive count for each container that runs side by side with the others (sidecars and app
            containers, in spec order); containers without Neuron are left out.
        init_counts: one positive count for each ordinary init container; they reuse ids of the pod's set.
        total: size of the pod's set, at least `sum(counts)` and at least what the starting phase needs.
        resource: the name under which it is asked for (device, its alias, or core).
    """

    unit: Unit
    counts: tuple[int, ...]
    total: int
    init_counts: tuple[int, ...] = ()
    resource: str = NEURON_DEVICE

    @property
    def is_one_unit(self) -> bool:
        """A single device or core: valid on every type, and what the plugin serves without annotations."""
        return self.total == 1


class MixedNeuronRequestError(ValueError):
    """The pod asks for Neuron under more than one resource name."""


def neuron_request(containers: Sequence[Container], init_containers: Sequence[Container] = ()) -> NeuronRequest | None:
    """
    Return the pod's request for silicon, or None if it asks for none.

    Raises:
        MixedNeuronRequestError: devices and cores, or two names of devices, in one pod.
    """
    names = {name for c in (*init_containers, *containers) for name in NEURON_NAMES if c.requests.get(name, 0) > 0}
    if not names:
        return None
    if len(names) > 1:
        raise MixedNeuronRequestError(
            f"pod asks for {' and '.join(sorted(names))}: a pod's Neuron ids are either devices or cores; "
            f"ask for {NEURON_DEVICE} or for {NEURON_CORE} in all its containers"
        )
    (name,) = names
    sidecars = [c for c in init_containers if c.sidecar]
    counts = tuple(c.requests[name] for c in (*sidecars, *containers) if c.requests.get(name))
    init_counts = tuple(c.requests[name] for c in init_containers if not c.sidecar and c.requests.get(name))
    started = starting = 0
    for container in init_containers:
        amount = container.requests.get(name, 0)
        starting = max(starting, started + amount)
        started += amount if container.sidecar else 0
    unit = Unit.DEVICE if name in (NEURON_DEVICE, NEURON_DEVICE_ALIAS) else Unit.CORE
    return _interned(unit=unit, counts=counts, total=max(sum(counts), starting), init_counts=init_counts, resource=name)


_interned = lru_cache(maxsize=4096)(NeuronRequest)
"""Equal requests of many pods are one object, so that looking up what is known of them compares identities."""


def neuron_container_names(
    containers: Sequence[Container], init_containers: Sequence[Container] = ()
) -> tuple[str, ...]:
    """Return the names that belong to `NeuronRequest.counts`, in the same order."""
    sidecars = [c for c in init_containers if c.sidecar]
    return tuple(c.name for c in (*sidecars, *containers) if any(c.requests.get(name) for name in NEURON_NAMES))
