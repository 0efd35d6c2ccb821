"""Storage objects -> `model.volumes`, and how they are listed and watched."""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource, intern, key_of, labels, reference
from neuron_scheduler.kube.objects.selectors import node_term, selector_of_others
from neuron_scheduler.kube.objects.wire import InTree, NodeTerms, ObjectMeta, Wire
from neuron_scheduler.model.annotations import BETA_STORAGE_CLASS, BIND_COMPLETED, MIGRATED_PLUGINS, SELECTED_NODE
from neuron_scheduler.model.node import BETA_REGION_LABEL, BETA_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from neuron_scheduler.model.quantity import whole
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import (
    AWS_EBS,
    MIGRATED,
    ROOM,
    ClaimRef,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    InlineVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

_EBS_ZONE: Final = "topology.ebs.csi.aws.com/zone"

Terms = tuple[NodeSelectorTerm, ...]

_STORAGE: Final = "/apis/storage.k8s.io/v1"


class _Requests(Wire):
    requests: wire.Quantities | None = None


class _ClaimSpec(Wire):
    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: _Requests | None = None
    selector: wire.Selector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class _Phase(Wire):
    phase: str | None = None


class _Claim(Wire):
    metadata: ObjectMeta
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)
    status: _Phase | None = None


class _ClaimReference(Wire):
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class _VolumeAffinity(Wire):
    required: wire.NodeTerms | None = None


class _Csi(Wire):
    driver: str
    volume_handle: str


class _VolumeSpec(wire.InTree):
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    capacity: wire.Quantities | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: _ClaimReference | None = None
    node_affinity: _VolumeAffinity | None = None
    csi: _Csi | None = None


class _Volume(Wire):
    metadata: ObjectMeta
    spec: _VolumeSpec
    status: _Phase | None = None


class _TopologyRequirement(Wire):
    key: str
    values: list[str] | None = None


class _TopologyTerm(Wire):
    match_label_expressions: list[_TopologyRequirement] | None = None


class _Class(Wire):
    metadata: ObjectMeta
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[_TopologyTerm] | None = None


class _Allocatable(Wire):
    count: int | None = None


class _NodeDriver(Wire):
    name: str
    allocatable: _Allocatable | None = None


class _NodeSpec(Wire):
    drivers: list[_NodeDriver] | None = None


class _Node(Wire):
    metadata: ObjectMeta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)


class _DriverSpec(Wire):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class _Driver(Wire):
    metadata: ObjectMeta
    spec: _DriverSpec = msgspec.field(default_factory=_DriverSpec)


class _Capacity(Wire):
    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: wire.Selector | None = None
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None


class _Source(Wire):
    persistent_volume_name: str | None = None


class _AttachmentSpec(Wire):
    attacher: str = ""
    node_name: str = ""
    source: _Source = msgspec.field(default_factory=_Source)


class _Attachment(Wire):
    metadata: ObjectMeta
    spec: _AttachmentSpec


def in_tree_disk(source: InTree) -> InlineVolume | None:
    """
    Return the EBS disk behind a volume of a pod or a PersistentVolume, None if it has another source.

    The CSI driver that replaced the in-tree plugin serves it (upstream: `csi-translation-lib/plugins`).
    """
    if source.aws_elastic_block_store is None:
        return None
    handle = source.aws_elastic_block_store.volume_id  # `aws://zone/vol-id` or the bare id
    return InlineVolume(AWS_EBS, MIGRATED[AWS_EBS], handle.rstrip("/").rpartition("/")[2])


def _claim(claim: _Claim) -> PersistentVolumeClaim:
    meta, spec = claim.metadata, claim.spec
    annotations = meta.annotations or {}
    requests = (spec.resources.requests if spec.resources else None) or {}
    return PersistentVolumeClaim(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        resource_version=meta.resource_version,
        volume_name=reference(spec.volume_name or ""),
        class_name=_class_name(annotations, spec.storage_class_name),
        access_modes=_modes(spec.access_modes),
        request=whole(str(requests.get("storage", "0"))),
        selector=selector_of_others(spec.selector),
        volume_mode=intern(spec.volume_mode or "Filesystem"),
        attributes_class=intern(spec.volume_attributes_class_name or ""),
        selected_node=annotations.get(SELECTED_NODE),
        bind_completed=BIND_COMPLETED in annotations,
        lost=claim.status is not None and claim.status.phase == "Lost",
        terminating=meta.deletion_timestamp is not None,
        owner=next((owner.uid for owner in meta.owner_references or () if owner.controller), ""),
    )


def _volume(volume: _Volume) -> PersistentVolume:
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
        volume_mode=intern(spec.volume_mode or "Filesystem"),
        attributes_class=intern(spec.volume_attributes_class_name or ""),
        claim=_claim_ref(spec.claim_ref),
        required_terms=terms,
        csi_terms=_csi_terms(terms, volume_labels) if plugin else terms,
        driver=intern(spec.csi.driver) if spec.csi else disk.driver if disk else "",
        handle=spec.csi.volume_handle if spec.csi else disk.handle if disk else "",
        plugin=plugin,
        available=volume.status is not None and volume.status.phase == "Available",
        terminating=meta.deletion_timestamp is not None,
    )


def _class_name(annotations: Mapping[str, str], name: str | None) -> str:
    return intern(reference(annotations.get(BETA_STORAGE_CLASS, name or "")))


def _modes(modes: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(intern(mode) for mode in modes or ())


def _claim_ref(reference: _ClaimReference | None) -> ClaimRef | None:
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


def _csi_terms(terms: Terms | None, labels: Mapping[str, str]) -> Terms | None:
    """Return an EBS volume's node affinity in the labels of its driver (`translateTopologyFromInTreeToCSI`)."""
    zone, region = _zone_labels(terms or (), labels)
    if _has(terms or (), zone):
        terms = _rename_keys(terms or (), {zone: _EBS_ZONE})
    elif zone in labels:
        zones = tuple(sorted({part.strip() for part in labels[zone].split("__")} - {""}))
        if zones:
            in_zones = Requirement(_EBS_ZONE, Operator.IN, zones)
            terms = tuple(
                attrs.evolve(term, expressions=(*term.expressions, in_zones)) for term in terms or (NodeSelectorTerm(),)
            )
    return _rename_keys(terms, {BETA_REGION_LABEL: REGION_LABEL}) if terms and region == BETA_REGION_LABEL else terms


def _zone_labels(terms: Terms, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the labels for zone and region that a volume uses: those of its affinity first, the beta ones last."""
    beta = not _has(terms, ZONE_LABEL) and (
        _has(terms, BETA_ZONE_LABEL) or (ZONE_LABEL not in labels and BETA_ZONE_LABEL in labels)
    )
    return (BETA_ZONE_LABEL, BETA_REGION_LABEL) if beta else (ZONE_LABEL, REGION_LABEL)


def _has(terms: Iterable[NodeSelectorTerm], key: str) -> bool:
    return any(requirement.key == key for term in terms for requirement in term.expressions)


def _rename_keys(terms: Terms, names: Mapping[str, str]) -> Terms:
    return tuple(
        attrs.evolve(term, expressions=tuple(attrs.evolve(r, key=names.get(r.key, r.key)) for r in term.expressions))
        for term in terms
    )


def _class(storage_class: _Class) -> StorageClass:
    meta = storage_class.metadata
    topologies = [
        NodeSelectorTerm(
            tuple(
                Requirement(intern(e.key), Operator.IN, tuple(map(intern, e.values or ())))
                for e in term.match_label_expressions or ()
            )
        )
        for term in storage_class.allowed_topologies or ()
    ]
    return StorageClass(
        uid=meta.uid,
        name=intern(meta.name),
        provisioner=intern(storage_class.provisioner or ""),
        waits=storage_class.volume_binding_mode == "WaitForFirstConsumer",
        allowed_topologies=tuple(topologies) or None,
    )


def _csi_node(node: _Node) -> CSINode:
    meta = node.metadata
    plugins = (meta.annotations or {}).get(MIGRATED_PLUGINS, "")
    return CSINode(
        uid=meta.uid,
        name=intern(meta.name),
        limits={
            intern(driver.name): max(0, driver.allocatable.count)
            for driver in node.spec.drivers or ()
            if driver.allocatable is not None and driver.allocatable.count is not None
        },
        migrated=frozenset(intern(plugin) for plugin in plugins.split(",") if plugin),
        drivers=frozenset(intern(driver.name) for driver in node.spec.drivers or ()),
    )


def _csi_driver(driver: _Driver) -> CSIDriver:
    meta = driver.metadata
    return CSIDriver(
        uid=meta.uid,
        name=intern(meta.name),
        storage_capacity=bool(driver.spec.storage_capacity),
        required=bool(driver.spec.prevent_pod_scheduling_if_missing),
    )


def _capacity(capacity: _Capacity) -> CSIStorageCapacity:
    meta = capacity.metadata
    largest = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    topology = selector_of_others(capacity.node_topology)
    return CSIStorageCapacity(
        uid=meta.uid,
        name=f"\n{key_of(meta.namespace, meta.name)}",  # no claim can name it: a `reference` has no line break
        class_name=intern(capacity.storage_class_name),
        capacity=max(0, whole(str(largest or 0))),  # the API server takes a negative `maximumVolumeSize`
        volume_mode=ROOM,
        required_terms=(NodeSelectorTerm(topology.requirements),) if topology and topology.requirements else None,
        available=topology is not None and largest is not None,
    )


def _attachment(attachment: _Attachment) -> VolumeAttachment:
    meta = attachment.metadata
    return VolumeAttachment(
        uid=meta.uid,
        name=meta.name,
        node_name=intern(attachment.spec.node_name),
        attacher=intern(attachment.spec.attacher),
        volume_name=attachment.spec.source.persistent_volume_name or "",
    )


def _resource(path: str, kind: str, shape: type[Wire], read: Any, sort_key: str = "name") -> Resource[Any]:
    return Resource(path=path, kind=kind, shape=shape, read=read, sort_key=attrgetter(sort_key))


# The versions of claims and volumes are compared too: what waits for a write of ours must see each.
CLAIMS: Final[Resource[PersistentVolumeClaim]] = _resource(
    "/api/v1/persistentvolumeclaims", "PersistentVolumeClaim", _Claim, _claim, "key"
)
VOLUMES: Final[Resource[PersistentVolume]] = _resource(
    "/api/v1/persistentvolumes", "PersistentVolume", _Volume, _volume
)
CLASSES: Final[Resource[StorageClass]] = _resource(f"{_STORAGE}/storageclasses", "StorageClass", _Class, _class)
CSI_NODES: Final[Resource[CSINode]] = _resource(f"{_STORAGE}/csinodes", "CSINode", _Node, _csi_node)
CSI_DRIVERS: Final[Resource[CSIDriver]] = _resource(f"{_STORAGE}/csidrivers", "CSIDriver", _Driver, _csi_driver)
CAPACITIES: Final[Resource[CSIStorageCapacity]] = _resource(
    f"{_STORAGE}/csistoragecapacities", "CSIStorageCapacity", _Capacity, _capacity
)
ATTACHMENTS: Final[Resource[VolumeAttachment]] = _resource(
    f"{_STORAGE}/volumeattachments", "VolumeAttachment", _Attachment, _attachment
)
STORAGE: Final[tuple[Resource[Any], ...]] = (CLASSES, CSI_DRIVERS, CSI_NODES, CAPACITIES, VOLUMES, CLAIMS, ATTACHMENTS)
