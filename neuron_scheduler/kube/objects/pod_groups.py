"""
Objects of kind PodGroup: how many members start together, and in one domain of which label.

    scheduling.x-k8s.io  coscheduling's   pods name it by a label               spec.minMember
    scheduling.k8s.io    Kubernetes' own  pods name it by spec.schedulingGroup  spec.schedulingPolicy.gang.minCount,
                                                                                spec.schedulingConstraints.topology,
                                                                                spec.disruptionMode, spec.priority

Without a count, members start as they fit. A group of a CompositePodGroup is a group by itself. Sources:
`apis/scheduling/v1alpha1` in kubernetes-sigs/scheduler-plugins; `scheduling/v1beta1` in k8s.io/api.
"""

from functools import partial
from operator import attrgetter
from typing import Any, Final

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.model.pod_group import MOST_MEMBERS, Dialect, GroupKey, PodGroup, PodGroupObject


class _PodGroup(wire.Wire):
    metadata: wire.ObjectMeta
    spec: dict[str, Any] = {}  # noqa: RUF012 - msgspec copies it


def _read(struct: _PodGroup, *, dialect: Dialect) -> PodGroupObject:
    meta, spec = struct.metadata, struct.spec
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    count = gang.get("minCount") or spec.get("minMember") or 1
    topology = (spec.get("schedulingConstraints") or {}).get("topology") or [{}]
    if not (isinstance(count, int) and 0 < count <= MOST_MEMBERS):
        raise ValueError(f"its count is {count}, and not 1 to {MOST_MEMBERS}")
    key = GroupKey(dialect, meta.namespace, meta.name)
    fails_together = "all" in (spec.get("disruptionMode") or {}) if dialect is Dialect.NATIVE else None
    priority = spec.get("priority") if dialect is Dialect.NATIVE else None
    if not (priority is None or isinstance(priority, int)):
        raise ValueError(f"its priority is {priority}, and no number")
    group = PodGroup(key, count, count, topology[0].get("key", ""), fails_together=fails_together, priority=priority)
    return PodGroupObject(meta.uid, group)


def _resource(group: str, version: str) -> Resource[PodGroupObject]:
    return Resource(
        path=f"/apis/{group}/{version}/podgroups",
        kind="PodGroup",
        shape=_PodGroup,
        read=partial(_read, dialect=Dialect(group)),
        sort_key=attrgetter("group.key.namespace", "group.key.name", "uid"),
    )


POD_GROUPS: Final = (
    _resource("scheduling.k8s.io", "v1beta1"),
    _resource("scheduling.k8s.io", "v1alpha3"),
    _resource("scheduling.x-k8s.io", "v1alpha1"),
)
"""Of each API group the newest version first: the first one that the API server serves is read."""
