"""
Storage objects -> `model.volumes`, and how they are listed and watched.

Does not follow references from one object to another: that is for `cluster.tables.volumes`.
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from neuron_scheduler.kube.objects import storage_wire as wire
from neuron_scheduler.kube.objects.base import Resource, key_of
from neuron_scheduler.kube.objects.csi_migration import Terms, csi_terms, in_tree_disk
from neuron_scheduler.kube.objects.interning import interned, labels
from neuron_scheduler.kube.objects.reference import reference
from neuron_scheduler.kube.objects.selectors import label_selector, node_term
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


def _claim(claim: wire.Claim) -> PersistentVolumeClaim:
    meta, spec = claim.metadata, claim.spec
    annotations = meta.annotations or {}
    requests = (spec.resources.requests if spec.resources else None) or {}
    return PersistentVolumeClaim(
        uid=meta.uid,
        namespace=interned(meta.namespace),
        name=meta.name,
        resource_version=meta.resource_version,
        volume_name=reference(spec.volume_name or ""),
        class_name=_class_name(annotations, spec.storage_class_name),
        access_modes=_modes(spec.access_modes),
        request=whole(str(requests.get("storage", "0"))),
        selector=label_selector(spec.selector),
        volume_mode=interned(spec.volume_mode or "Filesystem"),
        attributes_class=interned(spec.volume_attributes_class_name or ""),
        selected_node=annotations.get(SELECTED_NODE),
        bind_completed=BIND_COMPLETED in annotations,
        lost=claim.status is not None and claim.status.phase == "Lost",
        terminating=meta.deletion_timestamp is not None,
        owner=next((owner.uid for owner in meta.owner_references or () if owner.controller), ""),
    )


def _volume(volume: wire.Volume) -> PersistentVolume:
    meta, spec = volume.metadata, volume.spec
    disk = in_tree_disk(spec)
    affinity = spec.node_affinity.required if spec.node_affinity else None
    terms, plugin = _terms(affinity), disk.plugin if disk else ""
    volume_labels = labels(meta.labels)
    return PersistentVolume(
        uid=meta.uid,
        name=meta.name,
        resource_version=meta.resource_version,
        labels=volume_labels,
        class_name=_class_name(meta.annotations or {}, spec.storage_class_name),
        access_modes=_modes(spec.access_modes),
        capacity=whole(str((spec.capacity or {}).get("storage", "0"))),
        volume_mode=interned(spec.volume_mode or "Filesystem"),
        attributes_class=interned(spec.volume_attributes_class_name or ""),
        claim=_claim_ref(spec.claim_ref),
        required_terms=terms,
        csi_terms=csi_terms(plugin, terms, volume_labels) if plugin else terms,
        driver=interned(spec.csi.driver) if spec.csi else disk.driver if disk else "",
        handle=spec.csi.volume_handle if spec.csi else disk.handle if disk else "",
        plugin=plugin,
        available=volume.status is not None and volume.status.phase == "Available",
        terminating=meta.deletion_timestamp is not None,
    )


def _class_name(annotations: Mapping[str, str], name: str | None) -> str:
    return interned(reference(annotations.get(BETA_STORAGE_CLASS, name or "")))


def _modes(modes: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(interned(mode) for mode in modes or ())


def _claim_ref(reference: wire.ClaimReference | None) -> ClaimRef | None:
    return None if reference is None else ClaimRef(f"{reference.namespace}/{reference.name}", reference.uid or "")


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


def _class(storage_class: wire.Class) -> StorageClass:
    meta = storage_class.metadata
    topologies = [
        NodeSelectorTerm(
            tuple(
                Requirement(interned(e.key), Operator.IN, tuple(map(interned, e.values or ())))
                for e in term.match_label_expressions or ()
            )
        )
        for term in storage_class.allowed_topologies or ()
    ]
    return StorageClass(
        uid=meta.uid,
        name=interned(meta.name),
        provisioner=interned(storage_class.provisioner or ""),
        waits=storage_class.volume_binding_mode == "WaitForFirstConsumer",
        allowed_topologies=tuple(topologies) or None,
    )


def _csi_node(node: wire.Node) -> CSINode:
    meta = node.metadata
    plugins = (meta.annotations or {}).get(MIGRATED_PLUGINS, "")
    return CSINode(
        uid=meta.uid,
        name=interned(meta.name),
        limits={
            interned(driver.name): max(0, driver.allocatable.count)
            for driver in node.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        },
        migrated=frozenset(interned(plugin) for plugin in plugins.split(",") if plugin),
        drivers=frozenset(interned(driver.name) for driver in node.spec.drivers or ()),
    )


def _csi_driver(driver: wire.Driver) -> CSIDriver:
    meta = driver.metadata
    return CSIDriver(
        uid=meta.uid,
        name=interned(meta.name),
        storage_capacity=bool(driver.spec.storage_capacity),
        required=bool(driver.spec.prevent_pod_scheduling_if_missing),
    )


def _capacity(capacity: wire.Capacity) -> CSIStorageCapacity:
    meta = capacity.metadata
    largest = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return CSIStorageCapacity(
        uid=meta.uid,
        key=key_of(meta.namespace, meta.name),
        class_name=interned(capacity.storage_class_name),
        topology=label_selector(capacity.node_topology),
        largest=None if largest is None else whole(str(largest)),
    )


def _attachment(attachment: wire.Attachment) -> VolumeAttachment:
    meta = attachment.metadata
    return VolumeAttachment(
        uid=meta.uid,
        name=meta.name,
        node_name=interned(attachment.spec.node_name),
        attacher=interned(attachment.spec.attacher),
        volume_name=attachment.spec.source.persistent_volume_name or "",
    )


_STORAGE: Final = "/apis/storage.k8s.io/v1"

# The versions of claims and volumes are compared too: what waits for a write of ours must see each.
CLAIMS: Final[Resource[PersistentVolumeClaim]] = Resource(
    path="/api/v1/persistentvolumeclaims",
    kind="PersistentVolumeClaim",
    shape=wire.Claim,
    read=_claim,
    order=attrgetter("key"),
)
VOLUMES: Final[Resource[PersistentVolume]] = Resource(
    path="/api/v1/persistentvolumes",
    kind="PersistentVolume",
    shape=wire.Volume,
    read=_volume,
    order=attrgetter("name"),
)
CLASSES: Final[Resource[StorageClass]] = Resource(
    path=f"{_STORAGE}/storageclasses",
    kind="StorageClass",
    shape=wire.Class,
    read=_class,
    order=attrgetter("name"),
)
CSI_NODES: Final[Resource[CSINode]] = Resource(
    path=f"{_STORAGE}/csinodes",
    kind="CSINode",
    shape=wire.Node,
    read=_csi_node,
    order=attrgetter("name"),
)
CSI_DRIVERS: Final[Resource[CSIDriver]] = Resource(
    path=f"{_STORAGE}/csidrivers",
    kind="CSIDriver",
    shape=wire.Driver,
    read=_csi_driver,
    order=attrgetter("name"),
)
CAPACITIES: Final[Resource[CSIStorageCapacity]] = Resource(
    path=f"{_STORAGE}/csistoragecapacities",
    kind="CSIStorageCapacity",
    shape=wire.Capacity,
    read=_capacity,
    order=attrgetter("key"),
)
ATTACHMENTS: Final[Resource[VolumeAttachment]] = Resource(
    path=f"{_STORAGE}/volumeattachments",
    kind="VolumeAttachment",
    shape=wire.Attachment,
    read=_attachment,
    order=attrgetter("name"),
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
