"""
Services and the controllers of pods -> `model.Workload`, and how they are listed and watched.

Of each only the selector is read. One that cannot be read is set aside: what hangs on it is a preference, no rule.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter, eq
from typing import Final

import msgspec

from neuron_scheduler.kube import wire
from neuron_scheduler.kube.codec import Decoded, Encoded, Malformed, identity_of, interned
from neuron_scheduler.kube.constraints import label_selector
from neuron_scheduler.kube.informer import Resource
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


_MAPPED: Final = msgspec.json.Decoder(_Mapped)
_SET: Final = msgspec.json.Decoder(_Set)


_Read = Callable[[Encoded], tuple[wire.ObjectMeta, wire.Selector | None]]


def _decode(encoded: Encoded, *, api_version: str, kind: str, read: _Read) -> Decoded[Workload]:
    try:
        meta, selector = read(encoded)
        selects = label_selector(selector)
    except (msgspec.MsgspecError, ValueError) as error:
        known = identity_of(encoded)
        key = f"{known.namespace}/{known.name}" if known.name else ""
        return Decoded(key, known.uid, known.resource_version, Malformed(kind, key, str(error), known.uid))
    found = Workload(
        uid=meta.uid,
        api_version=api_version,
        kind=kind,
        namespace=interned(meta.namespace),
        name=interned(meta.name),
        selector=selects,
    )
    return Decoded(f"{meta.namespace}/{meta.name}", meta.uid, meta.resource_version, found)


def _mapped(encoded: Encoded) -> tuple[wire.ObjectMeta, wire.Selector | None]:
    found = _MAPPED.decode(encoded)
    return found.metadata, wire.Selector(match_labels=found.spec.selector) if found.spec else None


def _set(encoded: Encoded) -> tuple[wire.ObjectMeta, wire.Selector | None]:
    found = _SET.decode(encoded)
    return found.metadata, found.spec.selector if found.spec else None


def _resource(path: str, api_version: str, kind: str, read: _Read) -> Resource[Workload]:
    return Resource(
        path=path,
        decode=partial(_decode, api_version=api_version, kind=kind, read=read),
        same=eq,
        order=attrgetter("namespace", "name", "uid"),
    )


WORKLOADS: Final = (
    _resource("/api/v1/services", "v1", "Service", _mapped),
    _resource("/api/v1/replicationcontrollers", "v1", "ReplicationController", _mapped),
    _resource("/apis/apps/v1/replicasets", "apps/v1", "ReplicaSet", _set),
    _resource("/apis/apps/v1/statefulsets", "apps/v1", "StatefulSet", _set),
)
