"""
The ids in a pod's annotations: every known form is read, one is written.

Reading is strict: a pod whose ids are not certain is an unknown holder (`cores` is None), and its devices never count
as free. Callers pass bound pods only: a user can forge the annotations of a pod that is not bound.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping

from neuron_scheduler.model.annotations import (
    AWS_NEURON_IDS,
    NEURON_ALLOC_TIME,
    NEURON_ALLOCATED,
    NEURON_CORE_USAGE_MAP,
    NEURON_CORES,
    NEURON_DEV_USAGE_MAP,
    NEURON_DEVS,
    NEURON_RESOURCE_TYPE,
    OUR_ALLOCATION,
    PLUGIN_ID_KEYS,
)
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS, NEURON_NAMES
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.topology import Placement, core_mask

DOCUMENTED = {Unit.DEVICE: NEURON_DEVS, Unit.CORE: NEURON_CORES}
"""The names in AWS's flow diagrams."""
_OWN_KEYS = {Unit.DEVICE: "devices", Unit.CORE: "cores"}
_USAGE_MAPS = {Unit.DEVICE: NEURON_DEV_USAGE_MAP, Unit.CORE: NEURON_CORE_USAGE_MAP}
_UNIT_NAMES = {Unit.DEVICE: {NEURON_DEVICE, NEURON_DEVICE_ALIAS}, Unit.CORE: {NEURON_CORE}}
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_ID_LIST = re.compile(r"(?:0|[1-9][0-9]{0,3})(?:,(?:0|[1-9][0-9]{0,3}))*")
_TIME = re.compile(r"[1-9][0-9]{0,18}")
_LATEST = 1 << 62
"""In the year 2116; a later time is a forgery that would leave no room for the next one."""


def ids_in_words(ids: Collection[int], unit: str) -> str:
    """Return `devices 4-7`, `core 5` or `devices 0-3, 8`; the ids ascend."""
    return f"{unit}{'' if len(ids) == 1 else 's'} {runs_of(ids)}"


def runs_of(ids: Iterable[int]) -> str:
    """Return ascending ids with each run of neighbours as its first and last: `0-3, 8`."""
    runs: list[list[int]] = []
    for number in ids:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


class _UnreadableError(ValueError):
    """Annotations that do not say for certain which ids the pod holds."""


def allocation_of(pod: Pod, machine: Machine | None) -> tuple[CoreMask | None, str]:
    """
    Return what a bound pod holds on its node's machine, no matter which scheduler bound it; None and why, in words for
    its owner, if that is unknown: it may hold any core.

    Our own annotation counts first, then `AWS_NEURON_IDS`, then the documented names; the first two must agree if both
    exist. The ids must be in range, distinct, and as many as the pod asks for. They need not be contiguous: the kubelet
    may choose any. A pod that asks for the whole machine holds all of it, whatever its annotations say.
    """
    request = pod.neuron
    if request is None:
        if any(pod.requests.get(name) for name in NEURON_NAMES):
            return None, pod.refusal or "its request for Neuron could not be read"
        return NO_CORES, ""
    try:
        return _cores_of(pod, request=request, machine=machine), ""
    except _UnreadableError as error:
        return None, str(error)


def annotations_for(*, pod: Pod, machine: Machine, placement: Placement, node_name: str) -> dict[str, str]:
    """
    Return the annotations with what a pod has been given, without `NEURON_ALLOC_TIME`, which the Binding adds.

    The id list has the containers in spec order, because the plugin can only split it so; the ids ascend if the
    placement made that possible. A pod that asks for devices and their cores gets both documented lists.

    Raises:
        ValueError: the pod asks for no Neuron, or the placement is not one of this request on this machine.
    """
    request = pod.neuron
    if request is None:
        raise ValueError(f"pod {pod.key} asks for no Neuron: there is nothing to allocate")
    written = _texts_of(machine, request, placement, pod.neuron_containers)
    if written is None:
        raise ValueError(f"pod {pod.key} asks for {request}, which {placement} on {machine} is not")
    csv, cores, own = written
    return {
        AWS_NEURON_IDS: csv,
        NEURON_ALLOCATED: "false",
        DOCUMENTED[request.unit]: csv,
        **({NEURON_CORES: cores} if cores else {}),
        OUR_ALLOCATION: f'{{"node":{_encode(node_name)},{own}',
    }


@memoise(maxsize=4096)
def _texts_of(
    machine: Machine, request: NeuronRequest, placement: Placement, containers: tuple[str, ...]
) -> tuple[str, str, str] | None:
    """Return ids with commas, their cores if asked for, and our annotation after its node; None if that is illegal."""
    sets = (*placement.containers, *placement.inits)
    counts, wanted = tuple(map(len, (placement.ids, *sets))), (request.total, *request.counts, *request.init_counts)
    cores = core_mask(machine, ids=placement.ids, unit=request.unit)
    if counts != wanted or cores != placement.cores or cores & ~machine.all_cores:
        return None
    listed = [i for ids in placement.containers for i in ids]
    ids = listed if len(listed) == request.total else placement.ids
    csv, each = ",".join(map(str, ids)), request.cores_each
    csv_of_cores = ",".join(str(i * each + core) for i in ids for core in range(each))
    by_container = dict(zip(containers, sets, strict=True))
    return csv, csv_of_cores, _encode({_OWN_KEYS[request.unit]: by_container, "ids": placement.ids}).removeprefix("{")


@memoise(maxsize=4096)
def lookup_amounts(request: NeuronRequest, machine: Machine) -> frozenset[tuple[Unit, int]]:
    """
    Return the amounts by which the device plugin may identify this pod among the pods of its node.

    The kubelet asks for one container after the other, init containers included. Whether the plugin compares the amount
    with the container's or with the whole pod's is not documented, so both count. For one unit, and for the whole
    machine, it takes the kubelet's choice and looks for no pod (SDK 2.22 and later).
    """
    counts = {*request.counts, *request.init_counts, request.total}
    amounts = {(request.unit, count) for count in counts} | {
        (Unit.CORE, count * request.cores_each) for count in counts
    }
    return frozenset((unit, amount) for unit, amount in amounts if amount not in (0, 1, machine.size(unit)))


def has_ids(pod: Pod) -> bool:
    return any(key in pod.allocation for key in PLUGIN_ID_KEYS)


def alloc_time_of(pod: Pod) -> int | None:
    """Return when a bound pod was given its ids, in Unix nanoseconds; None if there is no credible time."""
    text = pod.allocation.get(NEURON_ALLOC_TIME, "")
    if not pod.node_name or pod.neuron is None or not _TIME.fullmatch(text):
        return None
    time = int(text)
    return time if time < _LATEST else None


def _cores_of(pod: Pod, *, request: NeuronRequest, machine: Machine | None) -> CoreMask:
    if machine is None:
        raise _UnreadableError("its node is gone or offers no Neuron")
    if request.unit not in machine.units:
        raise _UnreadableError(f"its node does not serve {request.resource}")
    if request.cores_each not in (0, machine.cores_per_device):
        raise _UnreadableError(f"it asks for {request.cores_each} cores per device, which its node does not have")
    if request.total == machine.size(request.unit):
        return machine.all_cores
    return _cores_of_ids(_ids(pod, request), request=request, machine=machine)


def _ids(pod: Pod, request: NeuronRequest) -> tuple[int, ...]:
    """Return the ids in the annotations, not yet checked against the machine."""
    resource = pod.allocation.get(NEURON_RESOURCE_TYPE)
    if resource and resource not in _UNIT_NAMES[request.unit]:
        raise _UnreadableError(f"annotation {NEURON_RESOURCE_TYPE} is {resource!r}, but it asks for {request.resource}")
    own = _read_own(pod, request)
    listed = _read_list(pod, AWS_NEURON_IDS)
    if own is not None and listed is not None and set(own) != set(listed):
        raise _UnreadableError(f"annotations {OUR_ALLOCATION} and {AWS_NEURON_IDS} name different ids")
    if own is not None or listed is not None:
        return own or listed or ()
    documented = _read_list(pod, DOCUMENTED[request.unit])
    if documented is None:
        raise _UnreadableError("no annotation names its ids")
    return documented


def _read_own(pod: Pod, request: NeuronRequest) -> tuple[int, ...] | None:
    """Return the ids of our own annotation; None if there is none for the node that the pod is on."""
    text = pod.allocation.get(OUR_ALLOCATION)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise _UnreadableError(f"annotation {OUR_ALLOCATION} is not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("node"), str):
        raise _UnreadableError(f"annotation {OUR_ALLOCATION} names no node")
    if value["node"] != pod.node_name:
        return None
    ids = value.get("ids")
    if not isinstance(ids, list) or any(type(i) is not int for i in ids):
        raise _UnreadableError(f"annotation {OUR_ALLOCATION} has no list of ids")
    if _OWN_KEYS[request.unit] not in value:
        raise _UnreadableError(f"annotation {OUR_ALLOCATION} is not about {request.resource}")
    return tuple(ids)


def _read_list(pod: Pod, key: str) -> tuple[int, ...] | None:
    """Return the ids of an annotation with numbers and commas; blanks, signs and leading zeros are refused."""
    text = pod.allocation.get(key)
    if text is None:
        return None
    if not _ID_LIST.fullmatch(text):
        raise _UnreadableError(f"annotation {key} is not a list of ids: {text[:64]!r}")
    return tuple(int(number) for number in text.split(","))


def _cores_of_ids(ids: tuple[int, ...], *, request: NeuronRequest, machine: Machine) -> CoreMask:
    if len(ids) != request.total:
        raise _UnreadableError(f"its annotations name {len(ids)} ids, but it asks for {request.total}")
    if len(set(ids)) != len(ids):
        raise _UnreadableError("its annotations name an id twice")
    last = machine.size(request.unit) - 1
    absent = [number for number in ids if not 0 <= number <= last]
    if absent:
        raise _UnreadableError(
            f"its annotations name {request.unit} {absent[0]}, but its node has {request.unit}s 0 to {last}"
        )
    return core_mask(machine, ids=ids, unit=request.unit)


def usage_maps(machine: Machine, held: CoreMask) -> Mapping[str, str]:
    """
    Return what AWS's scheduler extension would remember of a node whose pods hold these cores, as its annotations.

    A device counts as used as soon as one of its cores is used, and a device that is used has all its cores used: the
    log in AWS's documentation shows both maps after a pod of nine cores. There is one for each unit that is served.
    """
    return {key: _usage_map(machine, held, unit) for unit, key in _USAGE_MAPS.items() if unit in machine.units}


def _usage_map(machine: Machine, held: CoreMask, unit: Unit) -> str:
    masks = (core_mask(machine, ids=(number,), unit=unit) for number in range(machine.size(unit)))
    return ",".join("true" if held & mask else "false" for mask in masks)
