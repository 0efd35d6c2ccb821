"""
Pods -> `model.Pod`, and how they are listed and watched. What restricts where a pod may go is read by `constraints`.

A pod whose phase is terminal counts as gone.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import attrs
import msgspec
from msgspec.structs import replace

from neuron_scheduler.kube.objects import pod_wire as wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.interning import amounts, interned, labels, shared
from neuron_scheduler.kube.objects.memo import remembered
from neuron_scheduler.kube.objects.pod_constraints import constraints, host_ports, images, is_individual, tolerations
from neuron_scheduler.kube.objects.pod_limits import fewer_labels, too_much, without_restrictions
from neuron_scheduler.kube.objects.wire import Condition, OwnerReference, Quantities
from neuron_scheduler.model.annotations import ALLOCATION_KEYS, NEURON_ALLOCATED
from neuron_scheduler.model.neuron_request import (
    MixedNeuronRequestError,
    NeuronRequest,
    neuron_container_names,
    neuron_request,
)
from neuron_scheduler.model.pod import NO_LABELS, Constraints, HostPort, Owner, Pod, PodCondition
from neuron_scheduler.model.resources import (
    NEURON_NAMES,
    NOTHING,
    Container,
    Resources,
    effective_requests,
    is_extended,
    maximum,
)
from neuron_scheduler.model.selectors import Toleration

TERMINAL: Final = ("Succeeded", "Failed")
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
RESIZE_PENDING: Final = "PodResizePending"

_DECISIVE: Final = msgspec.msgpack.Decoder(tuple[wire.PodSpec, wire.PodStatus | None])
_encode: Final = msgspec.msgpack.Encoder().encode
_NO_IMAGES: Final[tuple[str, ...]] = ()


def _read(pod: wire.Pod) -> Pod | None:
    meta, spec, status = pod.metadata, pod.spec, pod.status or wire.PodStatus()
    if status.phase in TERMINAL:
        return None
    refusal = too_much(spec, meta.labels or NO_LABELS)
    if refusal:
        spec = without_restrictions(spec)
    told = _told((_decisive(spec, status), meta.namespace))
    constrained, volume_images = told.constraints, _NO_IMAGES
    if is_individual(spec):
        constrained = constraints(spec, pod=meta.name, namespace=meta.namespace, pod_labels=meta.labels or NO_LABELS)
        _, volume_images = images(spec)
    created = meta.creation_timestamp
    conditions = status.conditions or ()
    return Pod(
        uid=meta.uid,
        namespace=interned(meta.namespace),
        name=meta.name,
        resource_version=meta.resource_version,
        created=0.0 if created is None else created.timestamp(),
        labels=labels(fewer_labels(meta.labels) if refusal else meta.labels),
        scheduler_name=told.scheduler_name,
        node_name=interned(spec.node_name or ""),
        nominated_node_name=interned(status.nominated_node_name or ""),
        priority=told.priority,
        requests=told.requests,
        neuron=told.neuron,
        neuron_containers=told.neuron_containers,
        images=told.images,
        volume_images=volume_images,
        allocation=_allocation(meta.annotations),
        annotations_size=annotations_size(meta.annotations or NO_LABELS),
        refusal=refusal or told.refusal,
        tolerations=told.tolerations,
        host_ports=told.host_ports,
        constraints=constrained,
        terminating=meta.deletion_timestamp is not None,
        gates=told.gates,
        scheduled=_scheduled(conditions),
        observed_generation=meta.generation,
        owner=_owner(meta.owner_references) if meta.owner_references else None,
        never_preempts=told.never_preempts,
        started=None if status.start_time is None else status.start_time.timestamp(),
        preempted=any(map(_is_preemption, conditions)),
        admitted=status.start_time is not None or _is_admitted(status, meta.annotations),
    )


@attrs.frozen
class _Told:
    """What the spec says of a pod that other pods of its workload have in common with it; the fields are `Pod`'s."""

    scheduler_name: str
    priority: int
    requests: Resources
    neuron: NeuronRequest | None
    neuron_containers: tuple[str, ...]
    images: tuple[str, ...]
    refusal: str
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    constraints: Constraints
    gates: tuple[str, ...]
    never_preempts: bool


def _decisive(spec: wire.PodSpec, status: wire.PodStatus) -> bytes:
    """Return all that `_told` follows from: alike in the pods of one workload, and in all sights of one pod."""
    if not spec.node_name or not (status.container_statuses or status.init_container_statuses or status.resources):
        return _encode((replace(spec, node_name=None, volumes=None), None))
    given = wire.PodStatus(
        conditions=[condition for condition in status.conditions or () if condition.type == RESIZE_PENDING],
        container_statuses=status.container_statuses,
        init_container_statuses=status.init_container_statuses,
        resources=status.resources,
        allocated_resources=status.allocated_resources,
    )
    return _encode((replace(spec, node_name="bound", volumes=None), given))


@remembered(most=8 << 20)
def _told(spec_of: tuple[bytes, str]) -> _Told:
    """
    Return what a spec says in a namespace, read once for equal specs: this is most of the work of reading a pod.

    Raises:
        ValueError: an amount is no quantity, or negative; or as `constraints`.
    """
    decisive, namespace = spec_of
    spec, given = _DECISIVE.decode(decisive)
    status = given or wire.PodStatus()
    containers, init_containers = _containers(spec, status)
    requests = effective_requests(
        containers,
        init_containers=init_containers,
        pod_level=_pod_level(spec, status),
        overhead=amounts(spec.overhead),
    )
    neuron, names, refusal = _silicon(requests, containers, init_containers)
    return _Told(
        scheduler_name=interned(spec.scheduler_name or "default-scheduler"),
        priority=spec.priority or 0,
        requests=shared(tuple(requests.items())),
        neuron=neuron,
        neuron_containers=names,
        images=images(spec)[0],
        refusal=refusal,
        tolerations=tolerations(spec.tolerations),
        host_ports=host_ports(spec),
        constraints=constraints(spec, pod="", namespace=namespace),
        gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
        never_preempts=spec.preemption_policy == "Never",
    )


def _silicon(
    requests: Resources, containers: Sequence[Container], init_containers: Sequence[Container]
) -> tuple[NeuronRequest | None, tuple[str, ...], str]:
    """Return the request for silicon, the names of its containers, and why the pod is refused (one of the three)."""
    if not any(name in requests for name in NEURON_NAMES):
        return None, (), ""
    try:
        request = neuron_request(containers, init_containers)
    except MixedNeuronRequestError as error:
        return None, (), str(error)
    return request, neuron_container_names(containers, init_containers), ""


def _containers(spec: wire.PodSpec, status: wire.PodStatus) -> tuple[list[Container], list[Container]]:
    """Return app and init containers; of a bound pod a resize in progress counts with the larger amount."""
    given: dict[str, wire.ContainerStatus] = {}
    if spec.node_name:
        statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
        given = {one.name: one for one in statuses}
    infeasible = _is_infeasible(status)
    return (
        [_container(one, given.get(one.name), infeasible=infeasible) for one in spec.containers or ()],
        [
            # An ordinary init container cannot be resized.
            _container(one, given.get(one.name) if one.restart_policy == "Always" else None, infeasible=infeasible)
            for one in spec.init_containers or ()
        ],
    )


def _container(container: wire.Container, given: wire.ContainerStatus | None, *, infeasible: bool) -> Container:
    requests = _requests(container.resources)
    if given is not None and given.resources is not None:
        actual = _given(given.resources, given.allocated_resources)
        # Silicon cannot be resized either, and what a status leaves out does not become free.
        silicon = {name: amount for name, amount in requests.items() if name in NEURON_NAMES}
        requests = maximum(silicon if infeasible else requests, actual)
    return Container(name=interned(container.name), requests=requests, sidecar=container.restart_policy == "Always")


def _pod_level(spec: wire.PodSpec, status: wire.PodStatus) -> Resources:
    """Return the requests of the pod as a whole; while it is resized, those amounts of them that count."""
    wanted = amounts(spec.resources.requests) if spec.resources else NOTHING
    if not wanted or not spec.node_name or status.resources is None:
        return wanted
    actual = _given(status.resources, status.allocated_resources)
    effective = actual if _is_infeasible(status) else maximum(wanted, actual)
    return {name: effective.get(name, 0) for name in wanted}


def _given(actuated: wire.Resources, allocated: Quantities | None) -> Resources:
    """Return what a kubelet says it has given (`determineEffectiveRequests` in component-helpers' `resource`)."""
    return maximum(amounts(actuated.requests), amounts(allocated))


def _is_infeasible(status: wire.PodStatus) -> bool:
    return any(c.type == RESIZE_PENDING and c.reason == "Infeasible" for c in status.conditions or ())


def _requests(resources: wire.Resources | None) -> Resources:
    """Return a container's requests, with the limits of extended resources where only those are given."""
    if resources is None:
        return NOTHING
    requests = resources.requests
    if resources.limits:
        only_limits = {
            name: amount
            for name, amount in resources.limits.items()
            if is_extended(name) and (not requests or name not in requests)
        }
        if only_limits:
            requests = {**only_limits, **(requests or {})}
    return amounts(requests)


def _owner(references: Iterable[OwnerReference]) -> Owner | None:
    return next((_controller((one.api_version, one.kind, one.name)) for one in references if one.controller), None)


@remembered(most=8 << 20)
def _controller(found: tuple[str, str, str]) -> Owner:
    return Owner(*found)


def _allocation(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    if not annotations:
        return NO_LABELS
    return {key: annotations[key] for key in ALLOCATION_KEYS if key in annotations} or NO_LABELS


def _is_admitted(status: wire.PodStatus, annotations: Mapping[str, str] | None) -> bool:
    """
    Tell whether a pod without a start time is known to have been admitted by its kubelet.

    The kubelet asks the device plugin before it reports anything of a pod. For one unit, or all of a node, the plugin
    leaves its annotation alone.
    """
    if status.container_statuses or status.init_container_statuses:
        return True
    return annotations is not None and annotations.get(NEURON_ALLOCATED) == "true"


def annotations_size(annotations: Mapping[str, str]) -> int:
    """Return the bytes of all keys and values together, as the API server counts them (at most 256 KiB)."""
    return len("".join((*annotations, *annotations.values())).encode())


def _scheduled(conditions: Iterable[Condition]) -> PodCondition | None:
    for condition in conditions:
        if condition.type == "PodScheduled":
            return _condition((interned(condition.status), interned(condition.reason or ""), condition.message or ""))
    return None


def _is_preemption(condition: Condition) -> bool:
    return (condition.type, condition.status, condition.reason) == ("DisruptionTarget", "True", PREEMPTION_BY_SCHEDULER)


@remembered()
def _condition(found: tuple[str, str, str]) -> PodCondition:
    return PodCondition(*found)


_COMPARED: Final = attrgetter(
    *(field.name for field in attrs.fields(Pod) if field.name not in ("resource_version", "observed_generation"))
)


def _same(old: Pod, new: Pod) -> bool:
    """Return whether two states of a pod differ in nothing but their versions."""
    return bool(_COMPARED(old) == _COMPARED(new))


PODS: Final[Resource[Pod]] = Resource(
    path="/api/v1/pods",
    kind="Pod",
    shape=wire.Pod,
    read=_read,
    order=attrgetter("created", "namespace", "name", "uid"),
    same=_same,
    params={"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
)
