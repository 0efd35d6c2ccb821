"""The fields of storage objects that we read, as they are spelled on the wire; `storage` reads them."""

import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.wire import Wire


class Owner(Wire):
    """An owner reference."""

    uid: str = ""
    controller: bool | None = None


class Meta(Wire):
    """`metadata`."""

    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None


class Requests(Wire):
    """`spec.resources` of a claim."""

    requests: wire.Quantities | None = None


class ClaimSpec(Wire):
    """`spec` of a PersistentVolumeClaim."""

    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: Requests | None = None
    selector: wire.Selector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class Phase(Wire):
    """`status` of a claim or volume."""

    phase: str | None = None


class Claim(Wire):
    """A PersistentVolumeClaim."""

    metadata: Meta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: Phase | None = None


class ClaimReference(Wire):
    """`spec.claimRef`."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class VolumeAffinity(Wire):
    """`spec.nodeAffinity` of a volume."""

    required: wire.NodeTerms | None = None


class Csi(Wire):
    """`spec.csi`."""

    driver: str
    volume_handle: str


class VolumeSpec(wire.InTree):
    """`spec` of a PersistentVolume."""

    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    capacity: wire.Quantities | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeAffinity | None = None
    csi: Csi | None = None


class Volume(Wire):
    """A PersistentVolume."""

    metadata: Meta
    spec: VolumeSpec
    status: Phase | None = None


class TopologyRequirement(Wire):
    """One label of an allowed topology."""

    key: str
    values: list[str] | None = None


class TopologyTerm(Wire):
    """One allowed topology."""

    match_label_expressions: list[TopologyRequirement] | None = None


class Class(Wire):
    """A StorageClass."""

    metadata: Meta
    provisioner: str | None = None
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class Allocatable(Wire):
    """How many volumes a driver can attach to the node."""

    count: int | None = None


class NodeDriver(Wire):
    """A driver on a node."""

    name: str
    allocatable: Allocatable | None = None


class NodeSpec(Wire):
    """`spec` of a CSINode."""

    drivers: list[NodeDriver] | None = None


class Node(Wire):
    """A CSINode."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)


class DriverSpec(Wire):
    """`spec` of a CSIDriver."""

    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class Driver(Wire):
    """A CSIDriver."""

    metadata: Meta
    spec: DriverSpec = msgspec.field(default_factory=DriverSpec)


class Capacity(Wire):
    """A CSIStorageCapacity."""

    metadata: Meta
    storage_class_name: str = ""
    node_topology: wire.Selector | None = None
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None


class Source(Wire):
    """`spec.source` of a VolumeAttachment."""

    persistent_volume_name: str | None = None


class AttachmentSpec(Wire):
    """`spec` of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: Source = msgspec.field(default_factory=Source)


class Attachment(Wire):
    """A VolumeAttachment."""

    metadata: Meta
    spec: AttachmentSpec
