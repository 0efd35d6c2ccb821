"""
What pods and nodes say of Neuron, read from their JSON as the documents describe it.

Sources: AWS's documentation of the Neuron scheduler extension (ids, shapes), Kubernetes' of extended resources and init
containers. Shares the words for a machine with the scheduler, and no code. What cannot be read is None.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import attrs

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import Machine, Shape
from sandbox.apiserver.pods import quantity
from sandbox.fleet import INSTANCE_TYPE_LABEL, INSTANCE_TYPES
from tests.simulation.oracles.change import Object, annotations_of, metadata_of
from tests.support.neuron_oracle import Kind, Piece, accounted, mask_of

UNITS: Final = {
    "aws.amazon.com/neuron": Unit.DEVICE,
    "aws.amazon.com/neurondevice": Unit.DEVICE,
    "aws.amazon.com/neuroncore": Unit.CORE,
}
ALLOCATION: Final = "neuron-scheduler/allocation"
LEADER: Final = "neuron-scheduler/leader"
IDS: Final = "AWS_NEURON_IDS"
DOCUMENTED: Final = {Unit.DEVICE: "NEURON_DEVS", Unit.CORE: "NEURON_CORES"}
ALLOC_TIME: Final = "NEURON_ALLOC_TIME"
ALLOCATED: Final = "NEURON_ALLOCATED"
OURS: Final = frozenset({ALLOCATION, LEADER, IDS, *DOCUMENTED.values(), ALLOC_TIME, ALLOCATED})
"""The annotations that a Binding of this scheduler may write."""
_ID_LIST: Final = re.compile(r"(0|[1-9][0-9]{0,3})(,(0|[1-9][0-9]{0,3}))*", re.ASCII)
_LISTED: Final = {Unit.DEVICE: "devices", Unit.CORE: "cores"}
_MOST: Final = 4096
_SHAPES: Final = {"single": Shape.SINGLE, "line": Shape.LINE, "ring": Shape.RING, "torus": Shape.TORUS}
ENDED: Final = frozenset({"Succeeded", "Failed"})


@attrs.frozen
class Asked:
    """What a pod asks for: the containers that ask, in the order of the spec, with their names."""

    unit: Unit
    names: tuple[str, ...]
    pieces: tuple[Piece, ...]

    @property
    def total(self) -> int:
        return accounted(self.pieces)


def node_name_of(pod: Object | None) -> str:
    """Return the name of the node that a pod is bound to, empty if it is not bound."""
    return "" if pod is None else str((pod.get("spec") or {}).get("nodeName") or "")


def has_ended(pod: Object) -> bool:
    """Return whether the pod's containers have ended for good, so that its devices are free."""
    return (pod.get("status") or {}).get("phase") in ENDED


def newly_bound(before: Object | None, after: Object | None) -> bool:
    """Return whether a pod that was pending has got its node."""
    return before is not None and not node_name_of(before) and bool(node_name_of(after))


def bound_by_us(before: Object | None, after: Object | None) -> bool:
    """Return whether a change is a Binding of this scheduler: it writes our allocation or the name of its sender."""
    if not newly_bound(before, after):
        return False
    old, new = annotations_of(before), annotations_of(after)
    return any(key in new and new[key] != old.get(key) for key in (ALLOCATION, LEADER))


def containers_of(pod: Object) -> Iterator[tuple[Kind, Mapping[str, Any]]]:
    """Yield the containers in the order of the spec, init containers first."""
    spec = pod.get("spec") or {}
    for container in spec.get("initContainers") or []:
        yield (Kind.SIDECAR if container.get("restartPolicy") == "Always" else Kind.INIT), container
    for container in spec.get("containers") or []:
        yield Kind.APP, container


def requests_of(container: Mapping[str, Any]) -> dict[str, Fraction]:
    """Return what a container requests; a limit without a request is one. What is no quantity is left out."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount for name, text in asked.items() if (amount := quantity(text)) is not None}


def asked_of(pod: Object) -> Asked | None:
    """Return what a pod asks for; None if it asks for no Neuron, or for devices under two names."""
    found: dict[str, list[tuple[str, Piece]]] = {}
    for kind, container in containers_of(pod):
        for name, amount in requests_of(container).items():
            if name in UNITS and amount > 0:
                found.setdefault(name, []).append((str(container.get("name")), Piece(kind, int(amount))))
    if len(found) != 1:
        return None
    ((name, entries),) = found.items()
    return Asked(UNITS[name], tuple(name for name, _ in entries), tuple(piece for _, piece in entries))


def asks_for_neuron(pod: Object) -> bool:
    """Return whether any container asks for Neuron under any name."""
    return any(
        name in UNITS and amount > 0
        for _, container in containers_of(pod)
        for name, amount in requests_of(container).items()
    )


def machine_of(node: Object | None) -> Machine | None:
    """Return the machine that a node offers; None if it offers no Neuron that can be read."""
    if node is None:
        return None
    devices = _offered(node, "aws.amazon.com/neuron") or _offered(node, "aws.amazon.com/neurondevice")
    cores = _offered(node, "aws.amazon.com/neuroncore")
    label = str((metadata_of(node).get("labels") or {}).get(INSTANCE_TYPE_LABEL, "")).removeprefix("ml.")
    if max(devices, cores) > _MOST or not (devices or cores):
        return None
    if not devices:
        shape = Shape.SINGLE if cores == 1 else Shape.LINE if label.startswith("inf") else Shape.FLAT
        return Machine(label, shape, cores, 1, frozenset({Unit.CORE}))
    if not cores or cores % devices:
        return Machine(label, _shape(label, devices), devices, 1, frozenset({Unit.DEVICE}))
    return Machine(label, _shape(label, devices), devices, cores // devices)


def _offered(node: Object, name: str) -> int:
    status = node.get("status") or {}
    for field in ("capacity", "allocatable"):
        amount = quantity((status.get(field) or {}).get(name))
        if amount is not None and amount > 0:
            return int(amount)
    return 0


def _shape(label: str, devices: int) -> Shape:
    """Return the shape: EC2's if the number of devices is EC2's, else what AWS documents for the family."""
    known = INSTANCE_TYPES.get(label)
    if devices == 1:
        return Shape.SINGLE
    if known is not None and known.devices == devices and known.shape in _SHAPES:
        return _SHAPES[known.shape]
    if label.startswith("inf"):
        return Shape.LINE
    if label.startswith("trn") and devices == 16:
        return Shape.TORUS
    return Shape.BLOCKS if label.startswith("trn3") and devices == 4 else Shape.FLAT


@attrs.frozen
class Allocation:
    """Our own annotation: the node, the ids by container, and the pod's whole set."""

    node: str
    containers: Mapping[str, Sequence[int]]
    ids: tuple[int, ...]


def allocation_of(pod: Object, unit: Unit) -> Allocation | None:
    """Return what our own annotation says about a unit; None if it is absent or cannot be read."""
    try:
        value = json.loads(annotations_of(pod).get(ALLOCATION, ""))
        by_container = value[_LISTED[unit]]
        if set(value) != {"node", _LISTED[unit], "ids"} or not all(map(_is_ids, by_container.values())):
            return None
        return Allocation(value["node"], by_container, tuple(value["ids"])) if _is_ids(value["ids"]) else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(i) is int and 0 <= i < _MOST for i in value)


def listed(text: str | None) -> tuple[int, ...] | None:
    """Return ids with commas between them; None if it is no such list."""
    return tuple(map(int, text.split(","))) if text and _ID_LIST.fullmatch(text) else None


def held_by(pod: Object, machine: Machine) -> int | None:
    """Return the cores that a bound pod certainly holds, as a mask; None if that is unknown."""
    asked = asked_of(pod)
    if asked is None:
        return None if asks_for_neuron(pod) else 0
    if asked.unit not in machine.units:
        return None
    if asked.total == machine.size(asked.unit):
        return int(machine.all_cores)
    own = allocation_of(pod, asked.unit)
    if own is not None and own.node == node_name_of(pod):
        ids: tuple[int, ...] | None = own.ids
    else:
        annotations = annotations_of(pod)
        ids = listed(annotations.get(IDS, annotations.get(DOCUMENTED[asked.unit])))
    if ids is None or len(set(ids)) != asked.total or max(ids) >= machine.size(asked.unit):
        return None
    return cores_of(machine, asked.unit, ids)


def cores_of(machine: Machine, unit: Unit, ids: Sequence[int]) -> int:
    """Return the cores of ids as a mask."""
    if unit is Unit.CORE:
        return mask_of(ids)
    width = machine.cores_per_device
    return mask_of([d * width + c for d in ids for c in range(width)])
