"""
Kinds of which only labels and selectors are read, and how they are listed and watched.

Services and the controllers of pods select the pods that are spread. One that cannot be read is skipped, because only a
preference depends on it.
"""

from functools import partial
from operator import attrgetter
from typing import Final

import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource, intern, labels
from neuron_scheduler.kube.objects.selectors import selector_of_others
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.selecting_kinds import Namespace, Workload
from neuron_scheduler.model.selectors import LabelSelector


class _Namespace(wire.Wire):
    metadata: wire.ObjectMeta


def _namespace(namespace: _Namespace) -> Namespace:
    meta = namespace.metadata
    return Namespace(uid=meta.uid, name=intern(meta.name), labels=labels(meta.labels))


NAMESPACES: Final[Resource[Namespace]] = Resource(
    path="/api/v1/namespaces", kind="Namespace", shape=_Namespace, read=_namespace, sort_key=attrgetter("name", "uid")
)


class _MapSpec(wire.Wire):
    selector: dict[str, str] | None = None


class _Mapped(wire.Wire):
    metadata: wire.ObjectMeta
    spec: _MapSpec | None = None


class _SetSpec(wire.Wire):
    selector: wire.Selector | None = None


class _Set(wire.Wire):
    metadata: wire.ObjectMeta
    spec: _SetSpec | None = None


def _selector_of(workload: _Mapped | _Set) -> wire.Selector | None:
    if isinstance(workload, _Set):
        return workload.spec.selector if workload.spec else None
    return wire.Selector(match_labels=workload.spec.selector) if workload.spec else None


def _workload(workload: _Mapped | _Set, *, api_version: str, kind: str) -> Workload:
    meta = workload.metadata
    return Workload(
        uid=meta.uid,
        api_version=api_version,
        kind=kind,
        namespace=intern(meta.namespace),
        name=intern(meta.name),
        selector=selector_of_others(_selector_of(workload)),
    )


def _workloads_of(path: str, api_version: str, kind: str, shape: type[_Mapped | _Set]) -> Resource[Workload]:
    return Resource(
        path=path,
        kind=kind,
        shape=shape,
        read=partial(_workload, api_version=api_version, kind=kind),
        sort_key=attrgetter("namespace", "name", "uid"),
    )


WORKLOADS: Final = (
    _workloads_of("/api/v1/services", "v1", "Service", _Mapped),
    _workloads_of("/api/v1/replicationcontrollers", "v1", "ReplicationController", _Mapped),
    _workloads_of("/apis/apps/v1/replicasets", "apps/v1", "ReplicaSet", _Set),
    _workloads_of("/apis/apps/v1/statefulsets", "apps/v1", "StatefulSet", _Set),
)


class _BudgetStatus(wire.Wire):
    disruptions_allowed: int = 0
    disrupted_pods: dict[str, msgspec.Raw] | None = None


class _Budget(wire.Wire):
    metadata: wire.ObjectMeta
    spec: _SetSpec | None = None
    status: _BudgetStatus | None = None


def _budget(budget: _Budget) -> DisruptionBudget:
    meta, status = budget.metadata, budget.status or _BudgetStatus()
    return DisruptionBudget(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=intern(meta.name),
        selector=_selector_of_budget(budget.spec.selector if budget.spec else None),
        allowed=status.disruptions_allowed,
        disrupted=frozenset(status.disrupted_pods or ()),
    )


def _selector_of_budget(selector: wire.Selector | None) -> LabelSelector | None:
    """Return the selector; one that cannot be read matches nothing, as upstream."""
    try:
        return selector_of_others(selector)
    except ValueError:
        return None


BUDGETS: Final[Resource[DisruptionBudget]] = Resource(
    path="/apis/policy/v1/poddisruptionbudgets",
    kind="PodDisruptionBudget",
    shape=_Budget,
    read=_budget,
    sort_key=attrgetter("namespace", "name", "uid"),
)
