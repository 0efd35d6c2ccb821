"""
Services and the controllers of pods -> `model.Workload`, and how they are listed and watched.

Of each only the selector is read. One that cannot be read is skipped: only a preference depends on it, no filter.
"""

from functools import partial
from operator import attrgetter
from typing import Final

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.interning import interned
from neuron_scheduler.kube.objects.selectors import label_selector
from neuron_scheduler.model.workload import Workload


class _MapSpec(wire.Wire):
    """`spec` of a Service or ReplicationController, whose selector is a plain map."""

    selector: dict[str, str] | None = None


class _Mapped(wire.Wire):
    """A Service or ReplicationController."""

    metadata: wire.ObjectMeta
    spec: _MapSpec | None = None


class _SetSpec(wire.Wire):
    """`spec` of a ReplicaSet or StatefulSet."""

    selector: wire.Selector | None = None


class _Set(wire.Wire):
    """A ReplicaSet or StatefulSet."""

    metadata: wire.ObjectMeta
    spec: _SetSpec | None = None


def _selector(workload: _Mapped | _Set) -> wire.Selector | None:
    if isinstance(workload, _Set):
        return workload.spec.selector if workload.spec else None
    return wire.Selector(match_labels=workload.spec.selector) if workload.spec else None


def _read(workload: _Mapped | _Set, *, api_version: str, kind: str) -> Workload:
    meta = workload.metadata
    return Workload(
        uid=meta.uid,
        api_version=api_version,
        kind=kind,
        namespace=interned(meta.namespace),
        name=interned(meta.name),
        selector=label_selector(_selector(workload)),
    )


def _resource(path: str, api_version: str, kind: str, shape: type[_Mapped | _Set]) -> Resource[Workload]:
    return Resource(
        path=path,
        kind=kind,
        shape=shape,
        read=partial(_read, api_version=api_version, kind=kind),
        order=attrgetter("namespace", "name", "uid"),
    )


WORKLOADS: Final = (
    _resource("/api/v1/services", "v1", "Service", _Mapped),
    _resource("/api/v1/replicationcontrollers", "v1", "ReplicationController", _Mapped),
    _resource("/apis/apps/v1/replicasets", "apps/v1", "ReplicaSet", _Set),
    _resource("/apis/apps/v1/statefulsets", "apps/v1", "StatefulSet", _Set),
)
