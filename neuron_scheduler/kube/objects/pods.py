"""
Pods -> `model.Pod`, and how they are listed and watched. What follows from its spec is read by `pod_spec`.

A pod whose phase is terminal counts as gone.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from operator import attrgetter
from typing import Any, Final

import attrs

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Malformed, Resource, intern, labels, share
from neuron_scheduler.kube.objects.groups.dialects import SIGNS, group_of, rank_of
from neuron_scheduler.kube.objects.pod_limits import fewer_labels, size_of, without_restrictions
from neuron_scheduler.kube.objects.pod_spec import constraints, fields_of_spec, images, is_individual, spec_key
from neuron_scheduler.kube.objects.wire import Condition, OwnerReference
from neuron_scheduler.model.annotations import ALLOCATION_KEYS, NEURON_ALLOCATED
from neuron_scheduler.model.devices import ClaimReference
from neuron_scheduler.model.pod import Owner, Pod, PodCondition
from neuron_scheduler.model.selectors import NO_LABELS

TERMINAL: Final = ("Succeeded", "Failed")
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
_PREEMPTED: Final = ("DisruptionTarget", "True", PREEMPTION_BY_SCHEDULER)
_words_of: Final = attrgetter("type", "status", "reason")

_NO_IMAGES: Final[tuple[str, ...]] = ()

_COMPARED: Final = attrgetter(
    *(field.name for field in attrs.fields(Pod) if field.name not in ("resource_version", "observed_generation"))
)


def _read(pod: wire.Pod) -> Pod | None:
    meta, spec, status = pod.metadata, pod.spec, pod.status or wire.PodStatus()
    if status.phase in TERMINAL:
        return None
    parts, refusal = size_of(spec, meta.labels or NO_LABELS)
    if refusal:
        spec = without_restrictions(spec)
    common = fields_of_spec((spec_key(spec, status), meta.namespace))
    constrained, volume_images = common.constraints, _NO_IMAGES
    if is_individual(spec):
        constrained = constraints(spec, pod=meta.name, namespace=meta.namespace, pod_labels=meta.labels or NO_LABELS)
        _, volume_images = images(spec)
    native = spec.scheduling_group.get("podGroupName") if spec.scheduling_group else None
    words, group = (meta.labels or NO_LABELS, meta.annotations or NO_LABELS), None
    is_free = not (refusal or common.gates)  # a member that may not be placed yet is none
    if is_free and (native or constrained.affinity or not all(map(SIGNS.isdisjoint, words))):
        group = share(group_of(meta.namespace, *words, constrained, native))
    created = meta.creation_timestamp
    conditions = status.conditions or ()
    return Pod(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        resource_version=meta.resource_version,
        created=0.0 if created is None else created.timestamp(),
        labels=labels(fewer_labels(meta.labels) if refusal else meta.labels),
        scheduler_name=common.scheduler_name,
        node_name=intern(spec.node_name or ""),
        nominated_node_name=intern(status.nominated_node_name or ""),
        priority=common.priority,
        requests=common.requests,
        neuron=common.neuron,
        neuron_containers=common.neuron_containers,
        images=common.images,
        volume_images=volume_images,
        allocation=_allocation(meta.annotations),
        annotations_size=annotations_size(meta.annotations or NO_LABELS),
        refusal=refusal or common.refusal,
        tolerations=common.tolerations,
        host_ports=common.host_ports,
        constraints=constrained,
        terminating=meta.deletion_timestamp is not None,
        gates=common.gates,
        scheduled=_scheduled_condition(conditions),
        observed_generation=meta.generation,
        owner=_owner(meta.owner_references) if meta.owner_references else None,
        never_preempts=common.never_preempts,
        started=None if status.start_time is None else status.start_time.timestamp(),
        preempted=_eviction_time(meta) if _PREEMPTED in map(_words_of, conditions) else 0.0,
        admitted=status.start_time is not None or _is_admitted(status, meta.annotations),
        group=group,
        rank=0 if group is None else rank_of(meta.labels or NO_LABELS),
        claims=_claims(spec, status) if spec.resource_claims else (),
        parts=parts,
    )


def _claims(spec: wire.PodSpec, status: wire.PodStatus) -> tuple[ClaimReference, ...]:
    made = {each.name: each.resource_claim_name for each in status.resource_claim_statuses or ()}
    return tuple(
        ClaimReference(
            claim.name,
            claim.resource_claim_name or made.get(claim.name, ""),
            is_generated=claim.resource_claim_name is None,
        )
        for claim in spec.resource_claims or ()
    )


def _eviction_time(meta: wire.ObjectMeta) -> float:
    """Return when the pod's deletion was asked for, in seconds since the epoch; infinite if it was not yet."""
    by = meta.deletion_timestamp
    return inf if by is None else by.timestamp() - (meta.deletion_grace_period_seconds or 0)


def _owner(references: Iterable[OwnerReference]) -> Owner | None:
    return next((share(Owner(r.api_version, r.kind, r.name)) for r in references if r.controller), None)


def _allocation(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    if not annotations:
        return NO_LABELS
    return {key: annotations[key] for key in ALLOCATION_KEYS if key in annotations} or NO_LABELS


def _is_admitted(status: wire.PodStatus, annotations: Mapping[str, str] | None) -> bool:
    """
    Return whether a pod without a start time is known to have been admitted by its kubelet.

    The kubelet asks the device plugin first. For one unit, or all of a node, the plugin leaves the annotation as it is.
    """
    if status.container_statuses or status.init_container_statuses:
        return True
    return annotations is not None and annotations.get(NEURON_ALLOCATED) == "true"


def annotations_size(annotations: Mapping[str, str]) -> int:
    """Return the bytes of all keys and values together, as the API server counts them (at most 256 KiB)."""
    return len("".join((*annotations, *annotations.values())).encode())


def _scheduled_condition(conditions: Iterable[Condition]) -> PodCondition | None:
    for condition in conditions:
        if condition.type == "PodScheduled":
            reason, message = intern(condition.reason or ""), condition.message or ""
            return share(PodCondition(intern(condition.status), reason, message))
    return None


PODS: Final[Resource[Pod]] = Resource(
    path="/api/v1/pods",
    kind="Pod",
    shape=wire.Pod,
    read=_read,
    sort_key=attrgetter("created", "namespace", "name", "uid"),
    is_same=lambda old, new: bool(_COMPARED(old) == _COMPARED(new)),
    params={"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
)


def unreadable_pod(malformed: Malformed) -> Pod:
    namespace, _, name = malformed.key.partition("/")
    return Pod(uid=malformed.uid, namespace=namespace, name=name, node_name=malformed.node_name)


def pods_through(own: Callable[[Pod], Pod] | None) -> Resource[Pod]:
    """Return the kind of pods, each as a function makes it after it is read; None for as it is read."""
    if own is None:
        return PODS

    def read(struct: Any) -> Pod | None:
        pod = PODS.read(struct)
        return None if pod is None else own(pod)

    return attrs.evolve(PODS, read=read)
