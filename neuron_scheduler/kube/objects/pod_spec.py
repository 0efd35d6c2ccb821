"""
What follows from a pod's spec: requests, tolerations, ports, constraints.

The pods of a workload have it in common, and so have all states of one pod, so it is read once for equal specs: this is
most of the work of reading a pod. Volumes, and labels by which replicas differ, are left to `pods`.
"""

from collections.abc import Callable, Sequence
from typing import Final

import attrs
import msgspec
from msgspec.structs import replace

from neuron_scheduler.kube.objects import pod_wire as wire
from neuron_scheduler.kube.objects.byte_bounded_memo import byte_bounded_memo
from neuron_scheduler.kube.objects.interning import amounts, interned, shared
from neuron_scheduler.kube.objects.pod_constraints import constraints, host_ports, images
from neuron_scheduler.kube.objects.selectors import tolerations
from neuron_scheduler.model.neuron_request import (
    MixedNeuronRequestError,
    NeuronRequest,
    neuron_container_names,
    neuron_request,
)
from neuron_scheduler.model.pod import Constraints, HostPort
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

RESIZE_PENDING: Final = "PodResizePending"

_KEY: Final = msgspec.msgpack.Decoder(tuple[wire.PodSpec, wire.PodStatus | None])
_encode: Final = msgspec.msgpack.Encoder().encode
_RequestsOf = Callable[[wire.Container], Resources]


@attrs.frozen
class FieldsOfSpec:
    """What follows from a pod's spec and is the same in all pods of its workload; the fields are those of `Pod`."""

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


def spec_key(spec: wire.PodSpec, status: wire.PodStatus) -> bytes:
    """Return the bytes from which `fields_of_spec` follows: equal for pods of one workload and all states of a pod."""
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


@byte_bounded_memo(most=8 << 20)
def fields_of_spec(key_and_namespace: tuple[bytes, str]) -> FieldsOfSpec:
    """
    Return what a spec means in a namespace; equal specs are read once.

    Raises:
        ValueError: an amount is no quantity, or negative; or as `constraints`.
    """
    key, namespace = key_and_namespace
    spec, given = _KEY.decode(key)
    status = given or wire.PodStatus()
    containers, init_containers = _containers(spec, lambda container: _requests(container.resources))
    sums = effective_requests(containers, init_containers=init_containers)
    requests = effective_requests(
        [Container(name="", requests=_with_resizes(spec, status, sums))],
        pod_level=_pod_level(spec, status),
        overhead=amounts(spec.overhead),
    )
    neuron, names, refusal = _neuron(requests, containers, init_containers)
    return FieldsOfSpec(
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


def _neuron(
    requests: Resources, containers: Sequence[Container], init_containers: Sequence[Container]
) -> tuple[NeuronRequest | None, tuple[str, ...], str]:
    """Return the request for Neuron, the names of its containers, and why the pod is refused instead."""
    if not any(name in requests for name in NEURON_NAMES):
        return None, (), ""
    try:
        request = neuron_request(containers, init_containers)
    except MixedNeuronRequestError as error:
        return None, (), str(error)
    return request, neuron_container_names(containers, init_containers), ""


def _containers(spec: wire.PodSpec, requests_of: _RequestsOf) -> tuple[list[Container], list[Container]]:
    """Return app and init containers with one of their amounts."""
    both = (
        [
            Container(name=interned(c.name), requests=requests_of(c), sidecar=c.restart_policy == "Always")
            for c in containers or ()
        ]
        for containers in (spec.containers, spec.init_containers)
    )
    app_containers, init_containers = both
    return app_containers, init_containers


def _with_resizes(spec: wire.PodSpec, status: wire.PodStatus, sums: Resources) -> Resources:
    """
    Return what counts for the containers of a pod, which ask for `sums`; of a bound pod also what it has been given.

    Upstream: `AggregateContainerRequests` in component-helpers' `resource`. Since Kubernetes 1.37 the largest of the
    sums counts; before, the sum of each container's largest amounts. Neuron cannot be resized, and what a status
    leaves out of it does not become free.
    """
    if not spec.node_name:
        return sums
    infeasible = _is_infeasible(status)
    if status.allocated_resources and status.resources is not None and status.resources.requests:
        given = maximum(amounts(status.resources.requests), amounts(status.allocated_resources))
    else:
        given = _given_to_containers(spec, status, infeasible=infeasible)
    neuron = {name: amount for name, amount in sums.items() if name in NEURON_NAMES}
    return {**maximum(NOTHING if infeasible else sums, given), **neuron}


def _given_to_containers(spec: wire.PodSpec, status: wire.PodStatus, *, infeasible: bool) -> Resources:
    """Return the larger of the sums of what a kubelet has promised to the containers and of what they have."""
    statuses = {c.name: c for c in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))}

    def allocated(container: wire.Container) -> Resources:
        given = statuses.get(container.name)
        if given is not None and given.allocated_resources:
            return amounts(given.allocated_resources)
        return NOTHING if infeasible else _requests(container.resources)

    def actuated(container: wire.Container) -> Resources:
        given = statuses.get(container.name)
        if given is not None and given.resources is not None and given.resources.requests:
            return amounts(given.resources.requests)
        return allocated(container)

    ways = (_containers(spec, way) for way in (allocated, actuated))
    promised, present = (effective_requests(app, init_containers=init) for app, init in ways)
    return maximum(promised, present)


def _pod_level(spec: wire.PodSpec, status: wire.PodStatus) -> Resources:
    """Return the requests of the pod as a whole; while it is resized, what it has been given if that is more."""
    wanted = amounts(spec.resources.requests) if spec.resources else NOTHING
    if not wanted or not spec.node_name or status.resources is None:
        return wanted
    given = maximum(amounts(status.resources.requests), amounts(status.allocated_resources))
    return given if _is_infeasible(status) else maximum(wanted, given)


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
