"""
What follows from a pod's spec: requests, tolerations, ports, images and the terms that decide where it may run.

The pods of a workload and all states of one pod have it in common. So equal specs are read once, which saves most of
the work of reading a pod. `pods` reads volumes and individual labels. Equal terms, ports and lists become one object
each, so that tables keyed by them stay small.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import attrs
import msgspec
from msgspec.structs import replace

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import (
    amounts,
    byte_bounded_memo,
    intern,
    labels,
    reference,
    share,
    shared_amounts,
)
from neuron_scheduler.kube.objects.selectors import label_selector, node_term, requirement, tolerations
from neuron_scheduler.kube.objects.storage import in_tree_disk
from neuron_scheduler.model.neuron_request import (
    MixedNeuronRequestError,
    NeuronRequest,
    neuron_container_names,
    neuron_request,
)
from neuron_scheduler.model.pod import DEFAULT_SCHEDULER, NO_CONSTRAINTS, Constraints, HostPort
from neuron_scheduler.model.resources import (
    NEURON_NAMES,
    NOTHING,
    Container,
    Resources,
    effective_requests,
    is_extended,
    maximum,
)
from neuron_scheduler.model.selectors import (
    NO_LABELS,
    LabelSelector,
    PodAffinityTerm,
    PreferredTerm,
    SpreadConstraint,
    Toleration,
)
from neuron_scheduler.model.volumes import InlineVolume

_INLINE_VOLUMES: Final = (
    "aws_elastic_block_store",
    "azure_disk",
    "cinder",
    "gce_persistent_disk",
    "iscsi",
    "photon_persistent_disk",
    "portworx_volume",
    "rbd",
)
"""In-tree sources tied to a node or zone, or that two pods of one node cannot share."""

LONGEST_IMAGE_NAME: Final = 1024  # a registry's own limits add up to less than half of it
_inline_sources: Final = attrgetter(*_INLINE_VOLUMES)
_NO_SOURCES: Final = (None,) * len(_INLINE_VOLUMES)
_sources: Final = attrgetter("persistent_volume_claim", "ephemeral", "image", *_INLINE_VOLUMES)
_NONE_OF_ALL: Final = (None,) * (len(_INLINE_VOLUMES) + 3)

RESIZE_PENDING: Final = "PodResizePending"

_KEY: Final = msgspec.msgpack.Decoder(tuple[wire.PodSpec, wire.PodStatus | None])
_encode: Final = msgspec.msgpack.Encoder().encode
_RequestsOf = Callable[[wire.Container], Resources]


def is_individual(spec: wire.PodSpec) -> bool:
    """Return whether the constraints depend on volumes or labels in which even replicas of one workload differ."""
    for volume in spec.volumes or ():
        if _sources(volume) != _NONE_OF_ALL:
            return True
    spreads = spec.topology_spread_constraints
    return spreads is not None and any(spread.match_label_keys for spread in spreads)


def constraints(
    spec: wire.PodSpec, *, pod: str, namespace: str, pod_labels: Mapping[str, str] = NO_LABELS
) -> Constraints:
    """Return the constraints of a pod; ValueError for a label selector that cannot be read."""
    claims, ephemeral, disks, inline = _volumes(spec.volumes or (), pod)
    features = _required_features(spec)
    spreads = spec.topology_spread_constraints or ()
    attached = claims or disks or inline or spec.resource_claims
    if not (spec.node_selector or spec.affinity or spreads or attached or features):
        return NO_CONSTRAINTS  # most pods
    affinity = spec.affinity or wire.Affinity()
    node = affinity.node_affinity or wire.NodeAffinity()
    near = affinity.pod_affinity or wire.PodAffinity()
    apart = affinity.pod_anti_affinity or wire.PodAffinity()
    required = node.required_during_scheduling_ignored_during_execution
    return Constraints(
        node_selector=labels(spec.node_selector),
        required_terms=None if required is None else tuple(map(node_term, required.node_selector_terms or ())),
        preferred_terms=tuple(
            PreferredTerm(preferred.weight, node_term(preferred.preference))
            for preferred in node.preferred_during_scheduling_ignored_during_execution or ()
        ),
        affinity=_pod_terms(near, namespace),
        anti_affinity=_pod_terms(apart, namespace),
        preferred_affinity=_preferred_terms(near, namespace),
        preferred_anti_affinity=_preferred_terms(apart, namespace),
        spread=tuple(_spread(spread, pod_labels) for spread in spreads),
        volume_claims=claims,
        ephemeral_claims=ephemeral,
        disks=disks,
        inline_volumes=inline,
        resource_claims=tuple(claim.name for claim in spec.resource_claims or ()),
        required_features=features,
    )


def _required_features(spec: wire.PodSpec) -> tuple[str, ...]:
    """Return the features that `AllFeatures` in component-helpers' `nodedeclaredfeatures` infers for scheduling."""
    features = []
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    if any(rule.action == "RestartAllContainers" for c in containers for rule in c.restart_policy_rules or ()):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)


def host_ports(spec: wire.PodSpec) -> tuple[HostPort, ...]:
    """Return the node's ports that app containers and sidecars use; with hostNetwork every container port is one."""
    containers = [*(c for c in spec.init_containers or () if c.restart_policy == "Always"), *(spec.containers or ())]
    ports = []
    for container in containers:
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                ports.append(share(HostPort(port.protocol or "TCP", number, port.host_ip or "0.0.0.0")))  # noqa: S104
    return tuple(ports)


def images(spec: wire.PodSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the images of init and app containers, and those of image volumes."""
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    mounted = tuple(image_name(v.image.reference or "") for v in spec.volumes or () if v.image is not None)
    return share(tuple(image_name(container.image or "") for container in containers)), mounted


@byte_bounded_memo()
def image_name(reference: str) -> str:
    """Return an image's name with a tag or digest (`normalizedImageName` of `plugins/imagelocality`)."""
    reference = reference[:LONGEST_IMAGE_NAME]
    return reference if reference.rfind(":") > reference.rfind("/") else f"{reference}:latest"


def _spread(spread: wire.Spread, pod_labels: Mapping[str, str]) -> SpreadConstraint:
    """Return the constraint with `matchLabelKeys` merged in, as the API server does from 1.34 on."""
    if spread.max_skew < 1:
        raise ValueError(f"maxSkew of a topology spread constraint is {spread.max_skew}")
    selector = label_selector(spread.label_selector)
    if selector is not None and spread.match_label_keys:
        keyed = (requirement((key, "In", (pod_labels[key],))) for key in spread.match_label_keys if key in pod_labels)
        merged = dict.fromkeys((*selector.requirements, *(r for r in keyed if r is not None)))
        selector = LabelSelector(tuple(merged))
    return SpreadConstraint(
        topology_key=intern(spread.topology_key),
        max_skew=spread.max_skew,
        hard=spread.when_unsatisfiable != "ScheduleAnyway",
        selector=selector,
        min_domains=spread.min_domains or 1,
        honor_affinity=spread.node_affinity_policy != "Ignore",
        honor_taints=spread.node_taints_policy == "Honor",
    )


def _pod_terms(affinity: wire.PodAffinity, namespace: str) -> tuple[PodAffinityTerm, ...]:
    return tuple(_pod_term(t, namespace) for t in affinity.required_during_scheduling_ignored_during_execution or ())


def _pod_term(term: wire.PodTerm, namespace: str, *, weight: int = 0) -> PodAffinityTerm:
    named = frozenset(term.namespaces or ())
    return share(
        PodAffinityTerm(
            topology_key=intern(term.topology_key),
            selector=label_selector(term.label_selector),
            namespaces=named if named or term.namespace_selector is not None else frozenset((namespace,)),
            namespace_selector=label_selector(term.namespace_selector),
            weight=weight,
        )
    )


def _preferred_terms(affinity: wire.PodAffinity, namespace: str) -> tuple[PodAffinityTerm, ...]:
    return tuple(
        _pod_term(preferred.pod_affinity_term, namespace, weight=preferred.weight)
        for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ()
    )


def _volumes(
    volumes: Iterable[wire.Volume], pod: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[InlineVolume, ...], tuple[str, ...]]:
    """Return the names of all claims, of the ephemeral ones, the disks that CSI drivers serve, and other volumes."""
    claims, ephemeral, disks, inline = [], [], [], []
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(reference(volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            claims.append(f"{pod}-{volume.name}")
            ephemeral.append(claims[-1])
        elif _inline_sources(volume) != _NO_SOURCES:
            disk = in_tree_disk(volume)
            if disk is None:
                inline.append(volume.name)
            else:
                disks.append(disk)
    return tuple(dict.fromkeys(claims)), tuple(ephemeral), tuple(disks), tuple(inline)


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
        scheduler_name=intern(spec.scheduler_name or DEFAULT_SCHEDULER),
        priority=spec.priority or 0,
        requests=shared_amounts(tuple(requests.items())),
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
    both = (
        [
            Container(name=intern(c.name), requests=requests_of(c), sidecar=c.restart_policy == "Always")
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
    sums counts; before, the sum of each container's largest amounts. Neuron cannot be resized: a status frees none.
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

    def promised_to(container: wire.Container) -> Resources:
        given = statuses.get(container.name)
        if given is not None and given.allocated_resources:
            return amounts(given.allocated_resources)
        return NOTHING if infeasible else _requests(container.resources)

    def used_by(container: wire.Container) -> Resources:
        given = statuses.get(container.name)
        if given is not None and given.resources is not None and given.resources.requests:
            return amounts(given.resources.requests)
        return promised_to(container)

    ways = (_containers(spec, way) for way in (promised_to, used_by))
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
