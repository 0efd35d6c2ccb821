"""
Amounts of resources, and the effective requests of a pod.

Upstream: `PodRequests` in `component-helpers/resource/helpers.go`. Cpu is in thousandths, all else in whole units.
"""

from collections.abc import Iterable, Mapping

import attrs

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"

NEURON_DEVICE = "aws.amazon.com/neuron"
NEURON_DEVICE_ALIAS = "aws.amazon.com/neurondevice"
NEURON_CORE = "aws.amazon.com/neuroncore"
NEURON_NAMES = (NEURON_DEVICE, NEURON_DEVICE_ALIAS, NEURON_CORE)
NEURON_CLAIMS = "neuron.aws.com"
"""The driver, and the device class, of devices that pods get by claims; counted like a resource."""

Resources = Mapping[str, int]
NOTHING: Resources = {}


def device_name_on(allocatable: Resources) -> str:
    """Return under which name a node counts its Neuron devices."""
    return next(filter(allocatable.get, (NEURON_DEVICE, NEURON_CLAIMS)), NEURON_DEVICE_ALIAS)


@attrs.frozen
class Container:
    """
    One container with its requests.

    Attributes:
        requests: amounts by resource name without zeros; limits replace missing requests.
        sidecar: an init container with `restartPolicy: Always`; it runs beside the app containers.
    """

    name: str
    requests: Resources = NOTHING
    sidecar: bool = False


def is_extended(name: str) -> bool:
    """Return whether a resource is extended (`aws.amazon.com/neuron`) and not native (`cpu`, `hugepages-2Mi`)."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def add(left: Resources, right: Resources) -> Resources:
    if not right:
        return left
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return total


def maximum(left: Resources, right: Resources) -> Resources:
    most = dict(left)
    for name, amount in right.items():
        if amount > most.get(name, 0):
            most[name] = amount
    return most


def effective_requests(
    containers: Iterable[Container],
    *,
    init_containers: Iterable[Container] = (),
    pod_level: Resources = NOTHING,
    overhead: Resources = NOTHING,
) -> Resources:
    """
    Return what the scheduler counts for a pod: the larger of its running and its starting phase, plus overhead.

    `pod_level` (`spec.resources.requests`) replaces the sums of cpu, memory and hugepages that it names; extended
    resources are never taken from it.
    """
    running: dict[str, int] = {}
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in init_containers:
        for name, amount in container.requests.items():
            started = sidecars.get(name, 0) + amount
            starting[name] = max(starting.get(name, 0), started)
            if container.sidecar:
                sidecars[name] = started
    for container in containers:
        for name, amount in container.requests.items():
            running[name] = running.get(name, 0) + amount
    requests = dict(maximum(add(running, sidecars), starting))
    requests |= {n: a for n, a in pod_level.items() if n in (CPU, MEMORY) or n.startswith("hugepages-")}
    return {name: amount for name, amount in add(requests, overhead).items() if amount}
