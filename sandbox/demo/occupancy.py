"""
Which pod has which cores, read from the store as a device plugin would: from the annotation `AWS_NEURON_IDS`.

An annotation that cannot be read is reported as a problem; nothing is guessed.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from sandbox.apiserver.resources import NODES, PODS
from sandbox.apiserver.store import Object, Store
from sandbox.demo.workload import illegal
from sandbox.fleet import CORE, DEVICE, INSTANCE_TYPE_LABEL, INSTANCE_TYPES, InstanceType, Shape

IDS_ANNOTATION: Final = "AWS_NEURON_IDS"


@attrs.frozen
class Holding:
    """The ids of devices, or of cores, of a bound pod."""

    pod: str  # name, with the namespace before it if it is not `default`
    node: str
    ids: tuple[int, ...]
    in_cores: bool

    def shown(self) -> str:
        """Return `devices 0-3` or `core 5`, for people."""
        word = "core" if self.in_cores else "device"
        if len(self.ids) == 1:
            return f"{word} {self.ids[0]}"
        return f"{word}s {self.ids[0]}-{self.ids[-1]}"


@attrs.define
class Machine:
    """A node's devices and cores: for each core the pods that have it."""

    node: str
    type: InstanceType
    cores: list[list[str]]

    @property
    def free_devices(self) -> int:
        """The number of devices without a used core."""
        size = self.type.cores_per_device
        return sum(not any(self.cores[place : place + size]) for place in range(0, len(self.cores), size))


@attrs.frozen
class Occupancy:
    """Machines by node, holdings by pod, and the problems found."""

    machines: dict[str, Machine]
    holdings: dict[str, Holding]
    problems: list[str]


def pod_name(pod: Object) -> str:
    """Return `name`, or `namespace/name` outside of `default`."""
    metadata = pod["metadata"]
    return metadata["name"] if metadata["namespace"] == "default" else f"{metadata['namespace']}/{metadata['name']}"


def read(store: Store) -> Occupancy:
    """Return the occupancy at this moment."""
    occupancy = Occupancy({}, {}, [])
    for node in store.objects(NODES.storage):
        machine = _machine(node)
        if machine is not None:
            occupancy.machines[machine.node] = machine
    for pod in store.objects(PODS.storage):
        for kind in (DEVICE, CORE):
            amount = _requested(pod, kind)
            if amount and pod["spec"].get("nodeName") and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
                occupancy.problems.extend(_hold(occupancy, pod, amount, in_cores=kind == CORE))
    return occupancy


def _machine(node: Object) -> Machine | None:
    capacity = node["status"].get("capacity") or {}
    devices, cores = int(capacity.get(DEVICE, 0)), int(capacity.get(CORE, 0))
    if not devices or cores % devices:
        return None
    label = (node["metadata"].get("labels") or {}).get(INSTANCE_TYPE_LABEL, "unknown").removeprefix("ml.")
    known = INSTANCE_TYPES.get(label)
    shape = known.shape if known is not None and known.devices == devices else Shape.LINE
    machine = InstanceType(label, 0, 0, devices, cores // devices, shape)
    return Machine(node["metadata"]["name"], machine, [[] for _ in range(cores)])


def _requested(pod: Object, resource: str) -> int:
    amounts = [container.get("resources", {}).get("requests", {}) for container in pod["spec"]["containers"]]
    return sum(int(amount.get(resource, 0)) for amount in amounts)


def _hold(occupancy: Occupancy, pod: Object, amount: int, *, in_cores: bool) -> Iterator[str]:
    name, node = pod_name(pod), pod["spec"]["nodeName"]
    text = (pod["metadata"].get("annotations") or {}).get(IDS_ANNOTATION, "")
    machine = occupancy.machines.get(node)
    try:
        ids = tuple(int(part) for part in text.split(","))
    except ValueError:
        ids = ()
    if machine is None or len(ids) != amount:
        yield f"{name} on {node}: {IDS_ANNOTATION} is {text!r}, but the pod asks for {amount} ids"
        return
    wrong = illegal(machine.type, ids, cores=in_cores) if len(pod["spec"]["containers"]) == 1 else ""
    if wrong:
        yield f"{name} on {node}: {IDS_ANNOTATION} is {text!r}: {wrong}"
    occupancy.holdings[name] = Holding(name, node, ids, in_cores)
    size = machine.type.cores_per_device
    cores = ids if in_cores else [core for device in ids for core in range(device * size, (device + 1) * size)]
    for core in cores:
        if core in range(len(machine.cores)):
            if machine.cores[core]:
                yield f"core {core} of {node} is used by {machine.cores[core][0]} and by {name}"
            machine.cores[core].append(name)
