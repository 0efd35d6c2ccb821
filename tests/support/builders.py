"""Builders of pods, nodes and machines: a field that a test leaves out has a value on which no decision depends."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import attrs

from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.model.neuron_request import (
    MixedNeuronRequestError,
    NeuronRequest,
    neuron_container_names,
    neuron_request,
    with_pairs,
)
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.pod import Constraints, Pod
from neuron_scheduler.model.resources import (
    CPU,
    MEMORY,
    NEURON_CORE,
    NEURON_DEVICE,
    NEURON_DEVICE_ALIAS,
    PODS,
    Container,
    Resources,
    effective_requests,
)
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine, machine_of

GI = 1 << 30

Counts = int | Sequence[int]


def node(
    name: str = "n",
    instance_type: str = "",
    *,
    uid: str | None = None,
    labels: Mapping[str, str] | None = None,
    cpu: int = 192_000,
    memory: int = 512 * GI,
    pods: int = 110,
    devices: int | None = None,
    cores_per_device: int | None = None,
    allocatable: Resources | None = None,
    **rest: Any,
) -> Node:
    """
    Return a node; of a known instance type it offers that type's devices and cores.

    `instance_type` is the label's value, `ml.` allowed. cpu is in thousandths, memory in bytes. `devices` and
    `cores_per_device` (LNC) replace the type's own; `allocatable` for amounts that differ from what the other
    arguments say. `rest` are further fields of `Node`.
    """
    row = INSTANCE_TYPES.get(instance_type.removeprefix("ml."))
    if devices is None:
        devices = row.devices if row else 0
    if cores_per_device is None:
        cores_per_device = row.cores_per_device[0] if row else 0
    silicon = {NEURON_DEVICE: devices, NEURON_CORE: devices * cores_per_device}
    silicon = {resource: amount for resource, amount in silicon.items() if amount}
    typed = {INSTANCE_TYPE_LABEL: instance_type} if instance_type else {}
    return Node(
        uid=f"uid-{name}" if uid is None else uid,
        name=name,
        labels={**typed, **(labels or {})},
        allocatable={CPU: cpu, MEMORY: memory, PODS: pods, **silicon, **(allocatable or {})},
        capacity=silicon,
        **rest,
    )


def machine(instance_type: str, **keywords: Any) -> Machine:
    """Return the devices and cores of a node of a type; the keywords are those of `node`."""
    machine = machine_of(node("n", instance_type, **keywords))
    if machine is None:
        raise ValueError(f"{instance_type} offers no Neuron")
    return machine


def request(devices: Counts = 0, *, cores: Counts = 0, init: Counts = ()) -> NeuronRequest:
    """Return a request of one or several containers; `init` counts ordinary init containers in the same unit."""
    neuron = pod("p", devices=devices, cores=cores, init=init).neuron
    if neuron is None:
        raise ValueError("a request asks for something")
    return neuron


def pod(
    name: str = "p",
    *,
    uid: str | None = None,
    namespace: str = "default",
    devices: Counts = 0,
    cores: Counts = 0,
    alias: Counts = 0,
    init: Counts = (),
    cpu: int = 0,
    memory: int = 0,
    on: str = "",
    pairs: bool = False,
    ids: Sequence[int] | None = None,
    requests: Resources | None = None,
    constraints: Constraints | None = None,
    **rest: Any,
) -> Pod:
    """
    Return a pod; `rest` are fields of `Pod` or of `Constraints`.

    `devices`, `cores` and `alias` are one count, or one for each container (0 for one without Neuron); `init` counts
    ordinary init containers in the same unit. cpu is in thousandths, memory in bytes, `requests` are amounts beyond
    those. `on` is the node it is bound to, `ids` the value of AWS_NEURON_IDS; `pairs`: its profile allows pairs.
    """
    containers, init_containers = _containers(devices=devices, cores=cores, alias=alias, init=init)
    refusal = rest.pop("refusal", "")
    try:
        neuron = neuron_request(containers, init_containers)
    except MixedNeuronRequestError as error:
        neuron, refusal = None, refusal or str(error)
    neuron = with_pairs(neuron) if pairs and neuron is not None else neuron
    names = neuron_container_names(containers, init_containers) if neuron is not None else ()
    of_constraints = {field.name for field in attrs.fields(Constraints)}
    constrained = {key: rest.pop(key) for key in list(rest) if key in of_constraints}
    if ids is not None:
        rest["allocation"] = {AWS_NEURON_IDS: ",".join(map(str, ids)), **rest.get("allocation", {})}
    effective = effective_requests(containers, init_containers=init_containers)
    amounts = {**effective, CPU: cpu, MEMORY: memory, **(requests or {})}
    return Pod(
        uid=f"uid-{name}" if uid is None else uid,
        namespace=namespace,
        name=name,
        node_name=on,
        requests={resource: amount for resource, amount in amounts.items() if amount},
        neuron=neuron,
        neuron_containers=names,
        refusal=refusal,
        constraints=attrs.evolve(constraints or Constraints(), **constrained),
        **rest,
    )


def _containers(
    *, devices: Counts, cores: Counts, alias: Counts, init: Counts
) -> tuple[list[Container], list[Container]]:
    """Return app and init containers; the counts of all resources at one place are those of one container."""
    kinds = [
        (resource, _tuple(counts))
        for resource, counts in ((NEURON_DEVICE, devices), (NEURON_CORE, cores), (NEURON_DEVICE_ALIAS, alias))
        if any(_tuple(counts))
    ]
    of_init = kinds[0][0] if kinds else NEURON_DEVICE
    amounts = zip_longest(*([(resource, count) for count in counts] for resource, counts in kinds), fillvalue=("", 0))
    requests = [{resource: count for resource, count in each if count} for each in amounts] or [{}]
    containers = [Container(f"c{i}", each) for i, each in enumerate(requests)]
    return containers, [Container(f"i{i}", _some(of_init, count)) for i, count in enumerate(_tuple(init))]


def _some(resource: str, count: int) -> Resources:
    return {resource: count} if count else {}


def _tuple(counts: Counts) -> tuple[int, ...]:
    return (counts,) if isinstance(counts, int) else tuple(counts)
