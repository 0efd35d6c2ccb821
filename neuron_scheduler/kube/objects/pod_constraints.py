"""
The parts of a pod's spec that restrict where it may go, from the wire into `model`.

Equal requirements and tolerations become one object each, so that indexes keyed by them stay small. What does not parse
is marked unreadable and matches nothing, as upstream has it (`component-helpers/scheduling/corev1/nodeaffinity`).
"""

import re
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

from neuron_scheduler.kube.objects import pod_wire as wire
from neuron_scheduler.kube.objects.csi_migration import in_tree_disk
from neuron_scheduler.kube.objects.interning import interned, labels
from neuron_scheduler.kube.objects.memo import remembered
from neuron_scheduler.kube.objects.wire import NodeTerm, Selector
from neuron_scheduler.model.pod import NO_CONSTRAINTS, NO_LABELS, Constraints, HostPort
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    PreferredTerm,
    Requirement,
    SpreadConstraint,
    Toleration,
    parse_int64,
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

MOST_REQUIREMENTS: Final = 5000  # of one label selector: about 10 ms to read
LONGEST_IMAGE_NAME: Final = 1024  # a registry's own limits add up to less than half of it
_OPERATORS: Final = {operator.value: operator for operator in Operator}
_EFFECTS: Final = {effect.value: effect for effect in Effect}
_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_inline_sources: Final = attrgetter(*_INLINE_VOLUMES)
_NO_SOURCES: Final = (None,) * len(_INLINE_VOLUMES)
_sources: Final = attrgetter("persistent_volume_claim", "ephemeral", "image", *_INLINE_VOLUMES)
_NONE_OF_ALL: Final = (None,) * (len(_INLINE_VOLUMES) + 3)
_SELECTOR_OPERATORS: Final = (Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST)


def is_individual(spec: wire.PodSpec) -> bool:
    """Tell whether what the spec means depends on volumes, or on labels, that even replicas do not have in common."""
    for volume in spec.volumes or ():
        if _sources(volume) != _NONE_OF_ALL:
            return True
    spreads = spec.topology_spread_constraints
    return spreads is not None and any(spread.match_label_keys for spread in spreads)


def constraints(
    spec: wire.PodSpec, *, pod: str, namespace: str, pod_labels: Mapping[str, str] = NO_LABELS
) -> Constraints:
    """
    Return the constraints of a pod of that name, namespace and labels.

    Raises:
        ValueError: a label selector cannot be read; the API server refuses such pods.
    """
    claims, ephemeral, disks, inline = _volumes(spec.volumes or (), pod)
    features = _required_features(spec)
    spreads = spec.topology_spread_constraints or ()
    bound_to = claims or disks or inline or spec.resource_claims or features
    if not (spec.node_selector or spec.affinity or spreads or bound_to):
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
        preferred_affinity=_preferred(near, namespace),
        preferred_anti_affinity=_preferred(apart, namespace),
        spread=tuple(_spread(one, pod_labels) for one in spreads),
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
    if any(rule.action == "RestartAllContainers" for one in containers for rule in one.restart_policy_rules or ()):
        features.append("RestartAllContainersOnContainerExits")
    if spec.host_network and spec.host_users is False:
        features.append("UserNamespacesHostNetworkSupport")
    return tuple(features)


def tolerations(found: Iterable[wire.Toleration] | None) -> tuple[Toleration, ...]:
    """Return tolerations; an absent operator is Equal, and one that no release has enabled makes it unreadable."""
    return _same(tuple(_toleration((t.key or "", t.operator or "Equal", t.value or "", t.effect)) for t in found or ()))


def host_ports(spec: wire.PodSpec) -> tuple[HostPort, ...]:
    """Return the node's ports that app containers and sidecars take; with hostNetwork every container port is one."""
    containers = [*(c for c in spec.init_containers or () if c.restart_policy == "Always"), *(spec.containers or ())]
    ports = []
    for container in containers:
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                ports.append(_host_port((port.protocol or "TCP", number, port.host_ip or "0.0.0.0")))  # noqa: S104
    return tuple(ports)


def images(spec: wire.PodSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the images of init and app containers, and those of image volumes."""
    containers = (*(spec.init_containers or ()), *(spec.containers or ()))
    mounted = tuple(image_name(v.image.reference or "") for v in spec.volumes or () if v.image is not None)
    return _same_images(tuple(image_name(container.image or "") for container in containers)), mounted


@remembered()
def image_name(reference: str) -> str:
    """
    Return an image's name with a tag or digest (`normalizedImageName` of `plugins/imagelocality`).

    The API server accepts names that are longer than any image's; only the beginning of such a name is kept.
    """
    reference = reference[:LONGEST_IMAGE_NAME]
    return reference if reference.rfind(":") > reference.rfind("/") else f"{reference}:latest"


def effect(text: str) -> Effect | None:
    """Return the taint effect of that name, None if there is none."""
    return _EFFECTS.get(text)


@remembered()
def _same_images(found: tuple[str, ...]) -> tuple[str, ...]:
    return found


@remembered()
def _same(found: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    return found


@remembered()
def _toleration(found: tuple[str, str, str, str | None]) -> Toleration:
    key, operator, value, name = found
    return Toleration(
        key=key,
        exists=operator == "Exists",
        value=value,
        effect=_EFFECTS.get(name) if name else None,
        unreadable=operator not in ("Equal", "Exists") or bool(name and name not in _EFFECTS),
    )


@remembered()
def _host_port(found: tuple[str, int, str]) -> HostPort:
    return HostPort(*found)


def node_term(term: NodeTerm) -> NodeSelectorTerm:
    """Return the term; what of it cannot be read makes it match nothing."""
    expressions = tuple(_requirement((e.key, e.operator, tuple(e.values or ()))) for e in term.match_expressions or ())
    fields = tuple(_field(e.key, e.operator, tuple(e.values or ())) for e in term.match_fields or ())
    read = tuple(e for e in expressions if e is not None), tuple(f for f in fields if f is not None)
    return NodeSelectorTerm(*read, unreadable=None in expressions or None in fields)


@remembered()
def _requirement(found: tuple[str, str, tuple[str, ...]]) -> Requirement | None:
    """Return the requirement of key, operator and values, None where `labels.NewRequirement` gives an error."""
    key, name, values = found
    if not all(map(_LABEL_VALUE.fullmatch, values)):
        return None
    operator = _OPERATORS.get(name)
    match operator:
        case None:
            return None
        case Operator.IN | Operator.NOT_IN:
            good = bool(values)
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            good = not values
        case Operator.GT | Operator.LT:
            good = len(values) == 1 and parse_int64(values[0]) is not None
    if not good:
        return None
    return Requirement(interned(key), operator, tuple(map(interned, values)))


def _field(key: str, name: str, values: tuple[str, ...]) -> Requirement | None:
    operator = _OPERATORS.get(name)
    if key != "metadata.name" or operator not in (Operator.IN, Operator.NOT_IN) or len(values) != 1:
        return None
    return Requirement(key, operator, (interned(values[0]),))


def _spread(found: wire.Spread, pod_labels: Mapping[str, str]) -> SpreadConstraint:
    """Return the constraint with `matchLabelKeys` merged in, as the API server does from 1.34 on."""
    if found.max_skew < 1:
        raise ValueError(f"maxSkew of a topology spread constraint is {found.max_skew}")
    selector = label_selector(found.label_selector)
    if selector is not None and found.match_label_keys:
        keyed = (_requirement((key, "In", (pod_labels[key],))) for key in found.match_label_keys if key in pod_labels)
        merged = dict.fromkeys((*selector.requirements, *(one for one in keyed if one is not None)))
        selector = LabelSelector(tuple(merged))
    return SpreadConstraint(
        topology_key=interned(found.topology_key),
        max_skew=found.max_skew,
        hard=found.when_unsatisfiable != "ScheduleAnyway",
        selector=selector,
        min_domains=found.min_domains or 1,
        honor_affinity=found.node_affinity_policy != "Ignore",
        honor_taints=found.node_taints_policy == "Honor",
    )


def _pod_terms(affinity: wire.PodAffinity, namespace: str) -> tuple[PodAffinityTerm, ...]:
    return tuple(_pod_term(t, namespace) for t in affinity.required_during_scheduling_ignored_during_execution or ())


def _pod_term(term: wire.PodTerm, namespace: str, *, weight: int = 0) -> PodAffinityTerm:
    named = frozenset(term.namespaces or ())
    return _same_term(
        PodAffinityTerm(
            topology_key=interned(term.topology_key),
            selector=label_selector(term.label_selector),
            namespaces=named if named or term.namespace_selector is not None else frozenset((namespace,)),
            namespace_selector=label_selector(term.namespace_selector),
            weight=weight,
        )
    )


@remembered()
def _same_term(found: PodAffinityTerm) -> PodAffinityTerm:
    return found


def label_selector(selector: Selector | None) -> LabelSelector | None:
    """
    Return the label selector, None if there is none.

    Raises:
        ValueError: an operator or a value cannot be read, or there are too many.
    """
    if selector is None:
        return None
    if len(selector.match_labels or ()) + len(selector.match_expressions or ()) > MOST_REQUIREMENTS:
        raise ValueError(f"a label selector has more than {MOST_REQUIREMENTS} requirements")
    requirements = [_requirement((key, "In", (value,))) for key, value in (selector.match_labels or {}).items()]
    expressions = selector.match_expressions or ()
    requirements.extend(_requirement((one.key, one.operator, tuple(one.values or ()))) for one in expressions)
    read = tuple(r for r in requirements if r is not None and r.operator in _SELECTOR_OPERATORS)
    if len(read) < len(requirements):
        raise ValueError("a label selector has an operator or a value that cannot be read")
    return LabelSelector(read)


def _preferred(affinity: wire.PodAffinity, namespace: str) -> tuple[PodAffinityTerm, ...]:
    return tuple(
        _pod_term(preferred.pod_affinity_term, namespace, weight=preferred.weight)
        for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ()
    )


def _volumes(
    volumes: Iterable[wire.Volume], pod: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[InlineVolume, ...], tuple[str, ...]]:
    """Return the names of all claims, of the ephemeral ones, the disks that CSI serves, and what nobody serves."""
    claims, ephemeral, disks, inline = [], [], [], []
    for volume in volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(volume.persistent_volume_claim.claim_name)
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
