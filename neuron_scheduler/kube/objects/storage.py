"""
Storage objects as bytes -> `model.volumes`, and what of them is listed and watched.

As in `codec`: what cannot be read becomes `Malformed`, and nothing unreadable ever becomes something free.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter, eq
from typing import Any, Final, TypeVar

import msgspec

from neuron_scheduler.kube.objects import storage_wire as wire
from neuron_scheduler.kube.objects.base import Codec, Decoded, interned, key_of, labels
from neuron_scheduler.kube.objects.constraints import label_selector, node_term
from neuron_scheduler.kube.objects.csi_migration import csi_terms, in_tree_disk
from neuron_scheduler.kube.objects.resource import Resource
from neuron_scheduler.kube.objects.wire import NodeTerms
from neuron_scheduler.model.annotations import BETA_STORAGE_CLASS, BIND_COMPLETED, MIGRATED_PLUGINS, SELECTED_NODE
from neuron_scheduler.model.quantity import whole
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import (
    ClaimRef,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

M = TypeVar("M")
W = TypeVar("W", bound=msgspec.Struct)

Terms = tuple[NodeSelectorTerm, ...]


def _codec(kind: str, shape: type[W], read: Callable[[wire.Meta, W], M]) -> Codec[M]:
    """Return the codec of a kind."""

    def decoded(found: W) -> Decoded[M]:
        meta: wire.Meta = found.metadata  # type: ignore[attr-defined]  # each shape has one
        return Decoded(key_of(meta.namespace, meta.name), meta.uid, meta.resource_version, read(meta, found))

    return Codec(kind, shape, decoded)


def _claim(meta: wire.Meta, found: wire.Claim) -> PersistentVolumeClaim:
    spec, annotations = found.spec, meta.annotations or {}
    requests = (spec.resources.requests if spec.resources else None) or {}
    return PersistentVolumeClaim(
        uid=meta.uid,
        namespace=interned(meta.namespace),
        name=meta.name,
        resource_version=meta.resource_version,
        volume_name=spec.volume_name or "",
        class_name=_class_name(annotations, spec.storage_class_name),
        access_modes=_modes(spec.access_modes),
        request=whole(str(requests.get("storage", "0"))),
        selector=label_selector(spec.selector),
        volume_mode=interned(spec.volume_mode or "Filesystem"),
        attributes_class=interned(spec.volume_attributes_class_name or ""),
        selected_node=annotations.get(SELECTED_NODE),
        bind_completed=BIND_COMPLETED in annotations,
        lost=found.status is not None and found.status.phase == "Lost",
        terminating=meta.deletion_timestamp is not None,
        owner=next((owner.uid for owner in meta.owner_references or () if owner.controller), ""),
    )


def _volume(meta: wire.Meta, found: wire.Volume) -> PersistentVolume:
    spec, disk = found.spec, in_tree_disk(found.spec)
    affinity = spec.node_affinity.required if spec.node_affinity else None
    terms, plugin = _terms(affinity), disk.plugin if disk else ""
    told = labels(meta.labels)
    return PersistentVolume(
        uid=meta.uid,
        name=meta.name,
        resource_version=meta.resource_version,
        labels=told,
        class_name=_class_name(meta.annotations or {}, spec.storage_class_name),
        access_modes=_modes(spec.access_modes),
        capacity=whole(str((spec.capacity or {}).get("storage", "0"))),
        volume_mode=interned(spec.volume_mode or "Filesystem"),
        attributes_class=interned(spec.volume_attributes_class_name or ""),
        claim=_claim_ref(spec.claim_ref),
        required_terms=terms,
        csi_terms=csi_terms(plugin, terms, told) if plugin else terms,
        driver=interned(spec.csi.driver) if spec.csi else disk.driver if disk else "",
        handle=spec.csi.volume_handle if spec.csi else disk.handle if disk else "",
        plugin=plugin,
        available=found.status is not None and found.status.phase == "Available",
        terminating=meta.deletion_timestamp is not None,
    )


def _class_name(annotations: Mapping[str, str], name: str | None) -> str:
    return interned(annotations.get(BETA_STORAGE_CLASS, name or ""))


def _modes(modes: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(interned(mode) for mode in modes or ())


def _claim_ref(found: wire.ClaimReference | None) -> ClaimRef | None:
    return None if found is None else ClaimRef(f"{found.namespace}/{found.name}", found.uid or "")


def _terms(affinity: NodeTerms | None) -> Terms | None:
    """
    Return a volume's node affinity, None if every node matches.

    Upstream matches it against a node without a name, and then leaves conditions on fields out.
    """
    if affinity is None:
        return None
    terms = []
    for term in map(node_term, affinity.node_selector_terms or ()):
        if term.fields and not (term.expressions or term.unreadable):
            return None
        terms.append(NodeSelectorTerm(term.expressions, unreadable=term.unreadable))
    return tuple(terms)


def _class(meta: wire.Meta, found: wire.Class) -> StorageClass:
    topologies = [
        NodeSelectorTerm(
            tuple(
                Requirement(interned(one.key), Operator.IN, tuple(map(interned, one.values or ())))
                for one in term.match_label_expressions or ()
            )
        )
        for term in found.allowed_topologies or ()
    ]
    return StorageClass(
        uid=meta.uid,
        name=interned(meta.name),
        provisioner=interned(found.provisioner or ""),
        waits=found.volume_binding_mode == "WaitForFirstConsumer",
        allowed_topologies=tuple(topologies) or None,
    )


def _csi_node(meta: wire.Meta, found: wire.Node) -> CSINode:
    plugins = (meta.annotations or {}).get(MIGRATED_PLUGINS, "")
    return CSINode(
        uid=meta.uid,
        name=interned(meta.name),
        limits={
            interned(driver.name): max(0, driver.allocatable.count)
            for driver in found.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        },
        migrated=frozenset(interned(plugin) for plugin in plugins.split(",") if plugin),
        drivers=frozenset(interned(driver.name) for driver in found.spec.drivers or ()),
    )


def _csi_driver(meta: wire.Meta, found: wire.Driver) -> CSIDriver:
    return CSIDriver(
        uid=meta.uid,
        name=interned(meta.name),
        storage_capacity=bool(found.spec.storage_capacity),
        required=bool(found.spec.prevent_pod_scheduling_if_missing),
    )


def _capacity(meta: wire.Meta, found: wire.Capacity) -> CSIStorageCapacity:
    largest = found.capacity if found.maximum_volume_size is None else found.maximum_volume_size
    return CSIStorageCapacity(
        uid=meta.uid,
        key=key_of(meta.namespace, meta.name),
        class_name=interned(found.storage_class_name),
        topology=label_selector(found.node_topology),
        largest=None if largest is None else whole(str(largest)),
    )


def _attachment(meta: wire.Meta, found: wire.Attachment) -> VolumeAttachment:
    return VolumeAttachment(
        uid=meta.uid,
        name=meta.name,
        node_name=interned(found.spec.node_name),
        attacher=interned(found.spec.attacher),
        volume_name=found.spec.source.persistent_volume_name or "",
    )


CLAIM: Final = _codec("PersistentVolumeClaim", wire.Claim, _claim)
VOLUME: Final = _codec("PersistentVolume", wire.Volume, _volume)

_STORAGE: Final = "/apis/storage.k8s.io/v1"
# Versions are compared too: what waits for a write of ours must see each.
CLAIMS: Final = Resource("/api/v1/persistentvolumeclaims", CLAIM, eq, attrgetter("key"))
VOLUMES: Final = Resource("/api/v1/persistentvolumes", VOLUME, eq, attrgetter("name"))
CLASSES: Final = Resource(
    f"{_STORAGE}/storageclasses", _codec("StorageClass", wire.Class, _class), eq, attrgetter("name")
)
CSI_NODES: Final = Resource(f"{_STORAGE}/csinodes", _codec("CSINode", wire.Node, _csi_node), eq, attrgetter("name"))
CSI_DRIVERS: Final = Resource(
    f"{_STORAGE}/csidrivers", _codec("CSIDriver", wire.Driver, _csi_driver), eq, attrgetter("name")
)
CAPACITIES: Final = Resource(
    f"{_STORAGE}/csistoragecapacities",
    _codec("CSIStorageCapacity", wire.Capacity, _capacity),
    eq,
    attrgetter("key"),
)
ATTACHMENTS: Final = Resource(
    f"{_STORAGE}/volumeattachments", _codec("VolumeAttachment", wire.Attachment, _attachment), eq, attrgetter("name")
)
STORAGE: Final[tuple[Resource[Any], ...]] = (
    CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    CAPACITIES,
    VOLUMES,
    CLAIMS,
    ATTACHMENTS,
)
